package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// serve answers clients until ctx ends, or one client with --once.
func (o *rpingOptions) serve(ctx context.Context, out, log io.Writer) error {
	dev, err := openDevice(ctx, identity.Daemon)
	if err != nil {
		return err
	}
	defer dev.Close()
	ln, err := dev.Listen(ctx, o.listen, nil)
	if err != nil {
		return listenError(&o.options, err)
	}
	defer ln.Close()
	say(log, "rping: listening on %v", ln.Addr())
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // guards out and failed
	var failed error
	for {
		req, err := ln.Accept(ctx)
		if ctx.Err() != nil {
			wg.Wait()
			return failed
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			served, err := o.echo(ctx, dev, req, &lockedWriter{&mu, out})
			if err != nil && ctx.Err() == nil {
				say(log, "%v: %v", req.Info().Remote, err)
			}
			if served && o.once {
				mu.Lock()
				failed = err
				mu.Unlock()
				cancel()
			}
		})
	}
}

// lockedWriter keeps the lines of several clients apart.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// echo answers one client; served is false if the connection was never established.
func (o *rpingOptions) echo(ctx context.Context, dev iwarp.Device, req iwarp.ConnRequest, out io.Writer) (served bool, err error) {
	p, err := newRpinger(dev, rpingMax, true, o.wait)
	if err != nil {
		return false, errors.Join(err, req.Reject(nil))
	}
	defer p.close()
	if err := req.Accept(ctx, p.qp, o.connParam(dev)); err != nil {
		return false, err
	}
	for {
		source, err := p.hear(ctx)
		if errors.Is(err, errPeerClosed) {
			return true, nil // between two pings, where every client ends
		}
		if err != nil {
			return true, err
		}
		if int(source.Size) > len(p.data) {
			return true, fmt.Errorf("a ping of %d bytes: at most %d", source.Size, len(p.data))
		}
		if o.pause > 0 {
			select {
			case <-time.After(o.pause):
			case <-ctx.Done():
				return true, ctx.Err()
			}
		}
		if err := p.move(ctx, iwarp.OpRead, source); err != nil {
			return true, err
		}
		if o.verbose {
			text, _, _ := bytes.Cut(p.data[:source.Size], []byte{0})
			fmt.Fprintf(out, "server ping data: %s\n", text)
		}
		if err := p.goOn(ctx); err != nil {
			return true, err
		}
		sink, err := p.hear(ctx)
		if err != nil {
			return true, err
		}
		sink.Size = min(sink.Size, source.Size)
		if err := p.move(ctx, iwarp.OpWrite, sink); err != nil {
			return true, err
		}
		if err := p.goOn(ctx); err != nil {
			return true, err
		}
	}
}

// goOn sends a server's message, which names no buffer.
func (p *rpinger) goOn(ctx context.Context) error {
	return p.post(ctx, "send", &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: make([]byte, rpingAdvertSize)})
}
