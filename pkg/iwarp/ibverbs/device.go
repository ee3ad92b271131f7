//go:build ibverbs && cgo && linux

package ibverbs

// #cgo LDFLAGS: -libverbs -lrdmacm
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Built reports whether this binary has the provider.
const Built = true

const (
	maxInline  = 4 << 10 // bytes; what the device cannot take inline goes through a bounce buffer
	maxPrivate = 251     // bytes; siw counts these and its own 4 in 8 bits
	eventsCap  = 256     // events that wait to be read
	vendorSIW  = 0x626d74
)

// device is an RNIC, or siw.
//
// Lock order: cq.mu (by handle, if two), qp.mu, then any other.
type device struct {
	// set once in Open
	name    string
	list    **C.struct_ibv_context // of librdmacm; holds ctx
	ctx     *C.struct_ibv_context
	attr    iwarp.DeviceAttr
	inline  int  // bytes that the device itself takes inline
	siw     bool // the driver is siw
	cm      *C.struct_rdma_event_channel
	comp    *C.struct_ibv_comp_channel
	pollers []*poller
	loops   sync.WaitGroup
	mrs     mrTable
	events  chan iwarp.AsyncEvent

	lost                     atomic.Uint64
	fpdusSent, fpdusReceived atomic.Uint64
	bytesSent, bytesReceived atomic.Uint64
	halfOpen                 atomic.Int64

	mu        sync.Mutex // guards what follows
	closed    bool
	pds       map[*pd]struct{}
	qps       map[*qp]struct{}
	cqs       map[*cq]struct{}
	listeners map[*listener]struct{}
}

// Open opens an iWARP device of this machine.
func Open(cfg Config) (iwarp.Device, error) {
	d := &device{
		events:    make(chan iwarp.AsyncEvent, eventsCap),
		mrs:       mrTable{m: make(map[iwarp.STag]*mr)},
		pds:       make(map[*pd]struct{}),
		qps:       make(map[*qp]struct{}),
		cqs:       make(map[*cq]struct{}),
		listeners: make(map[*listener]struct{}),
	}
	if err := d.open(cfg); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

func (d *device) open(cfg Config) error {
	if err := d.find(cfg); err != nil {
		return err
	}
	if err := d.query(); err != nil {
		return err
	}
	var err error
	if d.cm, err = C.rdma_create_event_channel(); d.cm == nil {
		return fmt.Errorf("ibverbs: connection manager's events: %w", why(err))
	}
	if d.comp, err = C.ibv_create_comp_channel(d.ctx); d.comp == nil {
		return fmt.Errorf("ibverbs: %s: completion channel: %w", d.name, why(err))
	}
	for _, w := range []struct {
		fd    C.int
		name  string
		drain func()
	}{
		{d.cm.fd, "rdma_cm", d.drainCM},
		{d.comp.fd, "completions", d.drainCompletions},
		{d.ctx.async_fd, "events", d.drainAsync},
	} {
		p, err := newPoller(int(w.fd), d.name+" "+w.name)
		if err != nil {
			return fmt.Errorf("ibverbs: %s: %w", d.name, err)
		}
		d.pollers = append(d.pollers, p)
		d.loops.Go(func() { p.loop(w.drain) })
	}
	return nil
}

// find looks up the device in librdmacm's own list, as connections come with the contexts of that
// list.
func (d *device) find(cfg Config) error {
	var n C.int
	list, err := C.rdma_get_devices(&n)
	if list == nil || n == 0 {
		if list != nil {
			C.rdma_free_devices(list)
		}
		if err == nil {
			err = syscall.ENODEV
		}
		return fmt.Errorf("ibverbs: no RDMA device here (%w); is the driver loaded, and may this user open /dev/infiniband?", err)
	}
	d.list = list
	var names []string
	found := make(map[string]*C.struct_ibv_context)
	for _, ctx := range unsafe.Slice(list, int(n)) {
		dev := C.GoString(C.ibv_get_device_name(ctx.device))
		switch {
		case ctx.device.transport_type == C.IBV_TRANSPORT_IWARP:
			names = append(names, dev)
			found[dev] = ctx
		case dev == cfg.Device:
			return fmt.Errorf("ibverbs: %s is no iWARP device", dev)
		}
	}
	if d.name, err = choose(names, cfg.Device, cfg.At, d.owner); err != nil {
		return err
	}
	d.ctx = found[d.name]
	return nil
}

// owner returns the device that has an address. The port does not matter: another process may
// listen on it.
func (d *device) owner(addr string) (string, error) {
	a, err := d.cAddr(context.Background(), addr)
	if err != nil {
		return "", err
	}
	a.port = 0
	ch, err := C.rdma_create_event_channel()
	if ch == nil {
		return "", fmt.Errorf("connection manager's events: %w", why(err))
	}
	defer C.rdma_destroy_event_channel(ch)
	var errno C.int
	ctx := C.shim_owner(ch, a, &errno)
	switch {
	case errno != 0:
		return "", syscall.Errno(errno)
	case ctx == nil: // a wildcard
		return "", errors.New("no address of one device")
	}
	return C.GoString(C.ibv_get_device_name(ctx.device)), nil
}

func (d *device) query() error {
	var a C.struct_ibv_device_attr
	if rc := C.ibv_query_device(d.ctx, &a); rc != 0 {
		return fmt.Errorf("ibverbs: query %s: %w", d.name, syscall.Errno(rc))
	}
	d.siw = a.vendor_id == vendorSIW
	d.attr = iwarp.DeviceAttr{
		Provider:      "ibverbs",
		MaxPD:         int(a.max_pd),
		MaxQP:         int(a.max_qp),
		MaxQPWR:       int(a.max_qp_wr) - 1, // the device's QP has one more: see makeLocked
		MaxSGE:        int(a.max_sge),
		MaxSGERead:    int(a.max_sge_rd),
		MaxInline:     maxInline,
		MaxCQ:         int(a.max_cq),
		MaxCQE:        int(a.max_cqe),
		MaxMR:         int(a.max_mr),
		MaxMRSize:     int64(min(uint64(a.max_mr_size), 1<<62)),
		MaxIRD:        int(a.max_qp_rd_atom),
		MaxORD:        int(a.max_qp_init_rd_atom),
		RDMARead:      a.max_qp_rd_atom > 0,
		PinsMR:        true,
		SolicitedOnly: !d.siw, // siw does not notify of solicited receives at all
		ReadRight:     !d.siw,
	}
	if d.attr.MaxORD == 0 { // siw leaves it out
		d.attr.MaxORD = d.attr.MaxIRD
	}
	d.inline = d.probeInline()
	return nil
}

// probeInline returns how much Inline data the device takes, which only creating a QP shows.
func (d *device) probeInline() int {
	pd := C.ibv_alloc_pd(d.ctx)
	if pd == nil {
		return 0
	}
	defer C.ibv_dealloc_pd(pd)
	cq := C.shim_create_cq(d.ctx, 2, 0, nil, 0)
	if cq == nil {
		return 0
	}
	defer C.ibv_destroy_cq(cq)
	for _, n := range []int{512, 256, 128, 80, 64, 48, 32} {
		if qp := C.shim_create_qp(pd, 0, cq, cq, 1, 1, 1, C.int(n)); qp != nil {
			C.ibv_destroy_qp(qp)
			return n
		}
	}
	return 0
}

func (d *device) Attr() iwarp.DeviceAttr { return d.attr }

func (d *device) Events() <-chan iwarp.AsyncEvent { return d.events }

func (d *device) emit(ev iwarp.AsyncEvent) {
	select {
	case d.events <- ev:
	default:
		d.lost.Add(1)
	}
}

// drainAsync handles the device's asynchronous events.
func (d *device) drainAsync() {
	var ev C.struct_shim_async
	for C.shim_async_event(d.ctx, &ev) != 0 {
		switch ev._type {
		case C.IBV_EVENT_QP_FATAL:
			asyncQP(&ev, iwarp.EventQPFatal)
		case C.IBV_EVENT_QP_REQ_ERR:
			asyncQP(&ev, iwarp.EventQPReqErr)
		case C.IBV_EVENT_QP_ACCESS_ERR:
			asyncQP(&ev, iwarp.EventQPAccess)
		case C.IBV_EVENT_CQ_ERR:
			if c := byHandle[*cq](uintptr(ev.handle)); c != nil {
				c.overflowed()
			}
		}
	}
}

func asyncQP(ev *C.struct_shim_async, kind iwarp.EventKind) {
	q := byHandle[*qp](uintptr(ev.handle))
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.num == uint32(ev.num) { // not the device's QP of an earlier connection
		q.endLocked(kind, fmt.Errorf("ibverbs: the device reports a %s", kind))
	}
}

func (d *device) Stats() iwarp.DeviceStats {
	s := iwarp.DeviceStats{
		FPDUsSent: d.fpdusSent.Load(), FPDUsReceived: d.fpdusReceived.Load(),
		BytesSent: d.bytesSent.Load(), BytesReceived: d.bytesReceived.Load(),
		EventsLost: d.lost.Load(),
		HalfOpen:   int(d.halfOpen.Load()),
		Terminates: make(map[iwarp.TerminateKey]uint64),
	}
	s.MRs, s.RegisteredBytes = d.mrs.usage()
	d.mu.Lock()
	defer d.mu.Unlock()
	s.PDs, s.QPs, s.CQs = len(d.pds), len(d.qps), len(d.cqs)
	return s
}

// Close ends every listener, connection, queue and region of the device, and
// returns when their goroutines have ended.
func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	listeners, qps := slices.Collect(maps.Keys(d.listeners)), slices.Collect(maps.Keys(d.qps))
	cqs, pds := slices.Collect(maps.Keys(d.cqs)), slices.Collect(maps.Keys(d.pds))
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
	for _, m := range d.mrs.all() {
		errs = append(errs, m.Dereg())
	}
	for _, p := range pds {
		errs = append(errs, p.Dealloc())
	}
	d.release()
	close(d.events)
	return errors.Join(errs...)
}

// release frees what Open acquired.
func (d *device) release() {
	for _, p := range d.pollers {
		p.close()
	}
	d.loops.Wait()
	if d.comp != nil {
		C.ibv_destroy_comp_channel(d.comp)
	}
	if d.cm != nil {
		C.rdma_destroy_event_channel(d.cm)
	}
	if d.list != nil {
		C.rdma_free_devices(d.list)
	}
}

var errRefused = errors.New("the driver refuses, and does not say why")

// why returns err, the errno of a failed call, or errRefused if the call has set none.
func why(err error) error {
	if err == nil {
		return errRefused
	}
	return err
}

// sysErr returns a call's errno as an error.
func sysErr(call string, errno C.int) error { return os.NewSyscallError(call, syscall.Errno(errno)) }
