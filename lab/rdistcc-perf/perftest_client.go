package main

import (
	"context"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// A perftest server accepts the first connection with one listener and the others with another one, which
// may not exist yet: the dial is repeated.
const (
	ptDialTries = 20
	ptDialPause = 100 * time.Millisecond
)

// measurePerftest is the client of a perftest server. CPU time is that of this side only, and a message
// counts as done when the provider says so, as in perftest.
func measurePerftest(ctx context.Context, o *options) (*result, error) {
	dev, err := openDevice(ctx, identity.Client)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	ctl, err := ptControl(dev, o)
	if err != nil {
		return nil, err
	}
	if err := ctl.dial(ctx, dev, nil); err != nil {
		ctl.close()
		return nil, err
	}
	s := newPTSession(o, true, ctl)
	defer s.close()
	guarded, release := s.guarded(ctx)
	defer release()
	r, err := s.measure(guarded, ctx, dev)
	return r, s.explain(guarded, err)
}

// measure does the client's part. outer does not end with the first connection: in write_lat that may close
// before our last round has been received.
func (s *ptSession) measure(ctx, outer context.Context, dev iwarp.Device) (*result, error) {
	o := s.o
	err := s.setUp(ctx, func(ctx context.Context) error {
		for range o.qps {
			e, err := s.dialEnd(ctx, dev)
			if err != nil {
				return err
			}
			s.add(e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := newResult(o, s.ends[0])
	cpu0, t0 := cpuTime(), time.Now()
	switch o.t.id {
	case testWriteLat:
		d, err := s.ends[0].pongWrites(outer, true)
		if err != nil {
			return nil, err
		}
		r.latency(d)
		r.Messages = int64(o.iters)
	case testSendBW:
		r.Messages, err = parallel(o.qps, func(i int) (int64, error) { return s.ends[i].pushCredited(ctx) })
	default:
		err = r.run(ctx, s.ends)
	}
	if err != nil {
		return nil, err
	}
	r.Seconds = time.Since(t0).Seconds()
	r.ClientCPU = (cpuTime() - cpu0).Seconds()
	r.Bytes = r.Messages * int64(o.size)
	r.rates(o)
	mib := float64(r.Bytes) / r.Seconds / (1 << 20)
	_, err = s.talk.finish(ctx, ptReport{uint64(o.size), uint64(r.Messages) / uint64(o.qps), mib, mib, r.Rate / 1e6}, s.dests[0])
	return r, err
}

// dialEnd makes one measured connection.
func (s *ptSession) dialEnd(ctx context.Context, dev iwarp.Device) (*endpoint, error) {
	for try := 1; ; try++ {
		e, err := s.newEnd(dev)
		if err != nil {
			return nil, err
		}
		if err = e.dial(ctx, dev, nil); err == nil {
			return e, nil
		}
		e.close()
		var rejected *iwarp.RejectedError
		if errors.As(err, &rejected) || try == ptDialTries || ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-time.After(ptDialPause):
		case <-ctx.Done():
		}
	}
}
