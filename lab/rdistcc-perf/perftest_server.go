package main

import (
	"context"
	"errors"
	"io"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// servePerftest answers clients of perftest, one after the other.
func servePerftest(ctx context.Context, dev iwarp.Device, ln iwarp.Listener, o *options, log io.Writer) error {
	for {
		req, err := ln.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		rep, err := answerPerftest(ctx, dev, ln, req, o)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			say(log, "%v: %v", req.Info().Remote, err)
		case rep.Iters > 0:
			say(log, "%v: ib_%s: %v", req.Info().Remote, o.t.name, &rep)
		default:
			say(log, "%v: ib_%s: done", req.Info().Remote, o.t.name)
		}
		if o.once && err == nil {
			return nil
		}
	}
}

// answerPerftest runs one session. req is the request for its first connection.
func answerPerftest(ctx context.Context, dev iwarp.Device, ln iwarp.Listener, req iwarp.ConnRequest, o *options) (rep ptReport, err error) {
	ctl, err := ptControl(dev, o)
	if err != nil {
		return rep, errors.Join(err, req.Reject(nil))
	}
	if err := req.Accept(ctx, ctl.qp, o.connParam(dev)); err != nil {
		ctl.close()
		return rep, err
	}
	s := newPTSession(o, false, ctl)
	defer s.close()
	guarded, release := s.guarded(ctx)
	defer release()
	rep, err = s.answer(guarded, ctx, dev, ln)
	return rep, s.explain(guarded, err)
}

// answer does the server's part; outer is as in measure.
func (s *ptSession) answer(ctx, outer context.Context, dev iwarp.Device, ln iwarp.Listener) (rep ptReport, err error) {
	err = s.setUp(ctx, func(ctx context.Context) error {
		for range s.o.qps {
			e, err := s.acceptEnd(ctx, dev, ln)
			if err != nil {
				return err
			}
			s.add(e)
		}
		return nil
	})
	if err != nil {
		return rep, err
	}
	switch s.o.t.id {
	case testWriteLat:
		_, err = s.ends[0].pongWrites(outer, false)
	case testSendBW:
		if len(s.ends) == 1 {
			err = s.ends[0].takeCredited(ctx, int64(s.o.iters))
		} else {
			err = s.takeAllCredited(ctx)
		}
	case testSendLat:
		err = s.ends[0].echo(ctx, s.o.iters)
	}
	if err != nil {
		return rep, err
	}
	return s.talk.finish(ctx, ptReport{}, s.dests[0])
}

// acceptEnd accepts one measured connection.
func (s *ptSession) acceptEnd(ctx context.Context, dev iwarp.Device, ln iwarp.Listener) (*endpoint, error) {
	req, err := ln.Accept(ctx)
	if err != nil {
		return nil, err
	}
	e, err := s.newEnd(dev)
	if err != nil {
		return nil, errors.Join(err, req.Reject(nil))
	}
	p := s.o.connParam(dev)
	if s.o.t.id == testWriteLat {
		p.SendFirst = s.o.settle // the server sends first, and perftest has no RTR
	}
	e.info = req.Info()
	if err := req.Accept(ctx, e.qp, p); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// echo answers n Sends with one each.
func (e *endpoint) echo(ctx context.Context, n int) error {
	for range n {
		if err := e.receive(ctx, func(*iwarp.WC) bool { return true }); err != nil {
			return err
		}
		if err := e.send(ctx, false); err != nil {
			return err
		}
		if err := e.reap(ctx, false); err != nil {
			return err
		}
	}
	return e.drain(ctx)
}
