package iwarp

import (
	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// targetULPDU is the longest ULPDU that we choose by ourselves where the path would allow more:
// payloads of 32 KiB gave the highest throughput on loopback, and eight such FPDUs fill the
// receiver's scratch. Experiment E11 (lab/experiments.md) compares sizes.
const targetULPDU = 32<<10 + ddp.UntaggedSize

const (
	// alignBelow is the size of a TCP segment, in bytes, below which FPDUs are aligned to
	// segments. Loopback's segments are longer, and need no alignment: a kernel or hardware
	// peer is reached over Ethernet.
	alignBelow = 16 << 10
	// lookEvery is the number of bytes after which the size of TCP's segments is queried again.
	// Each batch counts as at least lookBatch, so that short messages get there too. The query
	// is a system call of 0.2 us.
	lookEvery = 4 << 20
	lookBatch = 16 << 10
)

// chooseMULPDU returns the size of the ULPDUs on a path whose TCP segments carry emss bytes, 0
// where that is not known. wish is ConnParam.MaxULPDU.
func chooseMULPDU(emss, wish int, markers bool) int {
	limit := mpa.MaxULPDU
	if emss > 0 {
		limit = mpa.MULPDU(emss, markers)
	}
	if wish == 0 {
		wish = targetULPDU
	}
	return max(min(wish, limit), mpa.MinMULPDU)
}

// path holds what the sending side knows of the TCP segments towards the peer.
//
// On a path with short segments no FPDU spans two of them. A receiver that handles TCP segments
// one by one can then place each one (RFC 5044 §5.1), and the Linux siw driver needs it: it
// takes a CRC whose four octets came in two segments for a wrong one. FPDUs that fill a segment
// exactly are written many at a time, and TCP cuts where they end, unless the window or the
// socket is full: from there to the next flag it cuts elsewhere. After any other FPDU a flag
// ends TCP's segment. In strict mode there is a flag after each, which leaves nothing to
// segmentation offload: on loopback with an MTU of 1500 a GB took 10 to 20 times the CPU.
type path struct {
	wish    int  // ConnParam.MaxULPDU
	strict  bool // ConnParam.StrictSegments
	emss    int  // bytes, when last queried; 0 = not known
	segment int  // emss, if FPDUs are aligned to it
	unseen  int  // bytes sent since emss was queried
	done    int  // bytes of the aligned batch that TCP has taken
	cut     int  // first of its cuts that may lie beyond done
	err     error

	look   func(fd uintptr)
	writer func(fd uintptr) bool
}

// initPath prepares what a socket needs; t.raw is set.
func (t *txState) initPath() {
	p := &t.path
	p.look = func(fd uintptr) { p.emss = socketSegment(int(fd)) }
	p.writer = func(fd uintptr) bool {
		var again bool
		again, p.err = t.writeSegments(int(fd))
		t.rest = t.rest[t.n:]
		return !again
	}
	t.lookAtPath()
}

// followPath notes that a batch of n bytes is written, and checks the path now and then: "MULPDU
// ... may change" with it (after RFC 5044 §4.5). What is cut already stays as it is.
func (t *txState) followPath(n int) {
	p := &t.path
	if p.look == nil {
		return
	}
	if p.unseen += n + lookBatch; p.unseen >= lookEvery {
		t.lookAtPath()
	}
}

func (t *txState) lookAtPath() {
	p := &t.path
	p.unseen = 0
	before := p.emss
	if err := t.raw.Control(p.look); err != nil || p.emss == before && before > 0 {
		return // closed, as the next write will find; or unchanged
	}
	t.setPath(p.emss)
}

// setPath fits the FPDUs to segments of emss bytes. No batch may be half built.
func (t *txState) setPath(emss int) {
	p := &t.path
	p.emss, p.segment = emss, 0
	markers := t.marks != nil
	mulpdu := chooseMULPDU(emss, p.wish, markers)
	if emss >= mpa.MinMULPDU && emss < alignBelow {
		p.segment = emss
	}
	// Without markers an FPDU can fill the segment; a few bytes are lost to rounding where the
	// segment's size is not a multiple of 4.
	t.sender.SetMULPDU(mulpdu, p.segment > 0 && !markers && mulpdu == mpa.MULPDU(emss, false))
}

// writeSegments writes what is left of an aligned batch, each run up to a cut by itself, as far as
// TCP takes it without blocking: t.n bytes. again reports that it takes more later.
func (t *txState) writeSegments(fd int) (again bool, err error) {
	p := &t.path
	t.n = 0
	for len(t.rest) > t.n {
		run := t.rest[t.n:]
		cuts := t.batch.Cuts()
		for p.cut < len(cuts) && cuts[p.cut] <= p.done {
			p.cut++
		}
		if p.cut < len(cuts) {
			run = run[:cuts[p.cut]-p.done]
		}
		n, again, err := sendSegment(fd, run)
		t.n += n
		p.done += n
		if again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// writeAligned writes rest, the end of an aligned batch, and blocks until TCP has it.
func (t *txState) writeAligned(rest []byte) error {
	t.rest = rest
	if err := t.raw.Write(t.path.writer); err != nil {
		return err
	}
	return t.path.err
}
