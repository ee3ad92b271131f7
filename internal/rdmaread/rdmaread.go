// Package rdmaread fetches what a peer offers in windows, by RDMA Reads in pieces: several at a time, as many
// as the connection may have outstanding, and all windows of the connection in turn.
//
// A Puller belongs to one QP and has no lock of its own: its owner's lock guards it, and is held for every
// method and while Done is called.
package rdmaread

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Depth is the number of Reads worth asking for (ConnParam.ORD and IRD), and Piece is the length of one in
// bytes. Together they are the data in flight: 4 MiB, which is 80 MB/s at 50 ms. Pieces are small so that a
// short job's messages do not queue behind a long one, and so that a slow network shows some progress.
const (
	Depth = 16
	Piece = 256 << 10
)

// Depths returns what to ask a connection for, on a device with attributes a: none if it has no Reads
// (ConnParam.ORD and IRD).
func Depths(a iwarp.DeviceAttr) (ord, ird uint16) {
	if !a.RDMARead {
		return 0, 0
	}
	return uint16(max(0, min(Depth, a.MaxORD))), uint16(max(0, min(Depth, a.MaxIRD)))
}

// ErrStopped is the error with which a Pull ends after Stop.
var ErrStopped = errors.New("fetch: stopped")

// Pull is one window to be fetched, from its start, into Sink. The owner sets the exported fields before
// Start; Sink must stay registered until Done has been called.
type Pull struct {
	Sink iwarp.MR // with LocalWrite; filled from its first byte on
	STag iwarp.STag
	TO   uint64
	Len  uint64
	// Piece is the length of one Read in bytes, if the peer answers none as long as the constant; 0: that.
	Piece uint64
	// Next, if not nil, begins when all of this one has been requested: it is read behind it. Start must not be
	// called for it.
	Next *Pull
	// Done is called once: when everything has arrived, when the last Read after Stop has ended, or when
	// the QP is gone. Nothing writes into Sink after that.
	Done func(err error)

	posted  uint64 // bytes requested
	out     int    // Reads under way
	stopped bool
	listed  bool // it is in Puller.turn
}

// Puller holds the pulls of one QP.
type Puller struct {
	qp    iwarp.QP
	depth int
	tag   uint64 // of the work requests: a bit above all numbers
	last  uint64
	under map[uint64]*Pull // pulls with Reads under way, by work request
	turn  []*Pull          // pulls with more to request; the first is next
	quiet time.Duration    // see Tick
	moved bool             // a Read has ended since the last Tick
	over  error            // set by End
}

// New returns a Puller whose work requests have the bit tag in their ids. depth is ConnInfo.ORD: the Reads
// that may be outstanding, which is never more than Depth.
func New(qp iwarp.QP, depth int, tag uint64) *Puller {
	return &Puller{qp: qp, depth: min(depth, Depth), tag: tag, under: make(map[uint64]*Pull)}
}

// Can reports whether the connection has RDMA Reads at all.
func (p *Puller) Can() bool { return p != nil && p.depth > 0 }

// Start begins x. An error, from Completed too, means that the QP has ended: End must follow.
func (p *Puller) Start(x *Pull) error {
	if x.Len == 0 || p.over != nil {
		x.Done(p.over)
		if x.Next != nil {
			return p.Start(x.Next)
		}
		return nil
	}
	x.listed = true
	p.turn = append(p.turn, x)
	return p.post()
}

// Stop requests no more of x, which ends when what is under way has arrived.
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

// Completed handles the completion of a Read: one whose id has the tag.
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

// post requests pieces while there is room, from one pull after the other.
func (p *Puller) post() error {
	for len(p.under) < p.depth && len(p.turn) > 0 {
		x := p.turn[0]
		n := min(x.Len-x.posted, cmp.Or(x.Piece, Piece))
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
			if x.Next != nil {
				x.Next.listed = true
				p.turn = append(p.turn, x.Next)
			}
		}
	}
	return nil
}

// Tick is called once in every. It returns for how long Reads have been under way without any of them being
// answered. It counts calls instead of reading the clock: a process that was itself suspended must not take
// that for the peer's silence.
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
		for ; x != nil; x = x.Next {
			if y := x.Next; y != nil && all[y] {
				x.Next = nil // it ends by itself
			}
			x.listed, x.out = false, 0
			x.Done(err)
		}
	}
}
