package netlab

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxPacket = 65536 + vnetHeader + 64
	framing   = 38 // bytes of Ethernet around each packet: header, checksum, preamble, gap
)

// packet is a packet on its way.
type packet struct {
	at    int64 // when it reaches the switch's far side; later, when it reaches the host
	order uint64
	early int64 // how much earlier its first byte does
	wire  int64 // bytes on the line, including framing
	buf   *[]byte
	n     int
}

// port is the switch's side of a host's cable.
type port struct {
	up, down atomic.Pointer[Line]
	fd       int // of the TUN device, non-blocking
	ended    atomic.Bool
	end      int // eventfd: readable when the network is taken apart
	wake     int // eventfd: readable when a packet arrived that is due before all others

	lineFree int64 // when the line from the host is idle again; owned by the reader
	lossUp   *rand.Rand
	sendAt   int64 // of the last packet sent on
	sequence uint64

	mu       sync.Mutex
	coming   arrivals // guarded by mu
	sleeping int64    // until when the deliverer sleeps; guarded by mu

	downFree int64 // when the line to the host is idle again; owned by the deliverer
	lossDown *rand.Rand
	flying   []packet // on the line to the host, in order; owned by the deliverer

	stats stats
}

// stats count what passed a port.
type stats struct {
	sent, received, sentBytes, receivedBytes atomic.Int64 // packets as on the wire, bytes without framing
	full, lost, dropped                      atomic.Int64 // segments: no room in a queue, lost at random, cut
}

// Stats is what a host's cable has carried.
type Stats struct {
	Sent, Received           int64 // packets as they would be on a wire
	SentBytes, ReceivedBytes int64 // of IP
	Full, Lost, Dropped      int64 // lost in full queues, at random, by Drop, Cut or HalfOpen
}

// Stats reads the host's counters.
func (h *Host) Stats() Stats {
	s := &h.port.stats
	return Stats{Sent: s.sent.Load(), Received: s.received.Load(), SentBytes: s.sentBytes.Load(), ReceivedBytes: s.receivedBytes.Load(),
		Full: s.full.Load(), Lost: s.lost.Load(), Dropped: s.dropped.Load()}
}

var (
	buffers = sync.Pool{New: func() any { b := make([]byte, maxPacket); return &b }}
	epoch   = time.Now()
)

func now() int64 { return int64(time.Since(epoch)) }

func (p *port) init(seed uint64, index int) (err error) {
	p.up.Store(new(Line))
	p.down.Store(new(Line))
	p.lossUp, p.lossDown = rand.New(rand.NewPCG(seed, uint64(2*index))), rand.New(rand.NewPCG(seed, uint64(2*index+1)))
	if p.end, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(p.end)
		p.end = 0
	}
	return err
}

// stop makes the port's goroutines end.
func (p *port) stop() {
	p.ended.Store(true)
	if p.end > 0 {
		_, _ = unix.Write(p.end, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (p *port) close() {
	for _, fd := range []*int{&p.fd, &p.end, &p.wake} {
		if *fd > 0 {
			unix.Close(*fd)
			*fd = 0
		}
	}
}

// urgent gives the goroutine a thread of its own with a higher priority than the load that it carries, and
// with exact sleeps, so that delays stay accurate on a busy machine.
func urgent() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -19) // on Linux: this thread
}

// receive reads what the host sends and passes it to the destination's port.
func (h *Host) receive() {
	defer h.lab.wg.Done()
	urgent()
	for {
		buf := buffers.Get().(*[]byte)
		n := h.port.read(*buf)
		if n == 0 {
			return
		}
		if !h.forward(buf, n) {
			buffers.Put(buf)
		}
	}
}

// forward puts a packet on the line from the host; false: it is lost, or has no destination.
func (h *Host) forward(buf *[]byte, n int) bool {
	b := (*buf)[vnetHeader:n]
	if len(b) < 20 || b[0]>>4 != 4 || [3]byte(b[16:19]) != [3]byte{10, 99, 0} {
		return false // such as IPv6 neighbour discovery
	}
	to := int(b[19]) - 1
	if to < 0 || to >= len(h.lab.Hosts) || to == h.index {
		return false
	}
	p, line := &h.port, h.port.up.Load()
	packets, wire := onWire(*buf, n)
	p.stats.sent.Add(packets)
	p.stats.sentBytes.Add(wire)
	if line.Drop || h.lab.filter.drops(h.index, to, b) {
		p.stats.dropped.Add(1)
		return false
	}
	if lose(p.lossUp, line) {
		p.stats.lost.Add(1)
		return false
	}
	wire += packets * framing
	at, takes, ok := occupy(&p.lineFree, now(), 0, wire, line)
	if !ok {
		p.stats.full.Add(1)
		return false
	}
	// A packet never overtakes another, even when the line has just become shorter.
	p.sendAt = max(p.sendAt, at+int64(line.Delay))
	p.sequence++
	h.lab.Hosts[to].port.take(packet{at: p.sendAt, order: p.sequence<<8 | uint64(h.index), early: takes, wire: wire, buf: buf, n: n})
	return true
}

// onWire returns how many packets a segment stands for, and how many bytes of IP they have together.
func onWire(buf []byte, n int) (packets, bytes int64) {
	size := int64(n - vnetHeader)
	if buf[1] == 0 { // no segmentation
		return 1, size
	}
	header, segment := int64(binary.NativeEndian.Uint16(buf[2:])), int64(binary.NativeEndian.Uint16(buf[4:]))
	if segment == 0 || size <= header {
		return 1, size
	}
	packets = (size - header + segment - 1) / segment
	return packets, size + (packets-1)*header
}

// lose decides whether one packet is lost. It uses one random number for each, whatever the result.
func lose(r *rand.Rand, line *Line) bool { return line.Loss > 0 && r.Float64() < line.Loss }

// occupy puts wire bytes on a line that is busy until *free. Their last byte arrives at time at, their
// first one early before that: what arrives slowly is passed on as it arrives. It returns when the last
// byte is out, and how long the line was busy.
func occupy(free *int64, at, early, wire int64, line *Line) (out, takes int64, ok bool) {
	if line.Rate <= 0 {
		return at, early, true
	}
	if line.Queue > 0 && float64(*free-at)*line.Rate/8e9 > float64(line.Queue) {
		return 0, 0, false
	}
	takes = int64(float64(wire) * 8e9 / line.Rate)
	*free = max(*free, at-min(early, takes)) + takes
	return *free, takes, true
}

// take queues a packet for the time at which it reaches the switch.
func (p *port) take(k packet) {
	p.mu.Lock()
	heap.Push(&p.coming, k)
	sooner := k.at < p.sleeping
	p.mu.Unlock()
	if sooner {
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// deliver puts packets on the line to the host when they have reached the switch, and passes them to the
// host when they have reached it.
func (h *Host) deliver() {
	defer h.lab.wg.Done()
	urgent()
	p := &h.port
	for {
		t := now()
		h.arrive(t)
		for len(p.flying) > 0 && p.flying[0].at <= t {
			h.give(p.flying[0])
			p.flying[0].buf = nil
			p.flying = p.flying[1:]
		}
		if p.sleep() {
			return
		}
	}
}

// arrive moves what has reached the switch onto the line to the host.
func (h *Host) arrive(t int64) {
	p, line := &h.port, h.port.down.Load()
	for {
		p.mu.Lock()
		if len(p.coming) == 0 || p.coming[0].at > t {
			p.mu.Unlock()
			return
		}
		k := heap.Pop(&p.coming).(packet)
		p.mu.Unlock()
		switch {
		case line.Drop:
			p.stats.dropped.Add(1)
			buffers.Put(k.buf)
			continue
		case lose(p.lossDown, line):
			p.stats.lost.Add(1)
			buffers.Put(k.buf)
			continue
		}
		at, _, ok := occupy(&p.downFree, k.at, k.early, k.wire, line)
		if !ok {
			p.stats.full.Add(1)
			buffers.Put(k.buf)
			continue
		}
		k.at = at + int64(line.Delay)
		if n := len(p.flying); n > 0 {
			k.at = max(k.at, p.flying[n-1].at)
		}
		p.flying = append(p.flying, k)
	}
}

// give passes a packet to the host, whose interface may be down.
func (h *Host) give(k packet) {
	packets, bytes := onWire(*k.buf, k.n)
	if _, err := unix.Write(h.port.fd, (*k.buf)[:k.n]); err == nil {
		h.port.stats.received.Add(packets)
		h.port.stats.receivedBytes.Add(bytes)
	}
	buffers.Put(k.buf)
}

// sleep waits until the next packet is due; end reports that the network is being taken apart.
func (p *port) sleep() (end bool) {
	const never = int64(1<<63 - 1)
	p.mu.Lock()
	next := never
	if len(p.coming) > 0 {
		next = p.coming[0].at
	}
	if len(p.flying) > 0 {
		next = min(next, p.flying[0].at)
	}
	p.sleeping = next
	p.mu.Unlock()
	var timeout *unix.Timespec
	if next != never {
		d := next - now()
		if d <= 0 {
			return false
		}
		ts := unix.NsecToTimespec(d)
		timeout = &ts
	}
	fds := []unix.PollFd{{Fd: int32(p.wake), Events: unix.POLLIN}, {Fd: int32(p.end), Events: unix.POLLIN}}
	if _, err := unix.Ppoll(fds, timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return true
	}
	if fds[0].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(p.wake, b[:])
	}
	return fds[1].Revents != 0
}

// arrivals is a heap of packets on their way to one port, the next first.
type arrivals []packet

func (a arrivals) Len() int { return len(a) }
func (a arrivals) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a arrivals) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)   { *a = append(*a, x.(packet)) }
func (a *arrivals) Pop() any {
	old := *a
	k := old[len(old)-1]
	old[len(old)-1] = packet{}
	*a = old[:len(old)-1]
	return k
}
