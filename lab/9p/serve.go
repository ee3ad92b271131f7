package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/lab/9p/export"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Bounds of the server.
const (
	requests    = 32              // under way for one client: as many as Linux has by default (its mount options rq and sq)
	replies     = 8               // on their way to one client
	maxClients  = 16              // connections at a time, with buffers of 2.5 MiB each
	goodbyeTime = 2 * time.Second // for what is on its way when the server ends
)

// server lets clients of a device read a tree.
type server struct {
	dev   iwarp.Device
	tree  *export.Tree
	allow []netip.Prefix // beside loopback
	log   *log.Logger
}

// listen listens on addr, for those peers that are allowed to connect.
func (s *server) listen(ctx context.Context, addr string) (iwarp.Listener, error) {
	return s.dev.Listen(ctx, addr, &iwarp.ListenOptions{Admit: s.admit})
}

// admit refuses a peer that is neither on this machine nor in a network that was named: the protocol has no login.
func (s *server) admit(remote net.Addr) error {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return nil // of a device without a network
	}
	ip := tcp.AddrPort().Addr().Unmap()
	if ip.IsLoopback() || slices.ContainsFunc(s.allow, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	return fmt.Errorf("%v is not in a network of --allow", ip)
}

// serve serves clients until ctx ends or the listener fails, and returns when the last of them is gone.
func (s *server) serve(ctx context.Context, l iwarp.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxClients)
	for {
		r, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		peer := r.Info().Remote
		select {
		case places <- struct{}{}:
		default:
			s.log.Printf("%v: refused: there are %d clients", peer, maxClients)
			_ = r.Reject([]byte("too many clients")) // it is gone either way
			continue
		}
		wg.Go(func() {
			defer func() { <-places }()
			if err := s.client(ctx, r); err != nil {
				s.log.Printf("%v: %v", peer, err)
			}
		})
	}
}

// conn is one client's connection. Requests arrive in the receives' buffers and are answered one after the other; answers leave
// from buffers of their own.
type conn struct {
	session  *export.Session
	pd       iwarp.PD
	scq, rcq iwarp.CQ
	qp       iwarp.QP
	in, out  iwarp.MR
	inBuf    []byte
	outBuf   []byte
	free     []int // places in outBuf
}

// client serves one client until it hangs up.
func (s *server) client(ctx context.Context, r iwarp.ConnRequest) error {
	c := &conn{session: export.NewSession(s.tree)}
	defer c.close()
	if err := c.open(s.dev); err != nil {
		_ = r.Reject(nil) // the error tells why
		return err
	}
	if err := r.Accept(ctx, c.qp, &iwarp.ConnParam{}); err != nil {
		return err
	}
	s.log.Printf("%v: connected", r.Info().Remote)
	err := c.serve(ctx)
	if end := ctx.Err(); end != nil && errors.Is(err, end) {
		err = nil
		ctx, cancel := context.WithTimeout(context.Background(), goodbyeTime)
		defer cancel()
		_ = c.qp.Disconnect(ctx) // it is aborted when the time is up
	}
	if err == nil {
		s.log.Printf("%v: closed", r.Info().Remote)
	}
	return err
}

// open makes what the connection needs. Receives are posted before it exists: a message that finds none ends it.
func (c *conn) open(dev iwarp.Device) (err error) {
	if c.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if c.scq, err = dev.CreateCQ(replies); err != nil {
		return err
	}
	if c.rcq, err = dev.CreateCQ(requests); err != nil {
		return err
	}
	c.inBuf, c.outBuf = make([]byte, requests*export.MaxMsize), make([]byte, replies*export.MaxMsize)
	if c.in, err = c.pd.RegMR(c.inBuf, iwarp.LocalWrite, nil); err != nil {
		return err
	}
	if c.out, err = c.pd.RegMR(c.outBuf, 0, nil); err != nil {
		return err
	}
	if c.qp, err = c.pd.CreateQP(iwarp.QPInitAttr{SendCQ: c.scq, RecvCQ: c.rcq, MaxSend: replies, MaxRecv: requests}); err != nil {
		return err
	}
	for i := range replies {
		c.free = append(c.free, i)
	}
	for i := range requests {
		if err := c.receive(i); err != nil {
			return err
		}
	}
	return nil
}

// close ends the connection and releases everything.
func (c *conn) close() {
	c.session.Close()
	if c.qp != nil {
		_ = c.qp.Destroy() // nothing can go wrong that matters now, here and below
	}
	for _, mr := range []iwarp.MR{c.in, c.out} {
		if mr != nil {
			_ = mr.Dereg()
		}
	}
	for _, cq := range []iwarp.CQ{c.scq, c.rcq} {
		if cq != nil {
			_ = cq.Close()
		}
	}
	if c.pd != nil {
		_ = c.pd.Dealloc()
	}
}

// receive posts the receive with number i.
func (c *conn) receive(i int) error {
	at := uint64(i * export.MaxMsize)
	return c.qp.PostRecv(&iwarp.RecvWR{ID: uint64(i), SGL: []iwarp.SGE{{Addr: c.in.Base() + at, Length: export.MaxMsize, LKey: c.in.STag()}}})
}

// serve answers requests until the stream ends. It returns nil if the client has hung up in order.
func (c *conn) serve(ctx context.Context) error {
	wcs := make([]iwarp.WC, requests)
	for {
		if err := c.rcq.Wait(ctx); err != nil {
			return err
		}
		for _, wc := range wcs[:c.rcq.Poll(wcs)] {
			if wc.Status != iwarp.StatusSuccess {
				<-c.qp.Done()
				return c.qp.Err()
			}
			if err := c.handle(ctx, &wc); err != nil {
				return err
			}
		}
	}
}

// handle answers the request that has arrived with wc.
func (c *conn) handle(ctx context.Context, wc *iwarp.WC) error {
	if err := c.await(ctx); err != nil {
		return err
	}
	out := c.free[len(c.free)-1]
	in := int(wc.ID)
	request := c.inBuf[in*export.MaxMsize:][:wc.ByteLen]
	reply, err := c.session.Handle(request, c.outBuf[out*export.MaxMsize:][:export.MaxMsize])
	if err != nil {
		c.qp.Abort()
		return err
	}
	// The client may send its next request as soon as it has the answer, so there must be a receive before that.
	err = c.receive(in)
	if err == nil {
		c.free = c.free[:len(c.free)-1]
		err = c.qp.PostSend(&iwarp.SendWR{ID: uint64(out), Op: iwarp.OpSend, SGL: []iwarp.SGE{
			{Addr: c.out.Base() + uint64(out*export.MaxMsize), Length: uint32(len(reply)), LKey: c.out.STag()},
		}})
	}
	if errors.Is(err, iwarp.ErrState) {
		<-c.qp.Done() // the client has hung up, in the middle of this
		return c.qp.Err()
	}
	return err
}

// await waits for a free buffer for an answer.
func (c *conn) await(ctx context.Context) error {
	wcs := make([]iwarp.WC, replies)
	for {
		for _, wc := range wcs[:c.scq.Poll(wcs)] {
			if wc.Status != iwarp.StatusSuccess {
				<-c.qp.Done()
				return c.qp.Err()
			}
			c.free = append(c.free, int(wc.ID))
		}
		if len(c.free) > 0 {
			return nil
		}
		if err := c.scq.Wait(ctx); err != nil {
			return err
		}
	}
}
