//go:build ibverbs && cgo && linux

package ibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

const (
	defaultTimeout = 10 * time.Second      // of start-up
	settle         = 20 * time.Millisecond // what Dial waits if ConnParam.Settle is 0
)

// checkParam rejects what a program cannot choose here.
func checkParam(p *iwarp.ConnParam) error {
	switch {
	case p.Rev == 1:
		return fmt.Errorf("%w: MPA revision 1: the driver chooses", iwarp.ErrUnsupported)
	case p.RTR != 0:
		return fmt.Errorf("%w: a choice of the RTR message: the driver chooses", iwarp.ErrUnsupported)
	case p.Markers:
		return fmt.Errorf("%w: markers: the driver chooses", iwarp.ErrUnsupported)
	case p.MaxULPDU != 0:
		return fmt.Errorf("%w: a segment size of one's own", iwarp.ErrUnsupported)
	case p.Extensions:
		return fmt.Errorf("%w: RFC 7306", iwarp.ErrUnsupported)
	case len(p.PrivateData) > maxPrivate:
		return fmt.Errorf("%w: %d bytes of private data: at most %d", iwarp.ErrInvalid, len(p.PrivateData), maxPrivate)
	}
	return nil
}

// depth returns the ORD or IRD that follows from a wish: at most what the device can do and, if the
// peer's side of it is known, not more than that.
func depth(wish uint16, most, peer int) int {
	n := most
	if wish != iwarp.DepthAny {
		n = min(int(wish), most)
	}
	return min(n, peer, 255) // librdmacm counts in 8 bits
}

func startContext(ctx context.Context, p *iwarp.ConnParam) (context.Context, context.CancelFunc) {
	t := p.Timeout
	if t == 0 {
		t = defaultTimeout
	}
	return context.WithTimeout(ctx, t)
}

// dataPtr returns a pointer to b's data, valid for the duration of a call.
func dataPtr(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func (d *device) Dial(ctx context.Context, addr string, qi iwarp.QP, p *iwarp.ConnParam) (*iwarp.ConnInfo, error) {
	q, ok := qi.(*qp)
	if !ok || q.dev != d {
		return nil, fmt.Errorf("%w: the QP is of another device", iwarp.ErrInvalid)
	}
	if p == nil {
		p = new(iwarp.ConnParam)
	}
	if err := checkParam(p); err != nil {
		return nil, err
	}
	id, err := d.newID()
	if err != nil {
		return nil, err
	}
	if err := q.begin(id); err != nil {
		id.destroy()
		return nil, err
	}
	d.halfOpen.Add(1)
	defer d.halfOpen.Add(-1)
	info, err := d.dial(ctx, addr, q, id, p)
	if err != nil {
		err = fmt.Errorf("dial %s by %s: %w", addr, d.name, err)
		q.end(noEvent, err)
		<-q.Done() // closes the id too
		return nil, err
	}
	return info, nil
}

func (d *device) dial(ctx context.Context, addr string, q *qp, id *cmID, p *iwarp.ConnParam) (*iwarp.ConnInfo, error) {
	ctx, cancel := startContext(ctx, p)
	defer cancel()
	a, err := d.cAddr(ctx, addr)
	if err != nil {
		return nil, err
	}
	ms := C.int(defaultTimeout.Milliseconds())
	if errno := C.shim_resolve_addr(id.c, a, ms); errno != 0 {
		return nil, fmt.Errorf("resolve the address: %w", syscall.Errno(errno))
	}
	if _, err := id.wait(ctx, "resolve the address", C.RDMA_CM_EVENT_ADDR_RESOLVED); err != nil {
		return nil, err
	}
	if id.c.verbs != d.ctx {
		return nil, fmt.Errorf("the way there leads through %s", C.GoString(C.ibv_get_device_name(id.c.verbs.device)))
	}
	if errno := C.shim_resolve_route(id.c, ms); errno != 0 {
		return nil, fmt.Errorf("resolve the route: %w", syscall.Errno(errno))
	}
	if _, err := id.wait(ctx, "resolve the route", C.RDMA_CM_EVENT_ROUTE_RESOLVED); err != nil {
		return nil, err
	}
	ird, ord := depth(p.IRD, d.attr.MaxIRD, 255), depth(p.ORD, d.attr.MaxORD, 255)
	if err := q.attach(id, func() C.int {
		return C.shim_connect(id.c, dataPtr(p.PrivateData), C.int(len(p.PrivateData)), C.int(ird), C.int(ord))
	}); err != nil {
		return nil, err
	}
	e, err := id.wait(ctx, "connect", C.RDMA_CM_EVENT_ESTABLISHED)
	if e.kind == C.RDMA_CM_EVENT_REJECTED {
		return nil, rejected(e)
	}
	if err != nil {
		return nil, err
	}
	wait := p.Settle
	if wait == 0 {
		wait = settle
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := q.established(min(ord, int(e.ird))); err != nil {
		return nil, err
	}
	info := &iwarp.ConnInfo{
		PrivateData: e.data, PeerIRD: e.ird, PeerORD: e.ord,
		ORD: min(uint16(ord), e.ird), IRD: min(uint16(ird), e.ord),
	}
	info.Local, info.Remote = id.addrs()
	id.goLive(q)
	return info, nil
}

// rejected distinguishes the application's rejection from a host without a listener.
func rejected(e cmEvent) error {
	if len(e.data) == 0 && e.errno == syscall.ECONNREFUSED {
		return fmt.Errorf("connect: %w", e.errno)
	}
	return &iwarp.RejectedError{PrivateData: e.data, PeerORD: e.ord, PeerIRD: e.ird}
}

// attach gives the connection to the QP and makes the call that starts it.
func (q *qp) attach(id *cmID, call func() C.int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return q.cause
	}
	if errno := C.shim_attach(id.c, q.c); errno != 0 {
		return fmt.Errorf("prepare the QP: %w", syscall.Errno(errno))
	}
	if errno := call(); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// request is a peer that waits for a decision.
type request struct {
	l     *listener
	id    *cmID
	info  iwarp.ConnInfo
	timer *time.Timer // rejects if no decision is made
}

// decide returns true for the first of Accept, Reject and the timer.
func (r *request) decide() bool {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if _, ok := r.l.pending[r]; !ok {
		return false
	}
	delete(r.l.pending, r)
	r.timer.Stop()
	r.l.dev.halfOpen.Add(-1)
	return true
}

func (r *request) Info() iwarp.ConnInfo { return r.info }

var errDecided = errors.New("ibverbs: the connection request is answered already")

func (r *request) Accept(ctx context.Context, qi iwarp.QP, p *iwarp.ConnParam) error {
	d := r.l.dev
	q, ok := qi.(*qp)
	if !ok || q.dev != d {
		return fmt.Errorf("%w: the QP is of another device", iwarp.ErrInvalid)
	}
	if p == nil {
		p = new(iwarp.ConnParam)
	}
	if p.Private != nil { // the frames are the driver's, and it does not expose them
		made := *p
		made.PrivateData, made.Private = p.Private(r.info), nil
		p = &made
	}
	if err := checkParam(p); err != nil {
		return err
	}
	if !r.decide() {
		return errDecided
	}
	if err := q.begin(r.id); err != nil {
		r.id.destroy()
		return err
	}
	d.halfOpen.Add(1)
	defer d.halfOpen.Add(-1)
	if err := r.accept(ctx, q, p); err != nil {
		err = fmt.Errorf("accept %s by %s: %w", r.info.Remote, d.name, err)
		q.end(noEvent, err)
		<-q.Done()
		return err
	}
	return nil
}

func (r *request) accept(ctx context.Context, q *qp, p *iwarp.ConnParam) error {
	ctx, cancel := startContext(ctx, p)
	defer cancel()
	id, at := r.id, &q.dev.attr
	ird, ord := depth(p.IRD, at.MaxIRD, int(r.info.PeerORD)), depth(p.ORD, at.MaxORD, int(r.info.PeerIRD))
	err := q.attach(id, func() C.int {
		return C.shim_accept(id.c, dataPtr(p.PrivateData), C.int(len(p.PrivateData)), C.int(ird), C.int(ord))
	})
	if err != nil {
		return err
	}
	if _, err := id.wait(ctx, "accept", C.RDMA_CM_EVENT_ESTABLISHED); err != nil {
		return err
	}
	if err := q.established(ord); err != nil {
		return err
	}
	id.goLive(q)
	return nil
}

func (r *request) Reject(privateData []byte) error {
	if len(privateData) > maxPrivate {
		return fmt.Errorf("%w: %d bytes of private data: at most %d", iwarp.ErrInvalid, len(privateData), maxPrivate)
	}
	if !r.decide() {
		return errDecided
	}
	errno := C.shim_reject(r.id.c, dataPtr(privateData), C.int(len(privateData)))
	r.id.destroy()
	if errno != 0 {
		return sysErr("rdma_reject", errno)
	}
	return nil
}
