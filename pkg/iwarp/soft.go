package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of the software device that are not settings.
const (
	maxQPWR   = 1 << 15 // bounds the memory of one QP's rings
	maxSGE    = 16
	maxInline = 4 << 10 // bytes
	maxCQE    = 1 << 22
	maxMRSize = 1 << 40 // bytes
	eventsCap = 256     // events that wait to be read
)

// soft is the software device: iWARP over net.Conn.
type soft struct {
	cfg Config
	mrs mrTable

	fpdusSent, fpdusReceived atomic.Uint64
	bytesSent, bytesReceived atomic.Uint64
	crcErrors                atomic.Uint64
	nextQP                   atomic.Uint32

	events chan AsyncEvent // cap eventsCap

	mu         sync.Mutex // guards what follows
	closed     bool
	qps        map[*qp]struct{}
	cqs        map[*cq]struct{}
	listeners  map[*listener]struct{}
	terminates map[TerminateKey]uint64
}

// Open makes a software device. Its connections are TCP unless c says otherwise.
func Open(c Config) (Device, error) {
	if c.MaxQP < 0 || c.MaxCQ < 0 || c.MaxMR < 0 || c.StallTimeout < 0 || c.LingerTimeout < 0 {
		return nil, fmt.Errorf("%w: negative limit in Config", ErrInvalid)
	}
	orDefault(&c.MaxQP, 1<<16)
	orDefault(&c.MaxCQ, 1<<16)
	orDefault(&c.MaxMR, 1<<20)
	orDefault(&c.StallTimeout, 60*time.Second)
	orDefault(&c.LingerTimeout, 2*time.Second)
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if c.Listen == nil {
		c.Listen = func(ctx context.Context, addr string) (net.Listener, error) {
			var lc net.ListenConfig
			lc.SetMultipathTCP(false) // segment size and congestion control are one path's
			return lc.Listen(ctx, "tcp", addr)
		}
	}
	return &soft{
		cfg:        c,
		events:     make(chan AsyncEvent, eventsCap),
		mrs:        newMRTable(),
		qps:        make(map[*qp]struct{}),
		cqs:        make(map[*cq]struct{}),
		listeners:  make(map[*listener]struct{}),
		terminates: make(map[TerminateKey]uint64),
	}, nil
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (d *soft) Attr() DeviceAttr {
	return DeviceAttr{
		Provider:  "soft",
		MaxQP:     d.cfg.MaxQP,
		MaxQPWR:   maxQPWR,
		MaxSGE:    maxSGE,
		MaxInline: maxInline,
		MaxCQ:     d.cfg.MaxCQ,
		MaxCQE:    maxCQE,
		MaxMR:     d.cfg.MaxMR,
		MaxMRSize: maxMRSize,
		LocalInv:  true,
		AnyBase:   true,
		BoundMR:   true,
		StartUp:   true,
		WCMarks:   true,
		EndReason: true,
	}
}

func (d *soft) Events() <-chan AsyncEvent { return d.events }

func (d *soft) AllocPD() (PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	return &pd{dev: d}, nil
}

func (d *soft) CreateCQ(depth int) (CQ, error) {
	if depth < 1 || depth > maxCQE {
		return nil, fmt.Errorf("%w: CQ depth %d: 1 to %d", ErrInvalid, depth, maxCQE)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if len(d.cqs) >= d.cfg.MaxCQ {
		return nil, fmt.Errorf("%w: %d CQs", ErrLimit, d.cfg.MaxCQ)
	}
	c := newCQ(d, depth)
	d.cqs[c] = struct{}{}
	return c, nil
}

// addQP registers q, or says why not.
func (d *soft) addQP(q *qp) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if len(d.qps) >= d.cfg.MaxQP {
		return fmt.Errorf("%w: %d QPs", ErrLimit, d.cfg.MaxQP)
	}
	d.qps[q] = struct{}{}
	return nil
}

func (d *soft) countTerminate(sent bool, layer, typ, code uint8) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A peer chooses the numbers: unknown ones share a key, so that the map stays
	// small.
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
		Terminates:    make(map[TerminateKey]uint64),
	}
	s.MRs, s.RegisteredBytes = d.mrs.usage()
	d.mu.Lock()
	defer d.mu.Unlock()
	s.QPs = len(d.qps)
	for k, n := range d.terminates {
		s.Terminates[k] = n
	}
	return s
}

// Close ends every listener, connection and completion queue of the device, and
// returns when their goroutines have ended.
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
	d.mrs.deregAll()
	return errors.Join(errs...)
}

func keys[K comparable](m map[K]struct{}) []K {
	s := make([]K, 0, len(m))
	for k := range m {
		s = append(s, k)
	}
	return s
}
