package inproc

import (
	"fmt"
	"maps"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// eventsCap bounds the events that wait to be read.
const eventsCap = 256

// Defaults returns the attributes of a device that can do everything.
func Defaults() iwarp.DeviceAttr {
	return iwarp.DeviceAttr{
		Provider: "inproc",
		MaxPD:    1 << 16, MaxQP: 1 << 16, MaxQPWR: 1 << 15,
		MaxSGE: 16, MaxSGERead: 16, MaxInline: 4 << 10,
		MaxCQ: 1 << 16, MaxCQE: 1 << 22,
		MaxMR: 1 << 20, MaxMRSize: 1 << 40, MaxMW: 1 << 20,
		MaxSRQ: 1 << 16, MaxSRQWR: 1 << 15,
		MaxIRD: 128, MaxORD: 128,
		RDMARead: true, Atomics: true, Immediate: true,
		MemoryWindow: true, FastReg: true, LocalInv: true, SolicitedOnly: true,
		AnyBase: true, BoundMR: true, WCMarks: true, StartUp: true, ReadRight: true, EndReason: true,
		Guard: true, ReadStats: true,
	}
}

// device is one provider's instance on a network.
type device struct {
	n      *Network
	attr   iwarp.DeviceAttr      // set once in Open
	events chan iwarp.AsyncEvent // cap eventsCap

	closed     bool
	qps        map[*qp]struct{}
	cqs        map[*cq]struct{}
	listeners  map[*listener]struct{}
	stags      stagTable
	pds        int
	srqs       int
	mrs, mws   int
	bytes      int64 // registered
	nextQP     uint32
	eventsLost uint64
	terminates map[iwarp.TerminateKey]uint64
}

// Open returns a device with attributes a: limits, and what it can do. Start from [Defaults] and
// reduce what a test needs less of; Provider may be changed too.
func (n *Network) Open(a iwarp.DeviceAttr) iwarp.Device {
	return &device{
		n: n, attr: a,
		events:     make(chan iwarp.AsyncEvent, eventsCap),
		qps:        make(map[*qp]struct{}),
		cqs:        make(map[*cq]struct{}),
		listeners:  make(map[*listener]struct{}),
		stags:      newSTagTable(),
		terminates: make(map[iwarp.TerminateKey]uint64),
	}
}

func (d *device) Attr() iwarp.DeviceAttr { return d.attr }

func (d *device) Events() <-chan iwarp.AsyncEvent { return d.events }

// tell emits an event. It never waits.
func (d *device) tell(e iwarp.AsyncEvent) {
	if d.closed {
		return
	}
	select {
	case d.events <- e:
	default:
		d.eventsLost++
	}
}

// room fails when the device is closed or has reached its limit of something.
func (d *device) room(have, limit int, what string) error {
	if d.closed {
		return iwarp.ErrClosed
	}
	if have >= limit {
		return fmt.Errorf("%w: %d %s", iwarp.ErrLimit, limit, what)
	}
	return nil
}

func (d *device) AllocPD() (iwarp.PD, error) {
	d.n.lock()
	defer d.n.unlock()
	if err := d.room(d.pds, d.attr.MaxPD, "protection domains"); err != nil {
		return nil, err
	}
	d.pds++
	return &pd{dev: d}, nil
}

func (d *device) CreateCQ(depth int) (iwarp.CQ, error) {
	d.n.lock()
	defer d.n.unlock()
	if depth < 1 || depth > d.attr.MaxCQE {
		return nil, fmt.Errorf("%w: CQ depth %d: 1 to %d", iwarp.ErrInvalid, depth, d.attr.MaxCQE)
	}
	if err := d.room(len(d.cqs), d.attr.MaxCQ, "CQs"); err != nil {
		return nil, err
	}
	c := &cq{dev: d, depth: depth, events: make(chan struct{}, 1)}
	d.cqs[c] = struct{}{}
	return c, nil
}

func (d *device) Stats() iwarp.DeviceStats {
	d.n.lock()
	defer d.n.unlock()
	s := iwarp.DeviceStats{
		Terminates: maps.Clone(d.terminates), EventsLost: d.eventsLost,
		PDs: d.pds, QPs: len(d.qps), CQs: len(d.cqs), SRQs: d.srqs,
		MRs: d.mrs, MWs: d.mws, RegisteredBytes: d.bytes,
	}
	for l := range d.listeners {
		s.HalfOpen += len(l.pending)
	}
	return s
}

// Close ends the device with its listeners, connections, and everything else.
func (d *device) Close() error {
	d.n.lock()
	defer d.n.unlock()
	if d.closed {
		return nil
	}
	for l := range d.listeners {
		l.close()
	}
	for q := range d.qps {
		q.destroy()
	}
	for c := range d.cqs {
		c.close()
	}
	d.stags = newSTagTable()
	d.mrs, d.mws, d.bytes = 0, 0, 0
	d.closed = true
	close(d.events)
	return nil
}
