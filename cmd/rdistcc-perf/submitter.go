package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// submitRecvs are the receives of a submitter: the spare ones that the protocol
// asks for, and its two answers.
const submitRecvs = job.Spare + 2

// submitter is the least that can send a job: one connection, one job, everything
// in one goroutine.
type submitter struct {
	pd   iwarp.PD
	cq   iwarp.CQ
	qp   iwarp.QP
	recv []byte
	rmr  iwarp.MR
	wcs  []iwarp.WC

	welcome *job.Welcome
	credits []job.Credit
	result  *job.Result
}

// submitResult is a result with the memory that it speaks of.
type submitResult struct {
	*job.Result
	sink []byte
}

// segment is a part of the sink: run has seen that it lies inside.
func (r *submitResult) segment(s job.Segment) []byte { return r.sink[s.Off : s.Off+s.Len] }

// newSubmitter connects and introduces itself.
func newSubmitter(ctx context.Context, dev iwarp.Device, addr string) (*submitter, error) {
	s := &submitter{recv: make([]byte, submitRecvs*job.MaxMessage), wcs: make([]iwarp.WC, submitRecvs)}
	var err error
	if s.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if s.cq, err = dev.CreateCQ(4 * submitRecvs); err != nil {
		return nil, err
	}
	if s.rmr, err = s.pd.RegMR(s.recv, iwarp.LocalWrite, nil); err != nil {
		return nil, err
	}
	if s.qp, err = s.pd.CreateQP(iwarp.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, MaxSend: submitRecvs, MaxRecv: submitRecvs}); err != nil {
		return nil, err
	}
	for i := range uint64(submitRecvs) {
		if err := s.postRecv(i); err != nil {
			return nil, err
		}
	}
	hi := job.Greeting{Version: job.Version}
	_, err = dev.Dial(ctx, addr, s.qp, &iwarp.ConnParam{PrivateData: hi.Append(nil)})
	var rejected *iwarp.RejectedError
	if errors.As(err, &rejected) {
		if r, perr := job.ParseRejection(rejected.PrivateData); perr == nil {
			return nil, &exitError{exitRefused, fmt.Errorf("%s refuses (%v): %s", addr, r.Cause, r.Detail)}
		}
	}
	if err != nil {
		return nil, &exitError{exitConnect, err}
	}
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	if err := s.send(&job.Hello{Name: job.Clip(name, job.MaxName), Want: 1}, 0); err != nil {
		return nil, err
	}
	return s, nil
}

// close ends the connection; the device frees the rest.
func (s *submitter) close() { _ = s.qp.Destroy() }

func (s *submitter) postRecv(i uint64) error {
	return s.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{
		Addr: s.rmr.Base() + i*job.MaxMessage, Length: job.MaxMessage, LKey: s.rmr.STag(),
	}}})
}

// send sends one message, and invalidates an STag of the peer's where it is not 0.
func (s *submitter) send(m job.Message, inv iwarp.STag) error {
	wr := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Unsignaled | iwarp.Inline, Data: job.Append(nil, m)}
	if inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, inv
	}
	return s.qp.PostSend(wr)
}

// until takes messages until done.
func (s *submitter) until(ctx context.Context, done func() bool) error {
	for !done() {
		n := s.cq.Poll(s.wcs)
		if n == 0 {
			if err := s.cq.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		for _, wc := range s.wcs[:n] {
			if wc.Status != iwarp.StatusSuccess {
				<-s.qp.Done()
				return &exitError{exitProtocol, fmt.Errorf("the connection ended: %w", s.qp.Err())}
			}
			if wc.Op != iwarp.OpRecv {
				continue
			}
			m, err := job.Parse(s.recv[wc.ID*job.MaxMessage:][:wc.ByteLen])
			if err != nil {
				return &exitError{exitProtocol, err}
			}
			if err := s.postRecv(wc.ID); err != nil {
				return err
			}
			if err := s.take(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// take takes one message, and echoes it where that is asked for.
func (s *submitter) take(m job.Message) error {
	switch m := m.(type) {
	case *job.Welcome:
		s.welcome = m
	case *job.Toolchains:
		return s.send(&job.Ack{Of: job.KindToolchains, Seq: m.Seq}, 0)
	case *job.Grant:
		s.credits = append(s.credits, m.Credits...)
		return s.send(&job.Ack{Of: job.KindGrant, Seq: m.Seq}, 0)
	case *job.Recall: // the one credit is spent at once
		return s.send(&job.Ack{Of: job.KindRecall, Seq: m.Seq}, 0)
	case *job.Drain:
		return s.send(&job.Ack{Of: job.KindDrain, Seq: m.Seq}, 0)
	case *job.Heartbeat:
		return s.send(&job.Ack{Of: job.KindHeartbeat, Seq: m.Seq}, 0)
	case *job.Result:
		s.result = m
	}
	return nil
}

// run submits one job and waits for its result.
func (s *submitter) run(ctx context.Context, tc job.ToolchainID, b *job.Body, text []byte) (*submitResult, error) {
	if err := s.until(ctx, func() bool { return s.welcome != nil && len(s.credits) > 0 }); err != nil {
		return nil, fmt.Errorf("waiting for a credit: %w", err)
	}
	credit := s.credits[0]
	slot := b.Append(nil)
	bodyLen := len(slot)
	off := job.TextOffset(bodyLen)
	slot = append(append(slot, make([]byte, off-bodyLen)...), text...)
	if uint64(len(slot)) > credit.Slot.Len {
		return nil, &exitError{exitArguments, fmt.Errorf("body and source are %d bytes: the host's slot has %d", len(slot), credit.Slot.Len)}
	}
	smr, err := s.pd.RegMR(slot, 0, nil)
	if err != nil {
		return nil, err
	}
	sink := make([]byte, min(max(s.welcome.MaxResult, 1), 64<<20))
	kmr, err := s.pd.RegMR(sink, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: s.qp})
	if err != nil {
		return nil, err
	}
	err = s.qp.PostSend(&iwarp.SendWR{
		Op: iwarp.OpWrite, STag: iwarp.STag(credit.Slot.STag), TO: credit.Slot.TO,
		SGL: []iwarp.SGE{{Addr: smr.Base(), Length: uint32(len(slot)), LKey: smr.STag()}},
	})
	if err != nil {
		return nil, err
	}
	j := &job.Job{
		ID: 1, Credit: credit.ID, Toolchain: tc, BodyLen: uint32(bodyLen), TextOff: uint32(off), TextLen: uint64(len(text)),
		Sink: job.Window{STag: uint32(kmr.STag()), TO: kmr.Base(), Len: uint64(len(sink))},
	}
	if err := s.send(j, iwarp.STag(credit.Slot.STag)); err != nil {
		return nil, err
	}
	if err := s.until(ctx, func() bool { return s.result != nil }); err != nil {
		return nil, fmt.Errorf("waiting for the result: %w", err)
	}
	r := s.result
	all := []job.Segment{r.Stdout, r.Stderr}
	for _, f := range r.Files {
		all = append(all, f.Segment)
	}
	for _, x := range all {
		if x.Off > uint64(len(sink)) || x.Len > uint64(len(sink))-x.Off {
			return nil, &exitError{exitProtocol, errors.New("the result speaks of bytes outside of the sink")}
		}
	}
	return &submitResult{Result: r, sink: sink}, nil
}
