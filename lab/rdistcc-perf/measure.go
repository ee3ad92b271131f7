package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// measure runs the client's side of one test.
func measure(ctx context.Context, o *options) (*result, error) {
	if o.t.tcp {
		return measureTCP(ctx, o)
	}
	if o.perftest {
		return measurePerftest(ctx, o)
	}
	dev, key, err := openProving(ctx, identity.Client)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	ends := make([]*endpoint, o.qps)
	for i := range ends {
		e, err := connect(ctx, dev, key, o)
		if err != nil {
			return nil, err
		}
		defer e.close()
		ends[i] = e
	}
	r := newResult(o, ends[0])
	cpu0, t0 := cpuTime(), time.Now()
	if err := r.run(ctx, ends); err != nil {
		return nil, err
	}
	// The server answers after all data: what it reports has arrived.
	for _, e := range ends {
		bytes, cpu, err := e.finish(ctx, e.sent)
		if err != nil {
			return nil, err
		}
		r.Bytes += bytes
		r.ServerCPU = max(r.ServerCPU, cpu.Seconds())
	}
	r.Seconds = time.Since(t0).Seconds()
	r.ClientCPU = (cpuTime() - cpu0).Seconds()
	r.rates(o)
	if want := r.Messages * int64(o.size); r.Bytes != want {
		return nil, fmt.Errorf("%d bytes sent, %d arrived", want, r.Bytes)
	}
	return r, nil
}

// run does the client's part on all connections at the same time.
func (r *result) run(ctx context.Context, ends []*endpoint) error {
	if ends[0].o.t.latency {
		d, err := ends[0].ping(ctx)
		if err != nil {
			return err
		}
		r.Messages = int64(len(d))
		r.latency(d)
	} else {
		n, err := parallel(len(ends), func(i int) (int64, error) { return ends[i].push(ctx) })
		if err != nil {
			return err
		}
		r.Messages = n
	}
	return ctx.Err()
}

// connect makes one connection and exchanges windows with the server. With a key, the server must prove
// first that it has the same one, and our first message proves that we do.
func connect(ctx context.Context, dev iwarp.Device, key *psk.Key, o *options) (*endpoint, error) {
	e, err := newEndpoint(dev, o, o.shape())
	if err != nil {
		return nil, err
	}
	private := o.params()
	var proving *psk.Dialing
	if key != nil {
		proving = key.Dial(private, dev.Attr().StartUp)
		private = proving.PrivateData()
	}
	err = e.dial(ctx, dev, private)
	if err == nil && proving != nil {
		var proof [psk.ProofLen]byte
		if _, proof, err = proving.Finish(e.info.Request, e.info.Reply, e.info.PrivateData); err != nil {
			err = &exitError{exitConnect, fmt.Errorf("%s does not prove that it has our key: %w", o.client, err)}
		}
		e.proof = proof[:]
	}
	if err != nil {
		e.close()
		return nil, err
	}
	if err = e.control(ctx, uint64(e.data.STag()), e.data.Base()); err == nil {
		var stag uint64
		stag, e.peerTO, _, err = e.awaitControl(ctx)
		e.peer = iwarp.STag(stag)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// dial connects to the server of the command line.
func (e *endpoint) dial(ctx context.Context, dev iwarp.Device, privateData []byte) error {
	p := e.o.connParam(dev)
	p.PrivateData = privateData
	info, err := dev.Dial(ctx, e.o.client, e.qp, p)
	if err != nil {
		var rej *iwarp.RejectedError
		if errors.As(err, &rej) && len(rej.PrivateData) > 0 {
			err = fmt.Errorf("%s refuses: %s", e.o.client, rej.PrivateData)
		}
		return &exitError{exitConnect, err}
	}
	e.info = *info
	return nil
}

// push sends messages as fast as possible and returns their number.
func (e *endpoint) push(ctx context.Context) (int64, error) {
	var n int64
	acked := int64(0)
	for more := e.o.pace(ctx); more(n); n++ {
		if err := e.reap(ctx, e.posted >= e.o.depth); err != nil {
			return n, err
		}
		var err error
		switch e.o.t.id {
		case testWriteBW:
			err = e.write(ctx, 0)
		case testReadBW:
			err = e.read(ctx)
		default:
			// iWARP has no receiver-not-ready: the server reports when it has posted receives again, half
			// of the depth at a time.
			for n-acked >= int64(e.o.depth) && err == nil {
				err = e.receive(ctx, func(*iwarp.WC) bool {
					acked += int64(e.o.ackEvery())
					return true
				})
			}
			if err == nil {
				err = e.send(ctx, false)
			}
		}
		if err != nil {
			return n, err
		}
	}
	e.sent = n
	return n, e.drain(ctx)
}

// ackEvery returns after how many Sends the receiver reports them.
func (o *options) ackEvery() int { return max(1, o.depth/2) }

// ping measures round trips.
func (e *endpoint) ping(ctx context.Context) ([]time.Duration, error) {
	var d []time.Duration
	for more := e.o.pace(ctx); more(int64(len(d))); {
		t := time.Now()
		if e.o.t.read {
			if err := e.read(ctx); err != nil {
				return nil, err
			}
			if err := e.reap(ctx, true); err != nil {
				return nil, err
			}
			d = append(d, time.Since(t))
			continue
		}
		if err := e.pong(ctx); err != nil {
			return nil, err
		}
		err := e.receive(ctx, func(*iwarp.WC) bool {
			d = append(d, time.Since(t))
			return true
		})
		if err == nil {
			err = e.reapMany(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	e.sent = int64(len(d))
	return d, e.drain(ctx)
}

// pong sends one message of a latency test.
func (e *endpoint) pong(ctx context.Context) error {
	if e.o.t.id == testSendLat {
		return e.send(ctx, false)
	}
	if err := e.write(ctx, iwarp.More); err != nil { // sent together with the Send after it
		return err
	}
	return e.send(ctx, true)
}

// finish reports how many messages were sent and asks for the server's figures.
func (e *endpoint) finish(ctx context.Context, sent int64) (bytes int64, cpu time.Duration, err error) {
	if err := e.control(ctx, uint64(sent), 0); err != nil {
		return 0, 0, err
	}
	b, c, _, err := e.awaitControl(ctx)
	return int64(b), time.Duration(c), err
}
