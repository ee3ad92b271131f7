package privatetree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// Caller and tree talk over a SOCK_SEQPACKET pair in packets of a fixed size, as both are the same program.
// Strings are in a memfd that both hold (the block), as an argument list may be larger than a packet. Only
// one request is under way at a time, so the block has one owner at a time.

// Request operations.
const (
	opStart uint32 = 1 + iota
	opKill
	opStartPair // the first two programs at the same time
)

// request goes to the tree. A start comes with three descriptors, or four if the last one is the program.
type request struct {
	op     uint32
	nice   int32
	seq    uint64 // of the run; a kill that comes too late does not match
	block  uint64 // bytes in the block
	limits sandbox.Limits
}

const requestSize = 64

func (r *request) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, requestSize)
	b = le.AppendUint32(b, r.op)
	b = le.AppendUint32(b, uint32(r.nice))
	b = le.AppendUint64(b, r.seq)
	b = le.AppendUint64(b, r.block)
	l := &r.limits
	for _, v := range [...]uint64{uint64(l.File), uint64(l.Memory), uint64(l.JobMemory), uint64(l.Processes), uint64(l.CPU)} {
		b = le.AppendUint64(b, v)
	}
	return b
}

func (r *request) decode(b []byte) error {
	if len(b) != requestSize {
		return fmt.Errorf("request of %d bytes", len(b))
	}
	le := binary.LittleEndian
	r.op, r.nice = le.Uint32(b), int32(le.Uint32(b[4:]))
	r.seq, r.block = le.Uint64(b[8:]), le.Uint64(b[16:])
	r.limits = sandbox.Limits{
		File: int64(le.Uint64(b[24:])), Memory: int64(le.Uint64(b[32:])), JobMemory: int64(le.Uint64(b[40:])),
		Processes: int(le.Uint64(b[48:])), CPU: time.Duration(le.Uint64(b[56:])),
	}
	return nil
}

// reply comes from the tree: one when it is ready, with the root's descriptor, or could not be made; then
// one for each start.
type reply struct {
	seq        uint64
	errno      uint32 // why nothing ran; 0: it ran
	right      bool   // the failure is a matter of rights
	unanswered bool   // ErrUnanswered
	killed     bool
	apart      bool // Outcome.Apart
	exit       int32
	signal     int32
	cpu        int64  // nanoseconds
	maxRSS     uint64 // bytes
	excess     sandbox.Excess
	measures   sandbox.Set // of the tree, when it is ready
	text       string      // what failed, or what the host lacks
}

const (
	replySize = 44
	maxText   = 8 << 10 // bytes, far below what a socket takes at once
)

func (r *reply) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, replySize+len(r.text))
	b = le.AppendUint64(b, r.seq)
	b = le.AppendUint32(b, r.errno)
	b = append(b, bit(r.right)|bit(r.unanswered)<<1, bit(r.killed), byte(r.excess), bit(r.apart))
	b = le.AppendUint32(b, uint32(r.exit))
	b = le.AppendUint32(b, uint32(r.signal))
	b = le.AppendUint64(b, uint64(r.cpu))
	b = le.AppendUint64(b, r.maxRSS)
	b = le.AppendUint32(b, uint32(r.measures))
	return append(b, r.text[:min(len(r.text), maxText)]...)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (r *reply) decode(b []byte) error {
	if len(b) < replySize {
		return fmt.Errorf("reply of %d bytes", len(b))
	}
	le := binary.LittleEndian
	r.seq, r.errno = le.Uint64(b), le.Uint32(b[8:])
	r.right, r.unanswered, r.killed, r.apart = b[12]&1 != 0, b[12]&2 != 0, b[13] != 0, b[15] != 0
	r.exit, r.signal = int32(le.Uint32(b[16:])), int32(le.Uint32(b[20:]))
	r.cpu, r.maxRSS = int64(le.Uint64(b[24:])), le.Uint64(b[32:])
	r.excess, r.measures = sandbox.Excess(b[14]), sandbox.Set(le.Uint32(b[40:]))
	r.text = string(b[replySize:])
	return nil
}

// readBlock reads the first n bytes of the block.
func readBlock(fd int, n uint64) (string, error) {
	b := make([]byte, n)
	for off := 0; off < len(b); {
		k, err := unix.Pread(fd, b[off:], int64(off))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return "", err
		case k == 0:
			return "", io.ErrUnexpectedEOF
		default:
			off += k
		}
	}
	return string(b), nil
}

// writeBlock writes b to the block's start.
func writeBlock(fd int, b []byte) error {
	for off := 0; off < len(b); {
		k, err := unix.Pwrite(fd, b[off:], int64(off))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		off += max(k, 0)
	}
	return nil
}

// receive takes one packet and its descriptors, which are close-on-exec. No packet and no error means that the other
// side has ended.
func receive(fd int, buf, oob []byte, flags int) (n int, fds []int, err error) {
	n, k, _, _, err := unix.Recvmsg(fd, buf, oob, flags|unix.MSG_CMSG_CLOEXEC)
	if err != nil || k == 0 {
		return max(n, 0), nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:k])
	if err != nil {
		return 0, nil, err
	}
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // not descriptors
		}
		fds = append(fds, got...)
	}
	return n, fds, nil
}
