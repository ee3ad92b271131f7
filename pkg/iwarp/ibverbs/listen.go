//go:build ibverbs && cgo && linux

package ibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

const (
	defaultDecide  = 30 * time.Second
	defaultPending = 256
)

// listener accepts connection requests from the device's loop.
type listener struct {
	dev    *device
	c      *C.struct_rdma_cm_id
	handle uintptr
	o      iwarp.ListenOptions
	addr   net.Addr
	queue  chan *request
	done   chan struct{}

	mu      sync.Mutex // guards what follows
	closed  bool
	pending map[*request]struct{}
}

func (d *device) Listen(ctx context.Context, addr string, o *iwarp.ListenOptions) (iwarp.Listener, error) {
	l := &listener{dev: d, done: make(chan struct{}), pending: make(map[*request]struct{})}
	if o != nil {
		l.o = *o
	}
	if l.o.Listener != nil {
		return nil, fmt.Errorf("%w: a listening socket from elsewhere: the driver has its own", iwarp.ErrUnsupported)
	}
	if l.o.DecideTimeout == 0 {
		l.o.DecideTimeout = defaultDecide
	}
	orDefault(&l.o.MaxPending, defaultPending)
	l.queue = make(chan *request, l.o.MaxPending)
	a, err := d.cAddr(ctx, addr)
	if err != nil {
		return nil, err
	}
	l.handle = newHandle(l)
	var cerr error
	if l.c, cerr = C.shim_create_id(d.cm, C.uintptr_t(l.handle)); l.c == nil {
		dropHandle(l.handle)
		return nil, fmt.Errorf("ibverbs: listen on %s: %w", addr, why(cerr))
	}
	errno := C.shim_listen(l.c, a, C.int(l.o.MaxPending))
	if errno == 0 && l.c.verbs != nil && l.c.verbs != d.ctx {
		err = fmt.Errorf("%w: %s belongs to %s", iwarp.ErrInvalid, addr, C.GoString(C.ibv_get_device_name(l.c.verbs.device)))
	} else if errno != 0 {
		err = fmt.Errorf("ibverbs: listen on %s: %w", addr, syscall.Errno(errno))
	}
	d.mu.Lock()
	if d.closed && err == nil {
		err = iwarp.ErrClosed
	}
	if err == nil {
		d.listeners[l] = struct{}{}
	}
	d.mu.Unlock()
	if err != nil {
		dropHandle(l.handle)
		C.rdma_destroy_id(l.c)
		return nil, err
	}
	var local, remote C.struct_shim_addr
	C.shim_addrs(l.c, &local, &remote)
	l.addr = goAddr(&local)
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// request takes a new connection from the device's loop.
func (l *listener) request(id *cmID, e cmEvent) {
	r := &request{l: l, id: id}
	r.info = iwarp.ConnInfo{PrivateData: e.data, PeerORD: e.ird, PeerIRD: e.ord}
	r.info.Local, r.info.Remote = id.addrs()
	ok := id.c.verbs == l.dev.ctx // a wildcard address listens on all devices
	if ok && l.o.Admit != nil {
		ok = l.o.Admit(r.info.Remote) == nil
	}
	l.mu.Lock()
	if ok = ok && !l.closed && len(l.pending) < l.o.MaxPending; ok {
		l.pending[r] = struct{}{}
		r.timer = time.AfterFunc(l.o.DecideTimeout, func() { _ = r.Reject(nil) }) // fails if it was answered before
		l.queue <- r                                                              // has room for all that are pending
		l.dev.halfOpen.Add(1)
	}
	l.mu.Unlock()
	if !ok {
		C.shim_reject(id.c, nil, 0)
		id.destroy()
	}
}

func (l *listener) Accept(ctx context.Context) (iwarp.ConnRequest, error) {
	select {
	case r := <-l.queue:
		return r, nil
	case <-l.done:
		return nil, iwarp.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close rejects the peers that wait for a decision.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	var all []*request
	for r := range l.pending {
		all = append(all, r)
	}
	l.mu.Unlock()
	close(l.done)
	for _, r := range all {
		_ = r.Reject(nil) // it may have been answered meanwhile
	}
	dropHandle(l.handle)
	C.rdma_destroy_id(l.c)
	l.dev.mu.Lock()
	delete(l.dev.listeners, l)
	l.dev.mu.Unlock()
	return nil
}
