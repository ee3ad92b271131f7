package wireattacks

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// This file speaks MPA, DDP and RDMAP from scratch: nothing of ours keeps a frame from
// being wrong.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fpdu frames a ULPDU (RFC 5044 §4): length, ULPDU, padding, CRC.
func fpdu(ulpdu []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Control octets: DDP version 1 and RDMAP version 1.
const (
	ddpTagged = 0x80
	ddpLast   = 0x40
	ddpV1     = 0x01
	rdmapV1   = 0x40
)

// RDMAP's opcodes.
const (
	_ = iota // RDMA Write
	opReadRequest
	opReadResponse
	opSend
	opSendInv
	_
	_
	opTerminate
)

// tagged is a tagged segment (RFC 5041 §4.2), framed.
func tagged(ddp, rdmap byte, stag uint32, to uint64, payload []byte) []byte {
	b := []byte{ddp, rdmap}
	b = binary.BigEndian.AppendUint32(b, stag)
	b = binary.BigEndian.AppendUint64(b, to)
	return fpdu(append(b, payload...))
}

func write(stag uint32, to uint64, payload []byte) []byte {
	return tagged(ddpTagged|ddpLast|ddpV1, rdmapV1, stag, to, payload)
}

// header is an untagged segment's (RFC 5041 §4.3).
type header struct {
	ddp, rdmap  byte // 0: the last of a message, Send
	word        uint32
	qn, msn, mo uint32
}

func untagged(h header, payload []byte) []byte {
	if h.ddp == 0 {
		h.ddp = ddpLast | ddpV1
	}
	if h.rdmap == 0 {
		h.rdmap = rdmapV1 | opSend
	}
	b := []byte{h.ddp, h.rdmap}
	for _, x := range []uint32{h.word, h.qn, h.msn, h.mo} {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return fpdu(append(b, payload...))
}

// readRequest asks for n bytes at to of stag, for our memory 0x01020304.
func readRequest(msn, stag uint32, to uint64, n uint32) []byte {
	p := binary.BigEndian.AppendUint32(nil, 0x01020304)
	p = binary.BigEndian.AppendUint64(p, 0)
	p = binary.BigEndian.AppendUint32(p, n)
	p = binary.BigEndian.AppendUint32(p, stag)
	p = binary.BigEndian.AppendUint64(p, to)
	return untagged(header{rdmap: rdmapV1 | opReadRequest, qn: 1, msn: msn}, p)
}

// startup is an MPA start-up frame of revision 2, with a block that offers four Reads
// each way, and private data.
func startup(key string, flags, rev byte, private []byte) []byte {
	b := append([]byte(key), flags, rev)
	block := []byte{0, 4, 0, 4}
	if flags&0x10 == 0 {
		block = nil
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(block)+len(private)))
	return append(append(b, block...), private...)
}

const (
	requestKey = "MPA ID Req Frame"
	replyKey   = "MPA ID Rep Frame"
	plainFlags = 0x40 | 0x10 // CRC, enhanced
	rejected   = 0x20
)

func greeting() []byte {
	g := job.Greeting{Version: job.Version}
	return g.Append(nil)
}

// raw is a connection to a daemon, or from a manager.
type raw struct {
	t    *testing.T
	c    *net.TCPConn
	r    *bufio.Reader
	sink map[uint32][]byte // our memory by STag, which may be written
	resp []byte            // what came in Read Responses

	sends   uint32 // MSNs used so far
	want    uint16 // credits that it can hold; 0: any number
	welcome *job.Welcome
	ids     []unit.ToolchainID
	credits []job.Credit
}

// event is what came.
type event struct {
	msg  job.Message // a Send
	term [2]byte     // layer and type, code: a Terminate
	said bool        // there was one
	end  error       // the connection's
}

// connect opens a TCP connection from an address of this machine's.
func connect(t *testing.T, from, addr string) *raw {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return over(t, c.(*net.TCPConn))
}

func over(t *testing.T, c *net.TCPConn) *raw {
	_ = c.SetDeadline(time.Now().Add(patience))
	return &raw{t: t, c: c, r: bufio.NewReaderSize(c, 128<<10), sink: make(map[uint32][]byte)}
}

// put sends bytes; that the connection has ended shows elsewhere.
func (r *raw) put(b ...[]byte) {
	for _, b := range b {
		_, _ = r.c.Write(b)
	}
}

// reply reads the answer to a Request: its flags, and the private data.
func (r *raw) reply() (flags byte, private []byte, err error) {
	head := make([]byte, 20)
	if _, err := io.ReadFull(r.r, head); err != nil {
		return 0, nil, err
	}
	if string(head[:16]) != replyKey {
		return 0, nil, fmt.Errorf("a Reply that begins with %q", head[:16])
	}
	private = make([]byte, binary.BigEndian.Uint16(head[18:]))
	if _, err := io.ReadFull(r.r, private); err != nil {
		return 0, nil, err
	}
	if head[16]&0x10 != 0 {
		private = private[min(4, len(private)):]
	}
	return head[16], private, nil
}

// open makes the start-up as it should be.
func (r *raw) open() *raw {
	r.t.Helper()
	r.put(startup(requestKey, plainFlags, 2, greeting()))
	flags, private, err := r.reply()
	if err != nil || flags&rejected != 0 {
		r.t.Fatalf("start-up: flags %02x, %q, %v", flags, private, err)
	}
	return r
}

// hello introduces itself and waits for toolchains and a credit.
func (r *raw) hello(name string) *raw {
	r.t.Helper()
	r.send(&job.Hello{Name: name, Want: r.want}, 0)
	for r.welcome == nil || len(r.ids) < int(r.welcome.Toolchains) || len(r.credits) == 0 {
		if e := r.next(); e.end != nil || e.said {
			r.t.Fatalf("no Welcome: %+v", e)
		}
	}
	return r
}

// receive returns how long each receive of the daemon is, in bytes.
func (r *raw) receive() uint32 { return job.MaxMessage + r.welcome.Eager }

// send sends a message, with an invalidation if inv is not 0.
func (r *raw) send(m job.Message, inv uint32) { r.put(r.message(m, inv)) }

// message frames one.
func (r *raw) message(m job.Message, inv uint32) []byte {
	r.sends++
	h := header{msn: r.sends, word: inv}
	if inv != 0 {
		h.rdmap = rdmapV1 | opSendInv
	}
	return untagged(h, job.Append(nil, m))
}

// next takes what comes until there is something to tell of. Grants, toolchains and the
// like are acknowledged on the way.
func (r *raw) next() event {
	for {
		e, tell := r.frame()
		if tell {
			return e
		}
	}
}

func (r *raw) frame() (e event, tell bool) {
	var n [2]byte
	if _, err := io.ReadFull(r.r, n[:]); err != nil {
		return event{end: err}, true
	}
	u := make([]byte, binary.BigEndian.Uint16(n[:]))
	rest := make([]byte, (4-(len(u)+2)%4)%4+4)
	if _, err := io.ReadFull(r.r, u); err != nil {
		return event{end: err}, true
	}
	if _, err := io.ReadFull(r.r, rest); err != nil {
		return event{end: err}, true
	}
	if len(u) < 14 || u[0]&ddpTagged == 0 && len(u) < 18 {
		return event{end: fmt.Errorf("a ULPDU of %d bytes", len(u))}, true
	}
	if u[0]&ddpTagged != 0 {
		stag, to := binary.BigEndian.Uint32(u[2:]), binary.BigEndian.Uint64(u[6:])
		if u[1]&0xf == opReadResponse {
			r.resp = append(r.resp, u[14:]...)
			return event{}, u[0]&ddpLast != 0
		}
		mem, ok := r.sink[stag]
		if !ok || to+uint64(len(u)-14) > uint64(len(mem)) {
			return event{end: fmt.Errorf("a write of %d bytes to %08x at %d, which is not ours", len(u)-14, stag, to)}, true
		}
		copy(mem[to:], u[14:])
		return event{}, false
	}
	payload := u[18:]
	switch u[1] & 0xf {
	case opTerminate:
		return event{term: [2]byte{payload[0], payload[1]}, said: true}, true
	case opReadRequest:
		return event{}, false
	}
	m, err := job.Parse(payload)
	if err != nil {
		return event{end: err}, true
	}
	switch m := m.(type) {
	case *job.Welcome:
		r.welcome = m
	case *job.Compilers:
		r.send(&job.Ack{Of: job.KindCompilers, Seq: m.Seq}, 0)
	case *job.Toolchains:
		r.ids = append(r.ids[:m.First], m.IDs...)
		r.send(&job.Ack{Of: job.KindToolchains, Seq: m.Seq}, 0)
	case *job.Grant:
		r.credits = append(r.credits, m.Credits...)
		r.send(&job.Ack{Of: job.KindGrant, Seq: m.Seq}, 0)
	case *job.Recall:
		for range min(int(m.Count), len(r.credits)) {
			r.giveBack()
		}
		r.send(&job.Ack{Of: job.KindRecall, Seq: m.Seq}, 0)
		return event{}, false
	case *job.Heartbeat:
		r.send(&job.Ack{Of: job.KindHeartbeat, Seq: m.Seq}, 0)
		return event{}, false
	case *job.Result:
		if m.Next != nil {
			r.credits = append(r.credits, *m.Next)
		}
	}
	return event{msg: m}, true
}

// giveBack returns the first credit.
func (r *raw) giveBack() {
	k := r.credits[0]
	r.credits = r.credits[1:]
	r.send(&job.Return{Credit: k.ID}, k.Slot.STag)
}

// credit takes one, waiting for it.
func (r *raw) credit() job.Credit {
	r.t.Helper()
	for len(r.credits) == 0 {
		if e := r.next(); e.end != nil || e.said {
			r.t.Fatalf("no credit: %+v", e)
		}
	}
	k := r.credits[0]
	r.credits = r.credits[1:]
	return k
}

// until reads to the Terminate, or to the connection's end.
func (r *raw) until() event {
	for {
		if e := r.next(); e.said || e.end != nil {
			return e
		}
	}
}

// closed wants the connection to end; what was said before does not matter.
func (r *raw) closed() {
	r.t.Helper()
	_, err := io.Copy(io.Discard, r.r)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		r.t.Errorf("still connected after %v", patience)
	}
}

// place writes b into a slot, in pieces.
func (r *raw) place(w job.Window, b []byte) {
	for at := 0; at < len(b); at += 16 << 10 {
		r.put(write(w.STag, w.TO+uint64(at), b[at:min(len(b), at+16<<10)]))
	}
}

// sinkSTag names our memory.
const sinkSTag = 0x0a0b0c0d

// compile is a job of the text form, ready to be changed and sent.
func (r *raw) compile(k job.Credit, id uint64, text string) (m *job.Job, content []byte) {
	b := job.Body{Argv0: "cc", Language: "cpp-output", Name: "a.c", Cwd: "/nowhere",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}}}
	body := b.Append(nil)
	off := job.TextOffset(len(body))
	content = make([]byte, off, off+len(text))
	copy(content, body)
	content = append(content, text...)
	stag := sinkSTag + uint32(id)
	r.sink[stag] = make([]byte, 1<<20)
	return &job.Job{ID: id, Credit: k.ID, Toolchain: r.ids[0], BodyLen: uint32(len(body)), TextOff: uint32(off), TextLen: uint64(len(text)),
		Sink: job.Window{STag: stag, Len: 1 << 20}}, content
}

// answer waits for a job's Result.
func (r *raw) answer(id uint64) *job.Result {
	r.t.Helper()
	for {
		e := r.next()
		if e.end != nil || e.said {
			r.t.Fatalf("no result of job %d: %+v", id, e)
		}
		if m, ok := e.msg.(*job.Result); ok && m.ID == id {
			return m
		}
	}
}

// do compiles a text as an honest client does.
func (r *raw) do(id uint64, text string) (*job.Result, []byte) {
	r.t.Helper()
	k := r.credit()
	m, content := r.compile(k, id, text)
	r.place(k.Slot, content)
	r.send(m, k.Slot.STag)
	return r.answer(id), r.sink[m.Sink.STag]
}

// file is the content of a result's first file.
func file(res *job.Result, sink []byte) []byte {
	if len(res.Files) == 0 {
		return nil
	}
	f := res.Files[0]
	return sink[f.Off:][:f.Len]
}
