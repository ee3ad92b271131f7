// Package fetch takes what a peer offers in windows, by RDMA Reads in pieces:
// several at a time, as many as the connection may have outstanding, and all
// windows of the connection in turn.
//
// A Puller belongs to one QP and has no lock of its own: its owner's guards it, and
// is held for every method and while Done is called.
package fetch

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Depth is how many Reads are worth asking for (ConnParam.ORD and IRD), and Piece
// is the length of one in bytes. Together they are what is on its way: 4 MiB, 80
// MB/s at 50 ms. Pieces are small so that a short job's messages do not stand behind
// a long one, and so that a slow network shows some progress.
const (
	Depth = 16
	Piece = 256 << 10
)

// Depths are what to ask a connection for, of a device with attributes a: none if
// it has no Reads (ConnParam.ORD and IRD).
func Depths(a iwarp.DeviceAttr) (ord, ird uint16) {
	if !a.RDMARead {
		return 0, 0
	}
	return uint16(max(0, min(Depth, a.MaxORD))), uint16(max(0, min(Depth, a.MaxIRD)))
}

// ErrStopped is what a Pull ends with after Stop.
var ErrStopped = errors.New("fetch: stopped")

// Pull is one window to be fetched, from its start on, into Sink. The owner sets
// what is exported before Start; Sink stays registered until Done was called.
type Pull struct {
	Sink iwarp.MR // with LocalWrite; filled from its first byte on
	STag iwarp.STag
	TO   uint64
	Len  uint64
	// Done is called once: when all is there, when the last Read after Stop is
	// over, or when the QP is gone. Then nothing writes into Sink any more.
	Done func(err error)

	posted  uint64 // bytes asked for
	out     int    // Reads under way
	stopped bool
	listed  bool // it is in Puller.turn
}

// Puller has the pulls of one QP.
type Puller struct {
	qp    iwarp.QP
	depth int
	tag   uint64 // of the work requests: a bit above all numbers
	last  uint64
	under map[uint64]*Pull // Reads under way, by work request
	turn  []*Pull          // with something left to ask for; the first is next
	quiet time.Duration    // see Tick
	moved bool             // a Read has ended since the last Tick
	over  error            // set by End
}

// New makes a Puller whose work requests have the bit tag in their ids. depth is
// ConnInfo.ORD: the Reads that may be outstanding, and never more than Depth.
func New(qp iwarp.QP, depth int, tag uint64) *Puller {
	return &Puller{qp: qp, depth: min(depth, Depth), tag: tag, under: make(map[uint64]*Pull)}
}

// Can reports whether the connection has RDMA Reads at all.
func (p *Puller) Can() bool { return p != nil && p.depth > 0 }

// Start begins x. An error, also of Completed, is a QP at its end: End follows.
func (p *Puller) Start(x *Pull) error {
	if x.Len == 0 || p.over != nil {
		x.Done(p.over)
		return nil
	}
	x.listed = true
	p.turn = append(p.turn, x)
	return p.post()
}

// Stop asks for no more of x, which ends when what is under way has come.
func (p *Puller) Stop(x *Pull) {
	if x.stopped || !x.listed && x.out == 0 {
		return
	}
	x.stopped = true
	if x.listed {
		x.listed = false
		for i, y := range p.turn {
			if y == x {
				p.turn = append(p.turn[:i], p.turn[i+1:]...)
				break
			}
		}
	}
	if x.out == 0 {
		x.Done(ErrStopped)
	}
}

// Completed takes the completion of a Read: one whose id has the tag.
func (p *Puller) Completed(wc *iwarp.WC) error {
	x := p.under[wc.ID]
	if x == nil || wc.Status != iwarp.StatusSuccess {
		return nil // the QP ends
	}
	delete(p.under, wc.ID)
	x.out--
	p.moved = true
	switch {
	case x.out > 0:
	case x.stopped:
		x.Done(ErrStopped)
	case x.posted == x.Len:
		x.Done(nil)
	}
	if p.over != nil {
		return nil
	}
	return p.post()
}

// post asks for pieces while there is room, of one pull after the other.
func (p *Puller) post() error {
	for len(p.under) < p.depth && len(p.turn) > 0 {
		x := p.turn[0]
		n := min(x.Len-x.posted, Piece)
		id := p.last + 1
		err := p.qp.PostSend(&iwarp.SendWR{
			ID: p.tag | id, Op: iwarp.OpRead, STag: x.STag, TO: x.TO + x.posted,
			SGL: []iwarp.SGE{{Addr: x.Sink.Base() + x.posted, Length: uint32(n), LKey: x.Sink.STag()}},
		})
		if err != nil {
			return fmt.Errorf("post a read: %w", err)
		}
		p.last = id
		p.under[p.tag|id] = x
		x.out++
		x.posted += n
		copy(p.turn, p.turn[1:])
		if last := len(p.turn) - 1; x.posted < x.Len {
			p.turn[last] = x
		} else {
			x.listed = false
			p.turn[last] = nil
			p.turn = p.turn[:last]
		}
	}
	return nil
}

// Tick is called once in every; it says for how long Reads have been under way
// with none of them answered. It counts calls rather than looking at the clock: who
// was stopped itself must not take that for the peer's silence.
func (p *Puller) Tick(every time.Duration) time.Duration {
	if p == nil {
		return 0
	}
	if len(p.under) == 0 || p.moved {
		p.quiet, p.moved = 0, false
	} else {
		p.quiet += every
	}
	return p.quiet
}

// End ends all pulls with err, once the QP is gone: nothing is placed any more.
func (p *Puller) End(err error) {
	if p == nil {
		return
	}
	all := make(map[*Pull]bool)
	for _, x := range p.under {
		all[x] = true
	}
	for _, x := range p.turn {
		all[x] = true
	}
	clear(p.under)
	p.turn, p.over = nil, err
	for x := range all {
		x.listed, x.out = false, 0
		x.Done(err)
	}
}
