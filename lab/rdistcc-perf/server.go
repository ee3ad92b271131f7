package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/tcpaddr"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// serve answers clients of one test until ctx ends, or one client with --once. It serves several
// connections of one client at a time; an error of a client ends only its connection.
func serve(ctx context.Context, o *options, log io.Writer) error {
	if o.t.tcp {
		return serveAllTCP(ctx, o, log)
	}
	open := openProving
	if o.perftest {
		open = func(ctx context.Context, role identity.Role) (iwarp.Device, *psk.Key, error) {
			dev, err := openDevice(ctx, role)
			return dev, nil, err
		}
	}
	dev, key, err := open(ctx, identity.Daemon)
	if err != nil {
		return err
	}
	defer dev.Close()
	ln, err := dev.Listen(ctx, o.listen, nil)
	if err != nil {
		return listenError(o, err)
	}
	defer ln.Close()
	say(log, "%s: listening on %v", o.t.name, ln.Addr())
	if o.perftest {
		return servePerftest(ctx, dev, ln, o, log)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		req, err := ln.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			last, err := serveQP(ctx, dev, key, req, o)
			if err != nil && ctx.Err() == nil {
				say(log, "%v: %v", req.Info().Remote, err)
			}
			if last && o.once {
				cancel()
			}
		})
	}
}

func listenError(o *options, err error) error {
	code := exitGeneral
	if errors.Is(err, syscall.EADDRINUSE) {
		code = exitAddress
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno // without the address
	}
	return &exitError{code, fmt.Errorf("listen on %s: %w", o.listen, err)}
}

// serveQP answers one connection. last reports that it was established, and that its client did not
// announce another one. own are the server's options.
func serveQP(ctx context.Context, dev iwarp.Device, key *psk.Key, req iwarp.ConnRequest, own *options) (last bool, err error) {
	t := own.t
	private, claim, err := claimOf(key, req.Info().PrivateData)
	if err != nil {
		return false, errors.Join(err, req.Reject([]byte(err.Error())))
	}
	o, err := parseParams(private, t)
	if err != nil {
		return false, errors.Join(err, req.Reject([]byte(err.Error())))
	}
	o.wait = own.wait
	e, err := newEndpoint(dev, o, o.shape())
	if err != nil {
		return false, errors.Join(err, req.Reject([]byte("the server says: "+err.Error())))
	}
	defer e.close()
	p := o.connParam(dev)
	if claim != nil {
		clear(e.recvBuf[ctlSize:][:psk.ProofLen])
		p.Private = func(i iwarp.ConnInfo) []byte { return claim.Answer(nil, i.Request, i.Reply) }
	}
	if err := req.Accept(ctx, e.qp, p); err != nil {
		return false, err
	}
	last = !o.more
	var stag uint64
	if stag, e.peerTO, _, err = e.awaitControl(ctx); err != nil {
		return last, err
	}
	if claim != nil {
		if err := claim.Check(e.recvBuf[ctlSize:][:psk.ProofLen]); err != nil {
			return false, err // and it has not been told of our window
		}
	}
	e.peer = iwarp.STag(stag)
	if err := e.control(ctx, uint64(e.data.STag()), e.data.Base()); err != nil {
		return last, err
	}
	cpu0 := cpuTime()
	n, told, err := e.answer(ctx)
	if err != nil {
		return last, err
	}
	if t.id == testWriteBW || t.read {
		if n, err = e.arrived(ctx, int64(told)); err != nil {
			return last, err
		}
	}
	if err := e.control(ctx, uint64(n)*uint64(o.size), uint64(cpuTime()-cpu0)); err != nil {
		return last, err
	}
	select { // the client closes when it has the figures
	case <-e.qp.Done():
	case <-ctx.Done():
	}
	return last, nil
}

// claimOf extracts a client's claim to have the key from its private data. A server with a key does not
// serve clients without one, nor the reverse.
func claimOf(key *psk.Key, private []byte) (params []byte, claim *psk.Claim, err error) {
	switch {
	case key == nil && psk.Offered(private):
		return nil, nil, errors.New("this server has no key: start it with --psk-file, or leave it out")
	case key == nil:
		return private, nil, nil
	}
	claim, err = key.Judge(private)
	switch {
	case errors.Is(err, psk.ErrMissing):
		return nil, nil, errors.New("this server wants a key: --psk-file")
	case err != nil:
		return nil, nil, err
	}
	return claim.Greeting(), claim, nil
}

// arrived returns the number of Writes, or of Read Requests, that the QP has counted. The Send after them
// has been delivered, so they have all arrived; the counter follows.
func (e *endpoint) arrived(ctx context.Context, want int64) (int64, error) {
	count := func() int64 {
		if s := e.qp.Stats(); e.o.t.read {
			return int64(s.ReadsReceived)
		} else {
			return int64(s.WritesReceived)
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if n := count(); n >= want {
			return n, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return count(), nil
}

// answer does the server's part of a test until the client's final message. It returns the number of
// messages before that one, and the number in it.
func (e *endpoint) answer(ctx context.Context) (n int64, told uint64, err error) {
	done := false
	for !done {
		var fresh int
		var failed error
		err := e.receive(ctx, func(wc *iwarp.WC) bool {
			switch {
			case wc.Solicited:
				done = true
			case e.o.t.latency && failed == nil: // the receive is posted again when the answer is on its way
				n++
				failed = e.pong(ctx)
			default:
				fresh++
			}
			return true
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			return n, 0, err
		}
		for range fresh {
			n++
			if n%int64(e.o.ackEvery()) == 0 {
				err = e.send(ctx, true)
			}
			if err != nil {
				return n, 0, err
			}
		}
		if err := e.reapMany(ctx); err != nil {
			return n, 0, err
		}
	}
	return n, binary.BigEndian.Uint64(e.recvBuf), nil
}

func serveAllTCP(ctx context.Context, o *options, log io.Writer) error {
	if err := noAuth(ctx, o); err != nil {
		return err
	}
	ln, err := net.Listen(tcpaddr.Network(o.listen), o.listen)
	if err != nil {
		return listenError(o, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	defer ln.Close()
	say(log, "%s: listening on %v", o.t.name, ln.Addr())
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := ln.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			more, err := serveTCP(c.(*net.TCPConn), o.t)
			if err != nil && ctx.Err() == nil {
				say(log, "%v: %v", c.RemoteAddr(), err)
			}
			if err == nil && !more && o.once {
				cancel()
			}
		})
	}
}
