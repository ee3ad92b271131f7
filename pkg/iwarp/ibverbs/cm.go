//go:build ibverbs && cgo && linux

package ibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// cmEvent is an event of the connection manager about one id.
type cmEvent struct {
	kind     C.int
	errno    syscall.Errno // of a failure
	data     []byte
	ird, ord uint16 // what this side would hold, and may have outstanding
}

func (e cmEvent) String() string {
	return C.GoString(C.rdma_event_str(uint32(e.kind)))
}

// cmID is a connection in start-up, then the connection of a QP.
type cmID struct {
	dev    *device
	c      *C.struct_rdma_cm_id
	handle uintptr
	events chan cmEvent // during start-up; holds all that can come then

	mu   sync.Mutex // guards what follows
	live *qp        // receives the events from now on
}

const cmEventsCap = 8

func (d *device) newID() (*cmID, error) {
	id := &cmID{dev: d, events: make(chan cmEvent, cmEventsCap)}
	id.handle = newHandle(id)
	c, err := C.shim_create_id(d.cm, C.uintptr_t(id.handle))
	if c == nil {
		dropHandle(id.handle)
		return nil, fmt.Errorf("ibverbs: connection on %s: %w", d.name, why(err))
	}
	id.c = c
	return id, nil
}

// destroy ends the connection, if there is one. Its QP must be detached or destroyed before.
func (id *cmID) destroy() {
	dropHandle(id.handle)
	C.rdma_destroy_id(id.c)
}

// deliver passes on an event. Only the device's loop calls it.
func (id *cmID) deliver(e cmEvent) {
	id.mu.Lock()
	q := id.live
	if q == nil {
		select {
		case id.events <- e:
		default: // no device sends more; a waiter runs into its time-out
		}
	}
	id.mu.Unlock()
	if q != nil {
		q.connectionEvent(id, e)
	}
}

// goLive passes all further events to q.
func (id *cmID) goLive(q *qp) {
	id.mu.Lock()
	id.live = q
	id.mu.Unlock()
	for {
		select {
		case e := <-id.events:
			q.connectionEvent(id, e)
		default:
			return
		}
	}
}

// connectionEvent ends the stream on id, which may no longer be the QP's connection.
func (q *qp) connectionEvent(id *cmID, e cmEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.id != id {
		return
	}
	switch e.kind {
	case C.RDMA_CM_EVENT_DISCONNECTED:
		var err error
		if e.errno != 0 {
			err = fmt.Errorf("ibverbs: connection lost: %w", e.errno)
		}
		q.endLocked(iwarp.EventQPFatal, err)
	case C.RDMA_CM_EVENT_TIMEWAIT_EXIT, C.RDMA_CM_EVENT_ADDR_CHANGE, C.RDMA_CM_EVENT_ESTABLISHED:
	default:
		q.endLocked(iwarp.EventQPFatal, fmt.Errorf("ibverbs: %s", e))
	}
}

// wait returns the next event, which must be want.
func (id *cmID) wait(ctx context.Context, what string, want C.int) (cmEvent, error) {
	select {
	case e := <-id.events:
		switch {
		case e.kind == want && e.errno == 0:
			return e, nil
		case e.errno != 0:
			return e, fmt.Errorf("%s: %w", what, e.errno)
		}
		return e, fmt.Errorf("%s: %s", what, e)
	case <-ctx.Done():
		return cmEvent{}, fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}

// drainCM handles the events of the device's connections.
func (d *device) drainCM() {
	var ev C.struct_shim_event
	for C.shim_cm_event(d.cm, &ev) == 0 {
		e := cmEvent{
			kind: ev._type, errno: syscall.Errno(ev.status), ird: uint16(ev.ird), ord: uint16(ev.ord),
			data: C.GoBytes(unsafe.Pointer(&ev.data[0]), ev.len),
		}
		if ev._type == C.RDMA_CM_EVENT_CONNECT_REQUEST {
			id := &cmID{dev: d, c: ev.id, events: make(chan cmEvent, cmEventsCap)}
			id.handle = newHandle(id)
			C.shim_set_handle(id.c, C.uintptr_t(id.handle))
			if l := byHandle[*listener](uintptr(ev.handle)); l != nil {
				l.request(id, e)
			} else {
				id.destroy()
			}
			continue
		}
		if id := byHandle[*cmID](uintptr(ev.handle)); id != nil {
			id.deliver(e)
		}
	}
}

// addrs returns the two addresses of a connection.
func (id *cmID) addrs() (local, remote net.Addr) {
	var l, r C.struct_shim_addr
	C.shim_addrs(id.c, &l, &r)
	return goAddr(&l), goAddr(&r)
}

func goAddr(a *C.struct_shim_addr) *net.TCPAddr {
	ip := netip.AddrFrom4([4]byte(C.GoBytes(unsafe.Pointer(&a.ip[0]), 4)))
	if a.v6 != 0 {
		ip = netip.AddrFrom16([16]byte(C.GoBytes(unsafe.Pointer(&a.ip[0]), 16)))
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(a.port)))
}

// cAddr resolves a TCP address. It rejects loopback, which rdma_cm takes for every address of the
// machine.
func (d *device) cAddr(ctx context.Context, addr string) (*C.struct_shim_addr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, err
	}
	ip := netip.IPv4Unspecified()
	if host != "" {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		ip = ips[0].Unmap()
	}
	if ip.IsLoopback() {
		return nil, fmt.Errorf("%w: %s: an RDMA device has no loopback address; use one of its own (rdma link shows its network interface)", iwarp.ErrInvalid, addr)
	}
	a := &C.struct_shim_addr{port: C.uint16_t(n)}
	for i, b := range ip.AsSlice() {
		a.ip[i] = C.uint8_t(b)
	}
	if ip.Is6() {
		a.v6 = 1
		if zone := ip.Zone(); zone != "" {
			ifi, err := net.InterfaceByName(zone)
			if err != nil {
				return nil, err
			}
			a.scope = C.uint32_t(ifi.Index)
		}
	}
	return a, nil
}
