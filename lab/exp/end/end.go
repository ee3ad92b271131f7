// Package end is one side of a connection as experiments need it: a QP with its receives posted, a window for the
// peer, and a policy by which its CQs wait.
package end

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Options are the sizes of an end.
type Options struct {
	Sends, Recvs int           // requests that each queue holds; 0: 64
	RecvLen      int           // bytes of each receive; at least Control
	Window       int           // bytes that the peer may write and read; 0: none
	Memory       *Memory       // in place of Window: memory that is registered already, and outlives the end
	Receives     *Memory       // memory of the receives that is registered already, with Memory; nil: each end has its own
	Wait         iwarp.Waiting // of both CQs; the zero value is the default of the product
	Conn         iwarp.ConnParam
}

// Control is the length of the message in which each side names its window, in bytes.
const Control = 16

// End is one side. It is used by one goroutine at a time.
type End struct {
	Dev      iwarp.Device
	PD       iwarp.PD
	QP       iwarp.QP
	SCQ, RCQ iwarp.CQ
	Window   []byte // of ours, which the peer uses
	MR       iwarp.MR
	Peer     iwarp.STag // the peer's window
	PeerTO   uint64
	PeerLen  int
	Info     iwarp.ConnInfo

	o       Options
	own     bool // PD and MR are this end's
	recvBuf []byte
	recv    iwarp.MR
	pending int // requests whose completion has not been polled
	wcs     []iwarp.WC
	arrived []iwarp.WC // receives that have been polled and not been returned
	lent    int        // receive that the caller looks at; -1: none
}

// New returns an end whose receives are posted.
func New(dev iwarp.Device, o Options) (e *End, err error) {
	if o.Sends == 0 {
		o.Sends = 64
	}
	if o.Recvs == 0 {
		o.Recvs = 64
	}
	o.RecvLen = max(o.RecvLen, Control)
	e = &End{Dev: dev, o: o, wcs: make([]iwarp.WC, 64), lent: -1}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	if m := o.Memory; m != nil {
		e.PD, e.MR, e.Window = m.PD, m.MR, m.Buf
	} else {
		e.own = true
		if e.PD, err = dev.AllocPD(); err != nil {
			return e, err
		}
	}
	if e.SCQ, err = dev.CreateCQ(o.Sends); err != nil {
		return e, err
	}
	if e.RCQ, err = dev.CreateCQ(o.Recvs); err != nil {
		return e, err
	}
	for _, cq := range []iwarp.CQ{e.SCQ, e.RCQ} {
		if err = cq.SetWaiting(o.Wait); err != nil {
			return e, err
		}
	}
	if o.Receives != nil {
		e.recv, e.recvBuf = o.Receives.MR, o.Receives.Buf
	} else {
		e.recvBuf = make([]byte, o.Recvs*o.RecvLen)
		if e.recv, err = e.PD.RegMR(e.recvBuf, iwarp.LocalWrite, nil); err != nil {
			return e, err
		}
	}
	if e.own && o.Window > 0 {
		e.Window = Filled(o.Window)
		if e.MR, err = e.PD.RegMR(e.Window, Rights, nil); err != nil {
			return e, err
		}
	}
	if e.QP, err = e.PD.CreateQP(iwarp.QPInitAttr{SendCQ: e.SCQ, RecvCQ: e.RCQ, MaxSend: o.Sends, MaxRecv: o.Recvs}); err != nil {
		return e, err
	}
	for i := range o.Recvs {
		if err = e.repost(i); err != nil {
			return e, err
		}
	}
	return e, nil
}

// repost posts the i-th receive.
func (e *End) repost(i int) error {
	n := uint64(e.o.RecvLen)
	return e.QP.PostRecv(&iwarp.RecvWR{ID: uint64(i), SGL: []iwarp.SGE{{Addr: e.recv.Base() + uint64(i)*n, Length: uint32(n), LKey: e.recv.STag()}}})
}

// Dial connects to addr with private data, and learns of the peer's window.
func (e *End) Dial(ctx context.Context, addr string, private []byte) error {
	p := e.o.Conn
	p.PrivateData = private
	info, err := e.Dev.Dial(ctx, addr, e.QP, &p)
	if err != nil {
		return err
	}
	e.Info = *info
	return e.introduce(ctx)
}

// Accept answers a request, and learns of the peer's window.
func (e *End) Accept(ctx context.Context, req iwarp.ConnRequest) error {
	if err := req.Accept(ctx, e.QP, &e.o.Conn); err != nil {
		return err
	}
	return e.introduce(ctx)
}

// introduce exchanges windows.
func (e *End) introduce(ctx context.Context) error {
	var m [Control]byte
	if e.MR != nil {
		binary.BigEndian.PutUint32(m[:], uint32(e.MR.STag()))
		binary.BigEndian.PutUint32(m[4:], uint32(len(e.Window)))
		binary.BigEndian.PutUint64(m[8:], e.MR.Base())
	}
	if err := e.Send(ctx, m[:]); err != nil {
		return err
	}
	b, err := e.Receive(ctx)
	if err != nil {
		return err
	}
	if len(b) < Control {
		return errors.New("the peer's first message is too short")
	}
	e.Peer = iwarp.STag(binary.BigEndian.Uint32(b))
	e.PeerLen = int(binary.BigEndian.Uint32(b[4:]))
	e.PeerTO = binary.BigEndian.Uint64(b[8:])
	return nil
}

// Close ends the connection and frees everything.
func (e *End) Close() {
	if e.QP != nil {
		_ = e.QP.Destroy()
	}
	if e.recv != nil && e.o.Receives == nil {
		_ = e.recv.Dereg()
	}
	if e.own && e.MR != nil {
		_ = e.MR.Dereg()
	}
	for _, cq := range []iwarp.CQ{e.SCQ, e.RCQ} {
		if cq != nil {
			_ = cq.Close()
		}
	}
	if e.own && e.PD != nil {
		_ = e.PD.Dealloc()
	}
}

// Memory is registered memory in a protection domain that several ends share.
type Memory struct {
	PD  iwarp.PD
	MR  iwarp.MR
	Buf []byte
}

// Rights are those of memory that a peer may write and read.
const Rights = iwarp.LocalWrite | iwarp.RemoteWrite | iwarp.RemoteRead

// Hang ends the connection in order, so that the peer gets what was sent.
func (e *End) Hang() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = e.QP.Disconnect(ctx)
}

// Post posts a request as soon as there is room.
func (e *End) Post(ctx context.Context, wr *iwarp.SendWR) error {
	for e.pending >= e.o.Sends {
		if err := e.reap(ctx); err != nil {
			return err
		}
	}
	if err := e.QP.PostSend(wr); err != nil {
		return err
	}
	e.pending++
	return nil
}

// Reap waits until at most n requests have not completed.
func (e *End) Reap(ctx context.Context, n int) error {
	for e.pending > n {
		if err := e.reap(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reap waits for at least one completion.
func (e *End) reap(ctx context.Context) error {
	n, err := Next(ctx, e.SCQ, e.wcs)
	if err != nil {
		return err
	}
	for i := range n {
		if s := e.wcs[i].Status; s != iwarp.StatusSuccess {
			return e.failure(s)
		}
	}
	e.pending -= n
	return nil
}

// failure explains a completion that is none.
func (e *End) failure(s iwarp.Status) error {
	if s == iwarp.StatusWRFlushErr {
		<-e.QP.Done()
		if err := e.QP.Err(); err != nil {
			return err
		}
		return ErrEnded
	}
	return fmt.Errorf("completion with status %v", s)
}

// ErrEnded means that the peer has ended the connection in order.
var ErrEnded = errors.New("the peer has ended the connection")

// Send sends a short message by value.
func (e *End) Send(ctx context.Context, m []byte) error {
	return e.Post(ctx, &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: m})
}

// Receive waits for a message. It is valid until the next call.
func (e *End) Receive(ctx context.Context) ([]byte, error) {
	if e.lent >= 0 {
		i := e.lent
		e.lent = -1
		if err := e.repost(i); err != nil {
			return nil, err
		}
	}
	if len(e.arrived) == 0 {
		n, err := Next(ctx, e.RCQ, e.wcs)
		if err != nil {
			return nil, err
		}
		e.arrived = append(e.arrived[:0], e.wcs[:n]...)
	}
	wc := e.arrived[0]
	e.arrived = e.arrived[1:]
	if wc.Status != iwarp.StatusSuccess {
		return nil, e.failure(wc.Status)
	}
	e.lent = int(wc.ID)
	return e.recvBuf[e.lent*e.o.RecvLen:][:wc.ByteLen], nil
}

// Part returns n bytes of our window from off on, as a request names them.
func (e *End) Part(off, n int) []iwarp.SGE {
	return []iwarp.SGE{{Addr: e.MR.Base() + uint64(off), Length: uint32(n), LKey: e.MR.STag()}}
}

// Write posts a Write of n bytes of our window to the same place in the peer's.
func (e *End) Write(ctx context.Context, off, n int, flags iwarp.SendFlags) error {
	return e.Post(ctx, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: flags, SGL: e.Part(off, n), STag: e.Peer, TO: e.PeerTO + uint64(off)})
}

// Read posts a Read of n bytes of the peer's window to the same place in ours.
func (e *End) Read(ctx context.Context, off, n int) error {
	return e.Post(ctx, &iwarp.SendWR{Op: iwarp.OpRead, SGL: e.Part(off, n), STag: e.Peer, TO: e.PeerTO + uint64(off)})
}

// SendPart posts a Send of n bytes of our window.
func (e *End) SendPart(ctx context.Context, off, n int) error {
	return e.Post(ctx, &iwarp.SendWR{Op: iwarp.OpSend, SGL: e.Part(off, n)})
}

// Filled returns n bytes whose pages are there and not zero.
func Filled(n int) []byte {
	b := make([]byte, n)
	for i := range min(n, 4096) {
		b[i] = byte(i>>8 ^ i)
	}
	for done := 4096; done < n; done *= 2 {
		copy(b[done:], b[:done])
	}
	return b
}
