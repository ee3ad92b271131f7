package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/tcpaddr"
)

// soft is the software device: iWARP over net.Conn.
type soft struct {
	cfg Config
	mrs stagTable

	lendTime time.Duration // lendTime; tests change it before there are QPs

	fpdusSent, fpdusReceived atomic.Uint64
	bytesSent, bytesReceived atomic.Uint64
	crcErrors, eventsLost    atomic.Uint64
	nextQP                   atomic.Uint32
	refused                  refusals

	events   chan AsyncEvent // cap eventsCap
	evMu     sync.Mutex      // guards evClosed, and sending to events
	evClosed bool

	mu         sync.Mutex // guards what follows
	closed     bool
	pds, srqs  int
	qps        map[*qp]struct{}
	cqs        map[*cq]struct{}
	listeners  map[*listener]struct{}
	terminates map[TerminateKey]uint64
}

// Open returns a software device. Its connections are TCP unless c says otherwise.
func Open(c Config) (Device, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if c.Listen == nil {
		c.Listen = func(ctx context.Context, addr string) (net.Listener, error) {
			var lc net.ListenConfig
			lc.SetMultipathTCP(false) // segment size and congestion control belong to one path
			return lc.Listen(ctx, tcpaddr.Network(addr), addr)
		}
	}
	d := &soft{
		cfg:        c,
		lendTime:   lendTime,
		events:     make(chan AsyncEvent, eventsCap),
		qps:        make(map[*qp]struct{}),
		cqs:        make(map[*cq]struct{}),
		listeners:  make(map[*listener]struct{}),
		terminates: make(map[TerminateKey]uint64),
	}
	d.mrs.init()
	return d, nil
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (d *soft) Attr() DeviceAttr {
	c := &d.cfg
	return DeviceAttr{
		Provider:      "soft",
		MaxPD:         c.MaxPD,
		MaxQP:         c.MaxQP,
		MaxQPWR:       c.MaxQPWR,
		MaxSGE:        c.MaxSGE,
		MaxInline:     c.MaxInline,
		MaxCQ:         c.MaxCQ,
		MaxCQE:        c.MaxCQE,
		MaxMR:         c.MaxMR,
		MaxMRSize:     c.MaxMRSize,
		MaxMW:         c.MaxMW,
		MaxSRQ:        c.MaxSRQ,
		MaxSRQWR:      c.MaxSRQWR,
		MaxSGERead:    c.MaxSGE,
		MaxIRD:        c.MaxIRD,
		MaxORD:        c.MaxORD,
		RDMARead:      true,
		Atomics:       true,
		Immediate:     true,
		MemoryWindow:  true,
		FastReg:       true,
		LocalInv:      true,
		SolicitedOnly: true,
		AnyBase:       true,
		BoundMR:       true,
		StartUp:       true,
		WCMarks:       true,
		ReadRight:     true,
		EndReason:     true,
		Guard:         true,
		Source:        true,
		ReadStats:     true,
	}
}

func (d *soft) Events() <-chan AsyncEvent { return d.events }

func (d *soft) AllocPD() (PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if d.pds >= d.cfg.MaxPD {
		return nil, fmt.Errorf("%w: %d protection domains (MaxPD)", ErrLimit, d.cfg.MaxPD)
	}
	d.pds++
	return &pd{dev: d}, nil
}

func (d *soft) CreateCQ(depth int) (CQ, error) {
	if depth < 1 {
		return nil, fmt.Errorf("%w: CQ depth %d", ErrInvalid, depth)
	}
	if depth > d.cfg.MaxCQE {
		return nil, fmt.Errorf("%w: CQ depth %d: at most %d (MaxCQE)", ErrLimit, depth, d.cfg.MaxCQE)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if len(d.cqs) >= d.cfg.MaxCQ {
		return nil, fmt.Errorf("%w: %d CQs (MaxCQ)", ErrLimit, d.cfg.MaxCQ)
	}
	c := newCQ(d, depth)
	d.cqs[c] = struct{}{}
	return c, nil
}

// addQP registers q, or returns the limit that forbids it.
func (d *soft) addQP(q *qp) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if len(d.qps) >= d.cfg.MaxQP {
		return fmt.Errorf("%w: %d QPs (MaxQP)", ErrLimit, d.cfg.MaxQP)
	}
	d.qps[q] = struct{}{}
	return nil
}

func (d *soft) countTerminate(sent bool, layer, typ, code uint8) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A peer chooses the numbers: unknown ones share a key, so that the map stays small.
	k := TerminateKey{Sent: sent, Layer: layer, Type: typ, Code: code}
	if !sent && (layer > 2 || typ > 3 || code > 9) {
		k.Layer, k.Type, k.Code = layer&3, typ&3, 0xff
	}
	d.terminates[k]++
}

func (d *soft) Stats() DeviceStats {
	s := DeviceStats{
		FPDUsSent:     d.fpdusSent.Load(),
		FPDUsReceived: d.fpdusReceived.Load(),
		BytesSent:     d.bytesSent.Load(),
		BytesReceived: d.bytesReceived.Load(),
		CRCErrors:     d.crcErrors.Load(),
		EventsLost:    d.eventsLost.Load(),
		Terminates:    make(map[TerminateKey]uint64),
		Refused:       d.refused.load(),
	}
	s.MRs, s.MWs, s.RegisteredBytes = int(d.mrs.mrs.Load()), int(d.mrs.mws.Load()), d.mrs.bytes.Load()
	d.mu.Lock()
	listeners := keys(d.listeners)
	d.mu.Unlock()
	for _, l := range listeners {
		s.HalfOpen += l.halfOpen()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.PDs, s.QPs, s.CQs, s.SRQs = d.pds, len(d.qps), len(d.cqs), d.srqs
	for k, n := range d.terminates {
		s.Terminates[k] = n
	}
	return s
}

// Close ends every listener, connection and completion queue of the device, and returns when their
// goroutines have ended.
func (d *soft) Close() error {
	d.mu.Lock()
	d.closed = true
	listeners, qps, cqs := keys(d.listeners), keys(d.qps), keys(d.cqs)
	d.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	for _, q := range qps {
		q.Abort()
	}
	for _, q := range qps {
		errs = append(errs, q.Destroy())
	}
	for _, c := range cqs {
		errs = append(errs, c.Close())
	}
	d.mrs.close()
	d.closeEvents()
	d.mu.Lock()
	d.pds, d.srqs = 0, 0 // the remaining ones go with the device
	d.mu.Unlock()
	return errors.Join(errs...)
}

func keys[K comparable, V any](m map[K]V) []K {
	s := make([]K, 0, len(m))
	for k := range m {
		s = append(s, k)
	}
	return s
}
