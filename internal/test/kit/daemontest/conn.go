package daemontest

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Conn is one manager's connection.
type Conn struct {
	d       *Daemon
	QP      iwarp.QP
	Boot    [16]byte // of the manager
	Program string   // of the manager; what its Hello says
	version uint16   // of the protocol
	cq      iwarp.CQ
	recv    []byte
	rmr     iwarp.MR

	claim *psk.Claim // nil if there is nothing to prove or it has been proven

	Mu      sync.Mutex      // guards the rest
	Heard   int             // messages received
	Slots   map[uint64]slot // by credit
	next    uint64
	running map[uint64]*Job
	Acks    []job.Ack
	Demands []job.Demand
	Returns []uint64
	results []iwarp.MR          // of results that may still be under way
	offers  map[uint64]iwarp.MR // results that the manager must release, by job; 0 is the load board, 1<<63 the shelf
	read    chan iwarp.Status   // statuses of Reads, which are posted one at a time
	reading sync.Mutex
}

// slot is the memory of a credit.
type slot struct {
	mem []byte
	mr  iwarp.MR
}

// end ends the manager's access to the slot, if there is one. It reports whether the message that spent the
// credit has invalidated just that.
func (s *slot) end(wc *iwarp.WC) bool {
	if s.mr == nil {
		return !wc.Inv
	}
	defer func() { _ = s.mr.Dereg() }()
	return wc.Inv && wc.InvSTag == s.mr.STag()
}

const recvs = 256

// reads is the work request ID of Reads.
const reads = 2 << 32

func (c *Conn) open(r iwarp.ConnRequest) (err error) {
	if c.cq, err = c.d.dev.CreateCQ(4 * recvs); err != nil {
		return err
	}
	if c.rmr, err = c.d.pd.RegMR(c.recv, iwarp.LocalWrite, nil); err != nil {
		return err
	}
	c.QP, err = c.d.pd.CreateQP(iwarp.QPInitAttr{SendCQ: c.cq, RecvCQ: c.cq, MaxSend: recvs, MaxRecv: recvs})
	if err != nil {
		return err
	}
	for i := range recvs {
		if err := c.post(i); err != nil {
			return err
		}
	}
	hi := job.Greeting{Version: c.version}
	if c.d.Version != 0 {
		hi.Version = c.d.Version
	}
	p := &iwarp.ConnParam{PrivateData: hi.Append(nil)}
	if k := c.d.Key; k != nil {
		if c.claim, err = k.Judge(r.Info().PrivateData); err != nil {
			return errors.Join(err, r.Reject((&job.Rejection{Cause: job.CauseDenied, Detail: err.Error()}).Append(nil)))
		}
		p.Private = func(i iwarp.ConnInfo) []byte { return c.claim.Answer(hi.Append(nil), i.Request, i.Reply) }
	}
	if bend := c.d.Bend; bend != nil {
		made := p.Private
		p.Private = func(i iwarp.ConnInfo) []byte {
			b := p.PrivateData
			if made != nil {
				b = made(i)
			}
			return bend(b)
		}
	}
	if c.d.Fetches > 0 || c.d.Board != nil || c.d.Shelf != nil {
		p.ORD, p.IRD = 4, 4
	}
	return r.Accept(context.Background(), c.QP, p)
}

func (c *Conn) post(i int) error {
	return c.QP.PostRecv(&iwarp.RecvWR{ID: uint64(i) | 1<<32,
		SGL: []iwarp.SGE{{Addr: uint64(i * c.d.recvLen()), Length: uint32(c.d.recvLen()), LKey: c.rmr.STag()}}})
}

func (c *Conn) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-c.QP.Done(); cancel() }()
	var jobs sync.WaitGroup
	for {
		var wc [8]iwarp.WC
		n := c.cq.Poll(wc[:])
		if n == 0 {
			if ctx.Err() != nil {
				break
			}
			_ = c.cq.Wait(ctx)
			continue
		}
		for i := range wc[:n] {
			switch {
			case wc[i].ID == reads:
				select {
				case c.read <- wc[i].Status:
				case <-ctx.Done():
				}
			case wc[i].ID>>32 == 1 && wc[i].Status == iwarp.StatusSuccess:
				c.message(ctx, &wc[i], &jobs)
			}
		}
	}
	jobs.Wait()
	c.Mu.Lock()
	for _, s := range c.Slots {
		if s.mr != nil {
			_ = s.mr.Dereg()
		}
	}
	for _, mr := range c.results {
		_ = mr.Dereg()
	}
	for _, mr := range c.offers {
		_ = mr.Dereg()
	}
	c.Mu.Unlock()
	_ = c.QP.Destroy()
	_ = c.rmr.Dereg()
	_ = c.cq.Close()
}

func (c *Conn) message(ctx context.Context, wc *iwarp.WC, jobs *sync.WaitGroup) {
	i := int(uint32(wc.ID))
	m, err := job.Parse(c.recv[i*c.d.recvLen():][:wc.ByteLen])
	if err != nil {
		c.d.t.Errorf("fake daemon got %v", err)
		return
	}
	if j, ok := m.(*job.Job); ok {
		j.Carried = bytes.Clone(j.Carried)
	}
	if err := c.post(i); err != nil {
		c.d.t.Logf("fake daemon: %v", err)
	}
	c.Mu.Lock()
	c.Heard++
	c.Mu.Unlock()
	if c.claim != nil {
		p, ok := m.(*job.Proof)
		if !ok || c.claim.Check(p.MAC[:]) != nil {
			c.d.t.Errorf("fake daemon: %T %+v where a right proof is due", m, m)
			c.QP.Abort()
		}
		c.claim = nil
		return
	}
	switch m := m.(type) {
	case *job.Hello:
		if m.Program != "" && c.version < 12 {
			c.d.t.Errorf("a Hello in version %d: %+v", c.version, m)
		}
		c.Program = m.Program
		if c.d.OnHello != nil {
			c.d.OnHello(c)
			return
		}
		c.Welcome()
	case *job.Job:
		j := &Job{Job: *m}
		j.Ctx, j.cancel = context.WithCancel(ctx)
		c.Mu.Lock()
		slot, ok := c.Slots[m.Credit]
		delete(c.Slots, m.Credit)
		c.running[m.ID] = j
		c.Mu.Unlock()
		if !ok || !slot.end(wc) {
			c.d.t.Errorf("job %d spends credit %d with invalidation %v of %#x", m.ID, m.Credit, wc.Inv, wc.InvSTag)
			return
		}
		c.d.Mu.Lock()
		c.d.seen++
		c.d.Mu.Unlock()
		jobs.Go(func() {
			content := slot.mem
			if m.Carried != nil {
				content = m.Carried
			}
			if m.Source.STag != 0 {
				if c.d.OnSource != nil {
					c.d.OnSource(m)
				}
				if content = c.fetch(m.Source); content == nil {
					return // the QP is gone
				}
			}
			total := uint64(m.TextOff) + m.TextLen
			j.moved = uint64(len(content))
			if m.Source.STag == 0 && m.Carried == nil {
				j.moved = total
			}
			var err error
			if m.Packed != 0 {
				if j.moved = m.Packed; !c.d.Zstd {
					c.d.t.Errorf("job %d is packed, which was not offered", m.ID)
				}
				if content, err = compress.Unpack(nil, content[:m.Packed], total); err != nil {
					c.d.t.Errorf("job %d: %v", m.ID, err)
					return
				}
			}
			if digest.Sum(content[:total]) != m.Digest {
				c.d.t.Errorf("job %d has another digest than its source", m.ID)
			}
			if j.body, err = job.ParseBody(content[:m.BodyLen]); err != nil {
				c.d.t.Errorf("body: %v", err)
				return
			}
			j.Text = bytes.Clone(content[m.TextOff:][:m.TextLen])
			c.d.OnJob(c, j)
		})
	case *job.Release:
		c.Mu.Lock()
		mr := c.offers[m.ID]
		delete(c.offers, m.ID)
		c.Mu.Unlock()
		if mr == nil || !wc.Inv || wc.InvSTag != mr.STag() {
			c.d.t.Errorf("job %d released with invalidation %v of %#x", m.ID, wc.Inv, wc.InvSTag)
			return
		}
		_ = mr.Dereg()
	case *job.Return:
		c.Mu.Lock()
		slot, ok := c.Slots[m.Credit]
		delete(c.Slots, m.Credit)
		c.Returns = append(c.Returns, m.Credit)
		c.Mu.Unlock()
		if !ok || !slot.end(wc) {
			c.d.t.Errorf("credit %d returned with invalidation %v of %#x", m.Credit, wc.Inv, wc.InvSTag)
			return
		}
	case *job.Heartbeat:
		if c.d.OnBeat != nil {
			c.d.OnBeat()
		}
		if !c.d.Mute && (c.d.Deaf == nil || !c.d.Deaf()) {
			c.Send(&job.Ack{Of: job.KindHeartbeat, Seq: m.Seq}, 0)
		}
	case *job.Demand:
		c.Mu.Lock()
		c.Demands = append(c.Demands, *m)
		c.Mu.Unlock()
		if !c.d.Mute && (c.d.Deaf == nil || !c.d.Deaf()) {
			c.Send(&job.Ack{Of: job.KindDemand, Seq: m.Seq}, 0)
		}
	case *job.Keep:
		if c.d.OnKeep == nil {
			c.d.t.Errorf("fake daemon is to keep %+v", m)
			return
		}
		jobs.Go(func() {
			if b := c.fetch(m.Window); b != nil && c.d.OnKeep(m, b) {
				c.Send(&job.Ack{Of: job.KindKeep, Seq: m.Seq}, 0)
			}
		})
	case *job.Cancel:
		if c.d.OnCancel != nil {
			c.d.OnCancel(c, m)
			return
		}
		c.Send(&job.Ack{Of: job.KindCancel, Seq: m.Seq}, 0)
		c.Mu.Lock()
		for _, id := range m.Jobs {
			if j := c.running[id]; j != nil {
				j.cancel()
			}
		}
		c.Mu.Unlock()
	case *job.Ack:
		c.Mu.Lock()
		c.Acks = append(c.Acks, *m)
		c.Mu.Unlock()
	default:
		c.d.t.Errorf("fake daemon got a %T", m)
	}
}

// Welcome sends all that a manager waits for: the Welcome, the toolchains and the first credits.
func (c *Conn) Welcome() {
	w := &job.Welcome{Tree: c.d.Tree, Sandbox: c.d.Sandbox, Zstd: c.d.Zstd, Jobs: uint16(c.d.Jobs), MaxBody: uint64(c.d.SlotSize), MaxSource: uint64(c.d.Fetches), Eager: uint32(c.d.Eager), Store: uint64(c.d.Store), MaxResult: 1 << 30, Toolchains: uint16(len(c.d.IDs))}
	if c.d.Board != nil {
		w.Board = c.offer(0, c.d.Board(), c.d.BoardGuard)
	}
	if c.d.Shelf != nil {
		w.Shelf, w.Group = c.offer(1<<63, c.d.Shelf, c.d.ShelfGuard), c.d.Group
	}
	c.Send(w, 0)
	c.Send(&job.Toolchains{Seq: 1, Total: uint16(len(c.d.IDs)), IDs: c.d.IDs}, 0)
	c.Grant(c.d.Jobs)
}

// Send sends a message. inv, if not zero, is the STag that it invalidates.
func (c *Conn) Send(m job.Message, inv iwarp.STag) {
	wr := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: job.Append(nil, m)}
	if inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, inv
	}
	if err := c.QP.PostSend(wr); err != nil && !errors.Is(err, iwarp.ErrState) {
		c.d.t.Errorf("fake daemon: send %T: %v", m, err)
	}
}

// credit returns a new credit with a slot of its own, or a bare one.
func (c *Conn) credit() job.Credit {
	if c.d.Bare {
		c.Mu.Lock()
		defer c.Mu.Unlock()
		c.next++
		c.Slots[c.next] = slot{}
		return job.Credit{ID: c.next}
	}
	mem := make([]byte, c.d.SlotSize)
	mr, err := c.d.pd.RegMR(mem, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.QP})
	if err != nil {
		c.d.t.Logf("fake daemon: %v", err) // the QP is gone
		return job.Credit{}
	}
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.next++
	c.Slots[c.next] = slot{mem, mr}
	return job.Credit{ID: c.next, Slot: job.Window{STag: uint32(mr.STag()), TO: mr.Base(), Len: uint64(len(mem))}}
}

// Grant gives the manager n credits.
func (c *Conn) Grant(n int) {
	g := &job.Grant{Seq: 1}
	for range n {
		g.Credits = append(g.Credits, c.credit())
	}
	c.Send(g, 0)
}

// fetch returns the content of a window, or nil if the connection ends first.
func (c *Conn) fetch(w job.Window) []byte {
	mem := make([]byte, w.Len)
	mr, err := c.d.pd.RegMR(mem, iwarp.LocalWrite, nil)
	if err != nil {
		c.d.t.Errorf("fake daemon: %v", err)
		return nil
	}
	defer func() { _ = mr.Dereg() }()
	c.reading.Lock()
	defer c.reading.Unlock()
	for at := uint64(0); at < w.Len; {
		n := min(w.Len-at, 1<<20)
		err := c.QP.PostSend(&iwarp.SendWR{ID: reads, Op: iwarp.OpRead, STag: iwarp.STag(w.STag), TO: w.TO + at,
			SGL: []iwarp.SGE{{Addr: mr.Base() + at, Length: uint32(n), LKey: mr.STag()}}})
		status := iwarp.StatusWRFlushErr
		if err == nil {
			select {
			case status = <-c.read:
			case <-c.QP.Done(): // serve may have polled for the last time before the Read was posted
			}
		}
		if status != iwarp.StatusSuccess {
			<-c.QP.Done()
			return nil
		}
		at += n
	}
	return mem
}

// Reach posts wr, a Read or Write of memory of the manager's that the test means to be out of reach, to or
// from mem, and waits for the end of the connection.
func (c *Conn) Reach(wr iwarp.SendWR, mem []byte) {
	mr, err := c.d.pd.RegMR(mem, iwarp.LocalWrite, nil)
	if err != nil {
		c.d.t.Errorf("fake daemon: %v", err)
		return
	}
	defer func() { _ = mr.Dereg() }()
	wr.SGL = []iwarp.SGE{{Addr: mr.Base(), Length: uint32(len(mem)), LKey: mr.STag()}}
	if err := c.QP.PostSend(&wr); err != nil {
		c.d.t.Errorf("fake daemon: %v", err)
		return
	}
	<-c.QP.Done()
}

// offer opens a window on data, which the manager releases by the job's id. The ids 0 and 1<<63 are for the load
// board and the shelf.
func (c *Conn) offer(id uint64, data []byte, guard sync.Locker) job.Window {
	mr, err := c.d.pd.RegMR(data, iwarp.RemoteRead, &iwarp.MROptions{QP: c.QP, Guard: guard})
	if err != nil {
		c.d.t.Logf("fake daemon: %v", err) // the QP is gone
		return job.Window{}
	}
	c.Mu.Lock()
	c.offers[id] = mr
	c.Mu.Unlock()
	return job.Window{STag: uint32(mr.STag()), TO: mr.Base(), Len: uint64(mr.Len())}
}
