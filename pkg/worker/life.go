package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// checkLifeLocked asks a quiet client for a sign of life, and drops a silent one. It is called once per
// every. It counts calls and does not look at the clock, because a daemon that was itself stopped for a while
// must not take that for silence of its clients.
func (c *conn) checkLifeLocked(every time.Duration) {
	if c.state == connOpening || c.state == connEnded {
		return
	}
	// On a slow network, a long source or result is in transit for a while with no message in between, and
	// the kernel keeps sending from its buffers after all is written.
	st := c.qp.Stats()
	moving := len(c.sending)+len(c.offers) > 0 && st.FPDUsSent != c.life.wrote || st.Unacked != 0 && st.Unacked != c.life.unacked
	// If the device does not count Reads, only a window's age counts.
	read := st.ReadsReceived != c.life.reads || st.Unacked != 0 && st.Unacked != c.life.unacked || !c.s.o.Device.Attr().ReadStats
	c.checkOffersLocked(every, read)
	c.life.reads = st.ReadsReceived
	if quiet := c.puller.Tick(every); quiet > c.s.o.WindowTime {
		c.log.Warn("client does not answer RDMA Reads", "for", quiet)
		c.ending = endedUnread
		c.qp.Abort()
		return
	}
	heard := st.FPDUsReceived + st.SendsReceived // a device may count no frames
	if heard != c.life.received || moving {
		c.life.silent = 0
	} else {
		c.life.silent += every
	}
	c.life.received, c.life.wrote, c.life.unacked = heard, st.FPDUsSent, st.Unacked
	ask, lost := c.s.o.Heartbeat, c.s.o.Silence
	if c.restsLocked(every) {
		ask += (restBeats - 1) * c.s.o.Heartbeat
		lost += (restBeats - 1) * c.s.o.Heartbeat
	}
	if c.life.silent > lost {
		c.log.Warn("client is silent", "for", c.life.silent)
		c.ending = endedSilent
		c.qp.Abort()
		return
	}
	if c.state == connServing && c.unasked.Free(job.KindHeartbeat) && c.life.silent >= ask {
		c.tellLocked(&job.Heartbeat{Seq: c.unasked.Next(job.KindHeartbeat)})
	}
}

// A client without a job for restAfter heartbeats rests: it is asked for a sign of life after restBeats heartbeats of silence, and
// counts as silent that much later. A manager does the same with a host that it does not use.
const (
	restAfter = 10
	restBeats = 4
)

// restsLocked reports whether the client rests. It is called once per every.
func (c *conn) restsLocked(every time.Duration) bool {
	if c.jobs != c.life.jobs || len(c.tasks)+len(c.sending)+len(c.offers) > 0 {
		c.life.unused = 0
	} else {
		c.life.unused += every
	}
	c.life.jobs = c.jobs
	return c.life.unused > restAfter*c.s.o.Heartbeat
}

// end makes a connection end, gracefully if asked to. serve does the rest.
func (c *conn) end(graceful bool) {
	c.s.mu.Lock()
	qp := c.qp
	c.s.mu.Unlock()
	if qp == nil {
		return
	}
	if graceful {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if qp.Disconnect(ctx) == nil {
			return
		}
	}
	qp.Abort()
}

// close takes the connection down once receive has returned. It kills the connection's compilers, and frees
// what it held after the last runner has released it.
func (c *conn) close(why error) {
	s := c.s
	switch {
	case errors.Is(why, errPanic):
		c.qp.Abort()
	case errors.Is(why, errUnproven), errors.Is(why, errCrowded):
		c.qp.Abort()
	case why != nil:
		c.log.Warn("client broke the protocol", "err", why)
		s.o.Metrics.refused(job.CauseMalformed)
		c.qp.Abort()
	}
	<-c.qp.Done()
	s.mu.Lock()
	c.endLocked()
	c.puller.End(errLost)
	tasks := s.dropLocked(c)
	given := c.ending
	s.mu.Unlock()
	c.markEnded(why, given)
	for _, t := range tasks {
		t.stop(job.CauseCancelled)
	}
	c.work.Wait()
	level := slog.LevelInfo
	if c.lent.Client() == nil || c.via != "" {
		level = slog.LevelDebug // otherwise any peer could fill the log
	}
	s.o.Audit.Gone(c.auditPeer(), c.jobs, time.Since(c.since), c.qp.Err())
	c.log.Log(context.Background(), level, "client gone", "jobs", c.jobs, "err", c.qp.Err())
	c.release()
}

// release frees what open created and all loans, and removes the connection.
func (c *conn) release() {
	s := c.s
	defer c.leaveStore()
	var errs []error
	if c.qp != nil {
		errs = append(errs, c.qp.Destroy())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range c.credits {
		errs = append(errs, k.free())
	}
	for _, k := range c.sending {
		errs = append(errs, k.free())
	}
	for _, t := range c.tasks { // those that met a panic
		t.overLocked()
		s.missedLocked(t)
		errs = append(errs, t.k.free())
		t.job.Drop()
	}
	clear(c.tasks)
	for id := range c.offers {
		errs = append(errs, c.endOfferLocked(id))
	}
	clear(c.credits)
	clear(c.sending)
	errs = append(errs, c.closeKeptLocked()...)
	errs = append(errs, c.leaveShelf())
	errs = append(errs, c.board.free())
	c.board = nil
	if c.recvMR != nil {
		errs = append(errs, c.recvMR.Dereg())
	}
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
	}
	if c.pd != nil {
		errs = append(errs, c.pd.Dealloc())
	}
	if err := errors.Join(errs...); err != nil {
		c.log.Error("connection taken down", "err", err)
	}
	s.leaveLocked(c)
	s.rebalanceLocked()
	s.checkIdleLocked()
}

// endLocked marks the connection as ended: it gets no more credits and no more messages.
func (c *conn) endLocked() {
	c.enterLocked(connEnded)
	c.lent.End()
}

// leaveStore ends the connection's use of its tenant's store. It may take a while, so it is called without
// the lock.
func (c *conn) leaveStore() {
	keeps, s := c.keeps, c.s
	c.keeps = nil
	keeps.Close()
	if keeps != nil && keeps.Wiped() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wake.Broadcast() // trees have to drop what they keep for the tenant
	}
}

// leaveLocked removes a connection that has ended and has nothing under way. A second call does nothing.
func (s *Server) leaveLocked(c *conn) {
	if !s.conns[c] {
		return
	}
	delete(s.conns, c)
	s.lend.Leave(c.lent, time.Now())
	s.large.Leave(c.lent.Tenant().Name())
}

// lost drops a connection that cannot be taken down in the normal way, because of a panic. Last of all, it
// stops counting it.
func (c *conn) lost() {
	s := c.s
	defer c.leaveStore()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.qp != nil {
		c.qp.Abort()
	}
	c.endLocked()
	s.leaveLocked(c)
	s.checkIdleLocked()
}
