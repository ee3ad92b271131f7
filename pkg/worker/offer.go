package worker

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// offerLocked opens a window onto the task's result.
func (t *task) offerLocked() (job.Window, error) {
	c := t.c
	mr, err := c.pd.RegMR(t.job.Offered.Mem, iwarp.RemoteRead, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		return job.Window{}, fmt.Errorf("register a result of %d bytes: %w", t.job.Offered.Taken(), err)
	}
	c.lent.Offered()
	c.offers[t.m.ID] = &offer{data: t.job.Offered, mr: mr}
	t.job.Offered = nil
	c.recvMoreLocked()
	c.s.o.Metrics.window("result")
	return job.Window{STag: uint32(mr.STag()), TO: mr.Base(), Len: uint64(mr.Len())}, nil
}

// endOfferLocked closes a window and frees its memory.
func (c *conn) endOfferLocked(id uint64) error {
	o := c.offers[id]
	delete(c.offers, id)
	c.lent.Fetched()
	err := o.mr.Dereg()
	if err != nil {
		err = fmt.Errorf("end a window: %w", err)
	}
	o.data.Free()
	return err
}

// released handles a Release: it ends the window, whose STag the message must have invalidated.
func (c *conn) released(m *job.Release, w *iwarp.WC) error {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	o := c.offers[m.ID]
	if o == nil {
		return fmt.Errorf("a Release of job %d, which has no window", m.ID)
	}
	if !c.shut(w, o.mr) {
		return fmt.Errorf("a Release of job %d that leaves its window open", m.ID)
	}
	if err := c.endOfferLocked(m.ID); err != nil {
		return err
	}
	s.rebalanceLocked()
	s.checkIdleLocked()
	return nil
}

// checkOffersLocked ends the windows that were not read for WindowTime, or that are older than any compile
// may take, so that a client cannot hold memory here for ever. A client that reads later uses an STag that is
// gone, which ends its connection. read says whether the client has read since the last call, every ago.
func (c *conn) checkOffersLocked(every time.Duration, read bool) {
	for id, o := range c.offers {
		o.age += every
		if o.idle += every; read {
			o.idle = 0
		}
		if o.idle <= c.s.o.WindowTime && o.age <= max(c.s.settings.Load().JobTimeout, c.s.o.WindowTime) {
			continue
		}
		c.log.Warn("a result was not fetched in time", "job", id, "bytes", o.data.Taken(), "age", o.age)
		if err := c.endOfferLocked(id); err != nil {
			c.log.Error("result not fetched", "job", id, "err", err)
		}
		c.s.checkIdleLocked()
	}
}
