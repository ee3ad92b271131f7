package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// Start-up defaults.
const (
	defaultStep    = 10 * time.Second // Reply, first FPDU
	defaultRequest = 5 * time.Second
	defaultDecide  = 30 * time.Second
)

// Depths that this device offers: it has no RDMA Read yet to hold or to issue.
const (
	deviceIRD = 0
	deviceORD = 0
)

// targetULPDU is the longest ULPDU we choose by ourselves where the path would
// take more: 32 KiB of payload moved most on loopback, and four such FPDUs fill
// the receiver's scratch.
const targetULPDU = 32<<10 + ddp.UntaggedSize

// chooseMULPDU is the size of the segments towards the peer of c. wish is
// ConnParam.MaxULPDU.
func chooseMULPDU(c net.Conn, wish int) int {
	limit := mpa.MaxULPDU
	if emss := segmentSize(c); emss > 0 {
		limit = mpa.MULPDU(emss, false)
	}
	if wish == 0 {
		wish = targetULPDU
	}
	return max(min(wish, limit), mpa.MinMULPDU)
}

func newSender(c net.Conn, wish int) *rdmap.Sender {
	return rdmap.NewSender(chooseMULPDU(c, wish))
}

// frameReader collects one start-up frame from a connection.
type frameReader struct {
	buf [mpa.FrameSize + mpa.MaxPrivateData + 64]byte
	n   int
}

// read returns the frame, and the bytes after it that came along. They are valid
// as long as the reader.
func (fr *frameReader) read(c net.Conn, reply bool) (f mpa.Frame, rest []byte, err error) {
	for {
		n, err := c.Read(fr.buf[fr.n:])
		fr.n += n
		f, size, perr := mpa.ParseFrame(fr.buf[:fr.n], reply)
		switch {
		case perr != nil:
			return f, nil, perr
		case size > 0:
			return f, fr.buf[size:fr.n], nil
		case errors.Is(err, io.EOF):
			return f, nil, errors.New("closed the connection during MPA start-up")
		case err != nil:
			return f, nil, err
		}
	}
}

// bounded makes c's blocking calls end after step, or when ctx does. The returned
// function undoes that.
func bounded(ctx context.Context, c net.Conn, step time.Duration) (undo func()) {
	_ = c.SetDeadline(time.Now().Add(step)) // fails with the connection, as the next call will
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	return func() {
		if stop() {
			_ = c.SetDeadline(time.Time{})
		}
	}
}

// private checks that the ULP's private data fits into a frame.
func private(p *ConnParam, enhanced bool) error {
	room := mpa.MaxPrivateData
	if enhanced {
		room -= mpa.EnhancedSize
	}
	if len(p.PrivateData) > room {
		return fmt.Errorf("%w: %d bytes of private data: at most %d", ErrInvalid, len(p.PrivateData), room)
	}
	return nil
}

// answerEnhanced is the responder's side of the IRD/ORD and RTR negotiation (RFC
// 6581 §9.1, 9.2) for the request r and the wishes p.
func answerEnhanced(r *mpa.Enhanced, p *ConnParam) *mpa.Enhanced {
	a := &mpa.Enhanced{PeerToPeer: r.PeerToPeer}
	// Our ORD must not exceed the initiator's IRD; our IRD is what it asks for, as
	// far as we have it.
	a.ORD = min(p.ORD, deviceORD, r.IRD)
	if r.IRD == mpa.DepthAny {
		a.ORD = mpa.DepthAny
	}
	a.IRD = min(max(p.IRD, r.ORD), deviceIRD)
	if r.ORD == mpa.DepthAny {
		a.IRD = mpa.DepthAny
	}
	if !r.PeerToPeer {
		return a
	}
	// Exactly one form, out of those offered: RNIC drivers take a second bit for a
	// mismatch. A Read is not ours to answer yet.
	a.RTR = mpa.RTRWrite
	if r.RTR&mpa.RTRWrite == 0 && r.RTR&mpa.RTRSend != 0 {
		a.RTR = mpa.RTRSend
	}
	return a
}

// infoOf is what start-up tells the ULP.
func infoOf(peer *mpa.Frame, c net.Conn, crc bool) ConnInfo {
	info := ConnInfo{
		PrivateData: append([]byte(nil), peer.Private...),
		Rev:         int(peer.Rev),
		CRC:         crc,
		Local:       c.LocalAddr(),
		Remote:      c.RemoteAddr(),
	}
	if e := peer.Enhanced; e != nil {
		info.PeerORD, info.PeerIRD, info.PeerToPeer = e.ORD, e.IRD, e.PeerToPeer
	}
	return info
}
