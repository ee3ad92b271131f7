package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// serve runs the connection from its request to its end.
func (c *conn) serve(req iwarp.ConnRequest) {
	defer c.s.rescue(c.log, c.lost)
	defer c.leftUnproven()
	if err := c.safely(c.open); err != nil {
		c.log.Error("connection", "err", err)
		r := job.Rejection{Cause: job.CauseFull, Detail: "no resources for another connection"}
		_ = req.Reject(r.Append(nil))
		c.release()
		return
	}
	p := &iwarp.ConnParam{Private: c.privateData}
	p.ORD, p.IRD = rdmaread.Depths(c.s.o.Device.Attr())
	info := req.Info()
	c.puller = rdmaread.New(c.qp, agreed(p.ORD, info.PeerIRD), readID)
	c.peerReads = agreed(p.IRD, info.PeerORD) > 0
	c.expectProof()
	if err := req.Accept(c.s.ctx, c.qp, p); err != nil {
		level := slog.LevelWarn
		if c.claim != nil {
			level = slog.LevelDebug // otherwise any peer could fill the log
		}
		c.log.Log(context.Background(), level, "connection not made", "err", err)
		c.release()
		return
	}
	c.s.mu.Lock()
	c.enterLocked(c.firstState())
	c.s.mu.Unlock()
	c.log.Debug("connected")
	err := c.safely(c.receive)
	c.close(err)
}

// open creates the verbs objects and posts the receives. release frees them.
func (c *conn) open() (err error) {
	d := c.s.o.Device
	recvs := c.s.recvDepth()
	sends := 2*recvs + job.NumKinds + rdmaread.Depth // a result is a Write and a Send
	if c.pd, err = d.AllocPD(); err != nil {
		return err
	}
	if c.cq, err = d.CreateCQ(recvs + sends); err != nil {
		return err
	}
	if err := c.cq.SetWaiting(c.s.o.Wait); err != nil {
		return err
	}
	c.kept.use = c.s.keepsSlots()
	qp, err := c.pd.CreateQP(iwarp.QPInitAttr{SendCQ: c.cq, RecvCQ: c.cq, MaxSend: sends, MaxRecv: recvs})
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	c.qp = qp
	c.s.mu.Unlock()
	c.recvs = make([]byte, recvs*c.s.recvLen())
	if c.recvMR, err = c.pd.RegMR(c.recvs, iwarp.LocalWrite, nil); err != nil {
		return err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for i := recvs; i > 0; i-- {
		c.spare = append(c.spare, uint64(i-1))
	}
	return c.recvDueLocked()
}

// receive handles completions until the QP ends. An error is the reason to end it.
func (c *conn) receive() error {
	wcs := make([]iwarp.WC, 32)
	for {
		n := c.cq.Poll(wcs)
		if n == 0 {
			if err := c.cq.Wait(context.Background()); err != nil {
				return err
			}
			continue
		}
		for i := range wcs[:n] {
			w := &wcs[i]
			if w.Status != iwarp.StatusSuccess {
				return nil // some receives are always posted, so this means that the QP has ended
			}
			switch {
			case w.ID&sendID != 0:
				c.sent(w.ID)
				continue
			case w.ID&readID != 0:
				if err := c.fetched(w); err != nil {
					return err
				}
				continue
			}
			if err := c.message(w); err != nil {
				return err
			}
		}
	}
}

// message handles one received message.
func (c *conn) message(w *iwarp.WC) error {
	at := int(w.ID) * c.s.recvLen()
	m, err := job.Parse(c.recvs[at : at+int(w.ByteLen)])
	state := c.at()
	if err != nil && state == connProving {
		return errUnproven
	}
	if err != nil {
		return err
	}
	if j, ok := m.(*job.Job); ok && j.Carried != nil {
		j.Carried = c.s.carried.copy(j.Carried) // the client can write over the receive once it is posted again
	}
	if err := c.received(w.ID, m); err != nil {
		if errors.Is(err, iwarp.ErrState) {
			return nil // it is being closed gracefully; an error would abort what is still in transit
		}
		return err
	}
	_, hello := m.(*job.Hello)
	switch {
	case state == connProving:
		return c.prove(m)
	case state == connGreeting && !hello:
		return errors.New("message before Hello")
	case state == connServing && hello:
		return errors.New("a second Hello")
	}
	switch m := m.(type) {
	case *job.Hello:
		return c.hello(m)
	case *job.Job:
		return c.job(m, w)
	case *job.Return:
		return c.returned(m, w)
	case *job.Release:
		return c.released(m, w)
	case *job.Cancel:
		c.cancel(m.Jobs)
		return c.ack(job.KindCancel, m.Seq)
	case *job.Heartbeat:
		return c.ack(job.KindHeartbeat, m.Seq)
	case *job.Demand:
		c.demanded(m)
		return c.ack(job.KindDemand, m.Seq)
	case *job.Keep:
		return c.keepCopy(m)
	case *job.Ack:
		return c.acked(m)
	}
	return fmt.Errorf("a client does not send messages of kind %d", m.Kind())
}

// hello answers the first message with the host's figures, its toolchains and credits.
func (c *conn) hello(m *job.Hello) error {
	s := c.s
	if s.keep != nil {
		c.keeps = s.keep.Open(c.lent.Tenant().Name())
	}
	var err error
	if c.shelf, err = c.newShelf(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.name, c.program, c.bare = m.Name, m.Program, m.Bare
	c.enterLocked(connServing)
	s.lend.Join(c.lent, c.boot, int(m.Weight), int(m.Want))
	c.log = c.log.With("name", m.Name)
	level := slog.LevelInfo
	if c.via != "" {
		level = slog.LevelDebug // it is there for a single job
	}
	c.log.Log(context.Background(), level, "client connected", "version", cmp.Or(m.Program, "not told"), "protocol", c.version)
	s.o.Audit.Connected(c.auditPeer())
	if err = c.openBoardLocked(); err != nil {
		return err
	}
	list, more := s.compilers.Now()
	err = c.sendLocked(&job.Welcome{
		Boot: s.boot, Jobs: clip16(s.o.Jobs), MaxBody: uint64(s.slots.Size()), MaxSource: c.maxSource(), Eager: uint32(s.o.Eager), MaxResult: uint64(s.slots.Size()),
		Toolchains: uint16(len(list) + len(s.received(c))), Identifying: more, Board: c.board.window(), Tree: s.places.Trees, Zstd: true, SlotsKept: c.kept.use, Sandbox: uint16(s.measuresLocked()),
		Clock: uint64(time.Now().UnixMilli()), Program: job.Clip(s.o.Program, job.MaxName), Store: s.keepsFor(c), StoreEpoch: c.keeps.Epoch(), Shelf: c.shelf.window(), Group: c.shelf.shares(), Load: s.loadLocked(),
	})
	if err != nil {
		return err
	}
	c.listToolchainsLocked()
	c.wantDrain = s.drain.begun
	c.pumpLocked()
	s.rebalanceLocked()
	return nil
}

// acked opens the window for the next message of a kind.
func (c *conn) acked(m *job.Ack) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.unasked.Acked(m) {
		return fmt.Errorf("an Ack of message %d of kind %d, which was not sent", m.Seq, m.Of)
	}
	// Credits that a Recall brought back came before its Ack. If there were none, the client needs its
	// credits: it is asked again when something changes, not at once.
	c.pumpLocked()
	return nil
}

// shut reports whether the message w has ended the client's access to mr. If the device does not say which
// STag a message has invalidated, shut invalidates mr itself.
func (c *conn) shut(w *iwarp.WC, mr iwarp.MR) bool {
	if !c.s.o.Device.Attr().WCMarks {
		return mr.Invalidate() == nil
	}
	return w.Inv && w.InvSTag == mr.STag()
}

// fetched handles the completion of a Read.
func (c *conn) fetched(w *iwarp.WC) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.puller.Completed(w)
}

// sent frees the slot of a result that has been sent.
func (c *conn) sent(id uint64) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	k := c.sending[id]
	if k == nil {
		return
	}
	delete(c.sending, id)
	if err := k.free(); err != nil {
		c.log.Error("result sent", "err", err)
	}
	s.rebalanceLocked()
	s.checkIdleLocked()
}
