package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// Start-up defaults.
const (
	defaultStep    = 10 * time.Second // Reply, first FPDU
	defaultRequest = 5 * time.Second
	defaultDecide  = 30 * time.Second
)

// depths returns what the device offers.
func (d *soft) depths() depths {
	return depths{ird: uint16(d.cfg.MaxIRD), ord: uint16(d.cfg.MaxORD)}
}

// link is the framing of a connection that is about to start.
type link struct {
	crc     bool
	sender  *rdmap.Sender
	marksIn bool       // markers in what this side receives
	marks   *mpa.Marks // position in what it sends; nil: no markers
	wish    int        // ConnParam.MaxULPDU
	strict  bool       // ConnParam.StrictSegments
}

func newLink(c net.Conn, p *ConnParam, t *terms) *link {
	l := &link{crc: t.crc, marksIn: t.in, wish: p.MaxULPDU, strict: p.StrictSegments, sender: rdmap.NewSender(chooseMULPDU(segmentSize(c), p.MaxULPDU, t.out))}
	if t.out {
		l.marks = new(mpa.Marks)
	}
	return l
}

// borrowBatch lends a batch for a message of start-up: a client that dials often would leave
// 80 KiB of garbage each time. returnBatch returns it.
func (l *link) borrowBatch() *mpa.Batch {
	b := batches.Get().(*mpa.Batch)
	b.Reset(l.crc)
	b.Mark(l.marks)
	return b
}

func returnBatch(b *mpa.Batch) {
	b.Reset(false)
	batches.Put(b)
}

// socketOf returns the TCP connection that c is or, with TLS, runs on. It returns nil if there is
// none.
func socketOf(c net.Conn) *net.TCPConn {
	for range 4 { // as deep as wrappers are stacked in practice
		switch below := c.(type) {
		case *net.TCPConn:
			return below
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// gatherSize is how much is gathered for one Write to a connection that is not a socket, in bytes:
// a few TLS records. Otherwise TLS would make a record of each piece.
const gatherSize = 64 << 10

var gathers = sync.Pool{New: func() any { b := make([]byte, 0, gatherSize); return &b }}

// writeGathered writes all of bufs to a connection that takes one buffer at a time.
func writeGathered(c net.Conn, bufs [][]byte) error {
	g := gathers.Get().(*[]byte)
	defer gathers.Put(g)
	b := (*g)[:0]
	for _, p := range bufs {
		for len(p) > 0 {
			n := min(len(p), gatherSize-len(b))
			b, p = append(b, p[:n]...), p[n:]
			if len(b) == gatherSize {
				if _, err := c.Write(b); err != nil {
					return err
				}
				b = b[:0]
			}
		}
	}
	if len(b) == 0 {
		return nil
	}
	_, err := c.Write(b)
	return err
}

// isAlert reports whether a peer answered with an unencrypted TLS alert (RFC 8446 §5.1), as it
// does if it took our Request for a broken handshake.
func isAlert(b []byte) bool { return len(b) >= 3 && b[0] == 21 && b[1] == 3 && b[2] <= 4 }

var errClosedEarly = errors.New("closed the connection during MPA start-up")

// frameReader collects one start-up frame from a connection.
type frameReader struct {
	buf [mpa.FrameSize + mpa.MaxPrivateData + 64]byte
	n   int
}

// read returns the frame, and the bytes after it that arrived with it. Both are valid as long as
// the reader.
func (fr *frameReader) read(c net.Conn, reply bool) (f mpa.Frame, rest []byte, err error) {
	for {
		n, err := c.Read(fr.buf[fr.n:])
		fr.n += n
		f, size, perr := mpa.ParseFrame(fr.buf[:fr.n], reply)
		switch {
		case reply && isAlert(fr.buf[:fr.n]):
			return f, nil, ErrPeerTLS
		case perr != nil:
			return f, nil, perr
		case size > 0:
			return f, fr.buf[size:fr.n], nil
		case errors.Is(err, io.EOF):
			return f, nil, errClosedEarly
		case err != nil:
			return f, nil, err
		}
	}
}

// bounded makes c's blocking calls end after step, or when ctx does. The returned function undoes
// that.
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

// infoOf returns what start-up tells the ULP. t is nil for a request that is not yet accepted or
// rejected.
func infoOf(peer *mpa.Frame, c net.Conn, t *terms) ConnInfo {
	info := ConnInfo{
		PrivateData: append([]byte(nil), peer.Private...),
		Rev:         int(peer.Rev),
		CRC:         peer.CRC,
		MarkersOut:  peer.Markers,
		Local:       c.LocalAddr(),
		Remote:      c.RemoteAddr(),
	}
	if who, ok := c.(interface{ PeerName() string }); ok {
		info.Peer = who.PeerName()
	}
	if e := peer.Enhanced; e != nil {
		info.PeerORD, info.PeerIRD, info.PeerToPeer = e.ORD, e.IRD, e.PeerToPeer
		info.RTR = rtrSet(e.RTR)
	}
	if t != nil {
		info.CRC, info.MarkersIn, info.MarkersOut = t.crc, t.in, t.out
		info.ORD, info.IRD, info.PeerToPeer, info.RTR = t.ord, t.ird, t.p2p, rtrSet(t.rtr)
	}
	return info
}
