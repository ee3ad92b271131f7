package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// The idle measurement holds many connections that have nothing to do. Each begins with a Send either way, so that
// everything has been used once. On the last connection the client asks for the server's figures.

const (
	maxConns   = 1 << 16
	idleMagic  = "rdpi"
	idleMsg    = 32 // bytes: a greeting is not examined, an answer has four numbers
	idleAtOnce = 64 // start-ups at a time
)

// idleResult is the output of --json.
type idleResult struct {
	Conns       int   `json:"connections"`
	Depth       int   `json:"depth"` // places in each queue
	ClientRSS   int64 `json:"client_rss_bytes_per_connection"`
	ServerRSS   int64 `json:"server_rss_bytes_per_connection"`
	ClientHeap  int64 `json:"client_heap_bytes_per_connection"`
	ServerHeap  int64 `json:"server_heap_bytes_per_connection"`
	ClientStack int64 `json:"client_stack_bytes_per_connection"`
	ServerStack int64 `json:"server_stack_bytes_per_connection"`
	Goroutines  int64 `json:"client_goroutines"`
	ServerGoros int64 `json:"server_goroutines"`
}

func idleCommand() *cobra.Command {
	o := &options{t: &test{name: "idle"}, size: idleMsg, qps: 1, duration: 1, crc: true}
	conns := 0
	c := &cobra.Command{
		Use:   "idle {-s | -c ADDR:PORT}",
		Short: "Measure memory and goroutines of idle connections",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.check()
			if err == nil && (conns < 1 || conns > maxConns) {
				err = fmt.Errorf("--conns %d: 1 to %d", conns, maxConns)
			}
			if err != nil {
				return &exitError{exitArguments, err}
			}
			if o.server {
				return serveIdle(cmd.Context(), o, cmd.ErrOrStderr())
			}
			r, err := measureIdle(cmd.Context(), o, conns)
			if err != nil {
				return err
			}
			return r.print(cmd.OutOrStdout(), o.json)
		},
	}
	f := c.Flags()
	o.sideFlags(c, "measure against")
	f.IntVar(&conns, "conns", 10000, "connections")
	f.IntVar(&o.depth, "depth", 16, "requests that each queue of a connection can hold")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

func (r *idleResult) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	per := func(n int64) float64 { return float64(n) / float64(r.Conns) }
	_, err := fmt.Fprintf(w, "idle: %d connections, queues of %d; bytes of each: client %d (heap %d, %.2f goroutines' stacks %d), server %d (heap %d, %.2f goroutines' stacks %d)\n",
		r.Conns, r.Depth, r.ClientRSS, r.ClientHeap, per(r.Goroutines), r.ClientStack, r.ServerRSS, r.ServerHeap, per(r.ServerGoros), r.ServerStack)
	return err
}

// footprint is what a process uses.
type footprint struct{ rss, heap, stack, goroutines int64 }

// takeFootprint measures after everything unused has been freed.
func takeFootprint() footprint {
	for range 3 { // pools keep things through one collection, stacks shrink by half in each
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f := footprint{heap: int64(m.HeapAlloc), stack: int64(m.StackInuse), goroutines: int64(runtime.NumGoroutine())}
	b, err := os.ReadFile("/proc/self/statm")
	if fields := strings.Fields(string(b)); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64) // the kernel writes a number
		f.rss = pages * int64(os.Getpagesize())
	}
	return f
}

// per returns what each of n connections has added since before.
func (f footprint) per(before footprint, n int) footprint {
	return footprint{(f.rss - before.rss) / int64(n), (f.heap - before.heap) / int64(n), (f.stack - before.stack) / int64(n), f.goroutines - before.goroutines}
}

// idler holds what the connections share.
type idler struct {
	dev   iwarp.Device
	pd    iwarp.PD
	cq    iwarp.CQ
	mr    iwarp.MR
	buf   []byte
	depth int

	mu  sync.Mutex // guards qps
	qps []iwarp.QP
}

func newIdler(ctx context.Context, role identity.Role, depth int) (*idler, error) {
	dev, err := openDevice(ctx, role)
	if err != nil {
		return nil, err
	}
	x := &idler{dev: dev, buf: make([]byte, idleMsg), depth: depth}
	if x.pd, err = dev.AllocPD(); err == nil {
		x.mr, err = x.pd.RegMR(x.buf, iwarp.LocalWrite, nil)
	}
	if err == nil {
		x.cq, err = dev.CreateCQ(1 << 16)
	}
	if err != nil {
		_ = dev.Close()
		return nil, err
	}
	return x, nil
}

// newQP returns a QP with one receive posted.
func (x *idler) newQP() (iwarp.QP, error) {
	qp, err := x.pd.CreateQP(iwarp.QPInitAttr{SendCQ: x.cq, RecvCQ: x.cq, MaxSend: x.depth, MaxRecv: x.depth, Overcommit: true})
	if err != nil {
		return nil, err
	}
	if err := x.postRecv(qp); err != nil {
		return nil, errors.Join(err, qp.Destroy())
	}
	return qp, nil
}

func (x *idler) postRecv(qp iwarp.QP) error {
	return qp.PostRecv(&iwarp.RecvWR{SGL: []iwarp.SGE{{Addr: x.mr.Base(), Length: idleMsg, LKey: x.mr.STag()}}})
}

// add keeps qp, and returns the number of QPs.
func (x *idler) add(qp iwarp.QP) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.qps = append(x.qps, qp)
	return len(x.qps)
}

func (x *idler) send(qp iwarp.QP, flags iwarp.SendFlags, m []byte) error {
	return qp.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled | flags, Data: m})
}

// next waits for a message.
func (x *idler) next(ctx context.Context) (wc iwarp.WC, err error) {
	var wcs [1]iwarp.WC
	for x.cq.Poll(wcs[:]) == 0 {
		if err := x.cq.Wait(ctx); err != nil {
			return wc, err
		}
	}
	if wc = wcs[0]; wc.Status != iwarp.StatusSuccess {
		<-wc.QP.Done()
		err := wc.QP.Err()
		if err == nil {
			err = errors.New("the peer closed a connection: look at its own messages")
		}
		return wc, &exitError{exitIO, err}
	}
	return wc, nil
}

// drop ends the connections.
func (x *idler) drop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, qp := range x.qps {
		_ = qp.Destroy()
	}
	x.qps = nil
}

func measureIdle(ctx context.Context, o *options, conns int) (*idleResult, error) {
	x, err := newIdler(ctx, identity.Client, o.depth)
	if err != nil {
		return nil, err
	}
	defer x.dev.Close()
	defer x.drop()
	before := takeFootprint()
	hello := binary.BigEndian.AppendUint32([]byte(idleMagic), uint32(conns))
	hello = binary.BigEndian.AppendUint32(hello, uint32(o.depth))
	work := make(chan struct{}, conns)
	for range conns {
		work <- struct{}{}
	}
	close(work)
	_, err = parallel(min(conns, idleAtOnce), func(int) (int64, error) {
		for range work {
			qp, err := x.newQP()
			if err != nil {
				return 0, err
			}
			x.add(qp)
			if _, err := x.dev.Dial(ctx, o.client, qp, &iwarp.ConnParam{PrivateData: hello}); err != nil {
				return 0, &exitError{exitConnect, err}
			}
			if err := x.send(qp, 0, make([]byte, idleMsg)); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	if err != nil {
		return nil, err
	}
	for range conns { // the server greets when it has all of them
		if _, err := x.next(ctx); err != nil {
			return nil, err
		}
	}
	mine := takeFootprint().per(before, conns)
	last := x.qps[len(x.qps)-1]
	if err := x.postRecv(last); err != nil {
		return nil, err
	}
	if err := x.send(last, iwarp.Solicited, make([]byte, idleMsg)); err != nil {
		return nil, err
	}
	if _, err := x.next(ctx); err != nil {
		return nil, err
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(x.buf[8*i:])) }
	return &idleResult{
		Conns: conns, Depth: o.depth,
		ClientRSS: mine.rss, ClientHeap: mine.heap, ClientStack: mine.stack, Goroutines: mine.goroutines,
		ServerRSS: at(0), ServerHeap: at(1), ServerStack: at(2), ServerGoros: at(3),
	}, nil
}

// serveIdle answers clients one after the other.
func serveIdle(ctx context.Context, o *options, log io.Writer) error {
	x, err := newIdler(ctx, identity.Daemon, 1)
	if err != nil {
		return err
	}
	defer x.dev.Close()
	ln, err := x.dev.Listen(ctx, o.listen, nil)
	if err != nil {
		return listenError(o, err)
	}
	defer ln.Close()
	say(log, "idle: listening on %v", ln.Addr())
	for {
		err := x.serveOne(ctx, ln)
		x.drop()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			say(log, "%v", err)
		case o.once:
			return nil
		}
		for x.cq.Poll(make([]iwarp.WC, 64)) > 0 { // of connections that have ended
		}
	}
}

// serveOne accepts all connections of one client, greets, and answers on the one that asks.
func (x *idler) serveOne(ctx context.Context, ln iwarp.Listener) error {
	before := takeFootprint()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	limit := make(chan struct{}, idleAtOnce)
	conns := 1
	for n := 0; n < conns; n++ {
		req, err := ln.Accept(ctx)
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		b := req.Info().PrivateData
		if len(b) != 12 || string(b[:4]) != idleMagic {
			n--
			_ = req.Reject([]byte("this server runs idle")) // the peer's problem
			continue
		}
		if n == 0 {
			conns, x.depth = int(min(binary.BigEndian.Uint32(b[4:]), maxConns)), int(min(binary.BigEndian.Uint32(b[8:]), maxDepth))
		}
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			qp, err := x.newQP()
			if err != nil {
				cancel(errors.Join(err, req.Reject(nil)))
				return
			}
			x.add(qp)
			if err := req.Accept(ctx, qp, nil); err != nil {
				cancel(err)
			}
		})
	}
	for range conns { // the greeting of each
		wc, err := x.next(ctx)
		if err == nil {
			err = x.postRecv(wc.QP)
		}
		if err != nil {
			return err
		}
	}
	wg.Wait()
	for _, qp := range x.qps {
		if err := x.send(qp, 0, make([]byte, idleMsg)); err != nil {
			return err
		}
	}
	wc, err := x.next(ctx)
	if err != nil {
		return err
	}
	f := takeFootprint().per(before, conns)
	var m []byte
	for _, v := range []int64{f.rss, f.heap, f.stack, f.goroutines} {
		m = binary.BigEndian.AppendUint64(m, uint64(v))
	}
	if err := x.send(wc.QP, 0, m); err != nil {
		return err
	}
	select {
	case <-wc.QP.Done():
	case <-ctx.Done():
	}
	return nil
}
