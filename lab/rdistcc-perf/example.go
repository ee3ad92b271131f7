package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// examples are those of rdma-core's librdmacm, each the counterpart of the program on the other side: what they
// do is all that two stacks need for a first conversation.
//
//	rdma_client    Send of 16 bytes, then waits for one, then closes
//	rdma_server    the other way round
//	rdma_xclient   Send of 16 bytes, then closes
//	rdma_xserver   4 bytes of private data (an SRQ's number, 0 without one), one receive
//	ucmatose       the server Sends --count messages, then the client as many; the
//	               server closes
var examples = map[string]func(x *example, ctx context.Context) error{
	"rdma_client":  (*example).rdmaClient,
	"rdma_server":  (*example).rdmaServer,
	"rdma_xclient": (*example).rdmaXClient,
	"rdma_xserver": (*example).rdmaXServer,
	"ucmatose":     (*example).ucmatose,
}

// Sizes in bytes, as in those programs.
const (
	rdmaMessage     = 16
	ucmatoseMessage = 100
	ucmatoseCount   = 10
	exampleAddr     = "127.0.0.1:7471"
)

// example is one run of an example.
type example struct {
	o     *options
	dev   iwarp.Device
	count int
	log   io.Writer
}

func exampleCommand() *cobra.Command {
	x := &example{o: &options{t: &test{}, size: ucmatoseMessage, crc: true}}
	names := "rdma_client, rdma_server, rdma_xclient, rdma_xserver or ucmatose"
	c := &cobra.Command{
		Use:   "example PROGRAM {-s | -c ADDR:PORT}",
		Short: "Play one of rdma-core's example programs: " + names,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || examples[args[0]] == nil {
				return &exitError{exitArguments, fmt.Errorf("example: one program is needed: %s", names)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			x.o.t.name, x.log = args[0], cmd.ErrOrStderr()
			if err := x.check(); err != nil {
				return &exitError{exitArguments, err}
			}
			return x.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.BoolVarP(&x.o.server, "server", "s", false, "wait for the other side's program")
	f.StringVarP(&x.o.client, "client", "c", "", "connect to the other side's program at `ADDR:PORT`")
	f.StringVar(&x.o.listen, "listen", exampleAddr, "`ADDR:PORT` to listen on; port 0 picks one")
	f.Var(&x.o.size, "size", "ucmatose: bytes of a message")
	f.IntVar(&x.count, "count", ucmatoseCount, "ucmatose: messages each way")
	f.IntVar(&x.o.qps, "qps", 1, "ucmatose: connections at a time")
	f.BoolVar(&x.o.crc, "crc", true, "protect FPDUs by CRC32C")
	f.IntVar(&x.o.mpa, "mpa", 2, "client: MPA revision, 1 or 2")
	f.Var(&x.o.rtr, "rtr", "client: first message of a peer-to-peer connection: none, write, read or send")
	f.DurationVar(&x.o.settle, "settle", ptSettle, "wait so long behind MPA start-up before the first message")
	return c
}

// check completes and checks the command line.
func (x *example) check() error {
	o := x.o
	o.duration, o.depth = 1, 1
	client, server := strings.HasSuffix(o.t.name, "client"), strings.HasSuffix(o.t.name, "server")
	switch {
	case client && o.server:
		return fmt.Errorf("%s is a client: give -c ADDR:PORT", o.t.name)
	case server && o.client != "":
		return fmt.Errorf("%s is a server: give -s", o.t.name)
	case x.count < 1 || x.count > maxDepth:
		return fmt.Errorf("--count %d: 1 to %d", x.count, maxDepth)
	}
	if client || server {
		o.size, x.count, o.qps = rdmaMessage, 1, 1
	}
	o.depth = x.count
	return o.check()
}

func (x *example) run(ctx context.Context, out io.Writer) error {
	dev, err := openDevice(ctx, sideRole(x.o.server))
	if err != nil {
		return err
	}
	defer dev.Close()
	x.dev = dev
	if err := examples[x.o.t.name](x, ctx); err != nil {
		return err
	}
	s := dev.Stats()
	_, err = fmt.Fprintf(out, "%s: done; %d FPDUs sent, %d received\n", x.o.t.name, s.FPDUsSent, s.FPDUsReceived)
	return err
}

func (x *example) newEnd() (*endpoint, error) {
	n := int(x.o.size)
	return newEndpoint(x.dev, x.o, shape{sends: x.count + 1, recvs: x.count, recvLen: n, window: n})
}

// connect makes the connections of a client or a server.
func (x *example) connect(ctx context.Context, p *iwarp.ConnParam) (ends []*endpoint, err error) {
	defer func() {
		if err != nil {
			x.close(ctx, ends)
		}
	}()
	var ln iwarp.Listener
	if x.o.server {
		if ln, err = x.dev.Listen(ctx, x.o.listen, nil); err != nil {
			return nil, listenError(x.o, err)
		}
		defer ln.Close()
		say(x.log, "%s: listening on %v", x.o.t.name, ln.Addr())
	}
	for range x.o.qps {
		var req iwarp.ConnRequest
		if ln != nil {
			if req, err = ln.Accept(ctx); err != nil {
				return ends, err
			}
		}
		e, err := x.newEnd()
		if err != nil {
			return ends, err
		}
		ends = append(ends, e)
		if ln != nil {
			e.info, err = req.Info(), req.Accept(ctx, e.qp, p)
		} else {
			var info *iwarp.ConnInfo
			info, err = x.dev.Dial(ctx, x.o.client, e.qp, p)
			if err == nil {
				e.info = *info
			}
		}
		if err != nil {
			return ends, &exitError{exitConnect, err}
		}
	}
	return ends, nil
}

// param returns the parameters that each example uses.
func (x *example) param(depth int) *iwarp.ConnParam {
	p := x.o.connParam(x.dev)
	a := x.dev.Attr()
	p.ORD, p.IRD = uint16(min(depth, a.MaxORD)), uint16(min(depth, a.MaxIRD))
	return p
}

// close closes as rdma_disconnect does.
func (x *example) close(ctx context.Context, ends []*endpoint) {
	ctx, cancel := context.WithTimeout(ctx, disconnectTime)
	defer cancel()
	for _, e := range ends {
		_ = e.qp.Disconnect(ctx) // it has already ended, or is aborted when the time is up
		e.close()
	}
}

// sendAll sends x.count messages and waits for their completions.
func (x *example) sendAll(ctx context.Context, e *endpoint) error {
	for range x.count {
		if err := e.send(ctx, false); err != nil {
			return err
		}
	}
	return e.drain(ctx)
}

// receiveAll waits for x.count messages of the expected size.
func (x *example) receiveAll(ctx context.Context, e *endpoint) error {
	n, odd := 0, uint32(0)
	err := e.receive(ctx, func(wc *iwarp.WC) bool {
		if wc.ByteLen != uint32(x.o.size) {
			odd = wc.ByteLen
		}
		n++
		return n == x.count
	})
	if err == nil && odd > 0 {
		err = &exitError{exitIO, fmt.Errorf("a message of %d bytes instead of %d: the other side has another --size", odd, x.o.size)}
	}
	return err
}

// dialog connects and performs steps on each connection, each step on all of them before the next.
func (x *example) dialog(ctx context.Context, p *iwarp.ConnParam, steps ...func(context.Context, *endpoint) error) error {
	ends, err := x.connect(ctx, p)
	if err != nil {
		return err
	}
	defer x.close(ctx, ends)
	for _, step := range steps {
		for _, e := range ends {
			if err := step(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

const deviceMax = 1 << 14

func (x *example) rdmaClient(ctx context.Context) error {
	return x.dialog(ctx, x.param(deviceMax), x.sendAll, x.receiveAll)
}

func (x *example) rdmaServer(ctx context.Context) error {
	return x.dialog(ctx, x.param(deviceMax), x.receiveAll, x.sendAll)
}

func (x *example) rdmaXClient(ctx context.Context) error {
	return x.dialog(ctx, x.param(deviceMax), func(ctx context.Context, e *endpoint) error {
		if len(e.info.PrivateData) < 4 {
			return &exitError{exitIO, errors.New("no SRQ number in the private data: the other side is not rdma_xserver")}
		}
		return x.sendAll(ctx, e)
	})
}

func (x *example) rdmaXServer(ctx context.Context) error {
	p := x.param(deviceMax)
	p.PrivateData = make([]byte, 4)
	return x.dialog(ctx, p, x.receiveAll)
}

func (x *example) ucmatose(ctx context.Context) error {
	p := x.param(1)
	if x.o.server {
		p.SendFirst = max(x.o.settle, time.Millisecond)
		return x.dialog(ctx, p, x.sendAll, x.receiveAll)
	}
	return x.dialog(ctx, p, x.receiveAll, x.sendAll, func(ctx context.Context, e *endpoint) error {
		select { // the server closes
		case <-e.qp.Done():
			return e.qp.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
