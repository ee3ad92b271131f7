package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
	"github.com/rdistcc/rdistcc/pkg/worker/offered"
)

// closeTime bounds a graceful disconnect.
const closeTime = 2 * time.Second

// conn is one client's connection. serve, in a goroutine of its own, makes it,
// reads its completion queue until the QP ends, and takes it down.
type conn struct {
	s      *Server
	log    *slog.Logger
	id     uint64
	remote net.Addr
	since  time.Time
	boot   [16]byte // of the Greeting
	peer   lend.Peer

	// set once by open, before the first message
	pd     iwarp.PD
	cq     iwarp.CQ
	qp     iwarp.QP
	recvs  []byte // one part of job.MaxMessage bytes for each receive
	recvMR iwarp.MR
	puller *rdmaread.Puller // of sources; guarded by s.mu
	// peerReads: the client may send RDMA Reads.
	peerReads bool
	board     *board // nil: there is none
	// claim is of a client that has yet to prove that it has the key; nil: none has to.
	// Written by serve's goroutine, or before it, under s.mu.
	claim   *psk.Claim
	proveBy *time.Timer // guarded by s.mu
	ousted  bool        // the same: it has to make room for another one

	work  sync.WaitGroup // tasks that runners may hold
	keeps *store.Tenant  // where its contents are kept; set by hello, until the end; nil: nowhere

	// guarded by s.mu
	name      string
	lent      *lend.Conn       // what it has been lent, and for whom; set once, by admit
	allowance *large.Allowance // of the large memory, its tenant's; as above
	proof     string           // how it proves who it is, for the audit log; as above
	state     connState
	credits   map[uint64]*credit // on loan, by id
	tasks     map[uint64]*task   // unanswered, by the client's id
	taking    []chan struct{}    // task.taken of those that are not closed, in order of arrival
	sending   map[uint64]*credit // slots from which a result is sent, by work request
	offers    map[uint64]*offer  // results to be fetched, by the client's id of the job
	lastWR    uint64
	received  uint64        // frames and messages, at the last look at its life
	reads     uint64        // of the client's, at that time
	wrote     uint64        // the same
	unacked   uint64        // bytes under way then
	silent    time.Duration // without a sign of life
	ending    ending        // why we end it, if that is decided here
	jobs      uint64
	unasked   [job.NumKinds]window // by kind
	toGrant   []uint64             // credits of which no Grant has told yet
	toRecall  int
	wantDrain bool
	listNext  int // index of the next toolchain to tell of
	list      []unit.ToolchainID
	tellNames bool // of the compilers behind them
}

// errLost ends what a connection that is gone had under way.
var errLost = errors.New("connection lost")

// window lets one unasked message of a kind be under way.
type window struct {
	seq     uint32
	waiting bool
}

func newConn(s *Server, id uint64, remote net.Addr) *conn {
	return &conn{
		s: s, id: id, remote: remote, since: time.Now(),
		log:     s.o.Log.With("client", id, "remote", remote.String()),
		credits: make(map[uint64]*credit),
		tasks:   make(map[uint64]*task),
		sending: make(map[uint64]*credit),
		offers:  make(map[uint64]*offer),
	}
}

// recvDepth is how many receives are posted at all times: each credit that the
// client can hold may become a Job or a Return, the job's window a Release, and
// job.Spare for the rest.
func (s *Server) recvDepth() int { return s.most() + 1 + job.Spare }

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
			level = slog.LevelDebug // anybody could fill the log
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

// lost drops a connection that cannot be taken down in order: the last thing is that
// it is not counted any more.
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

// endLocked marks it as ended: it is lent nothing more, and told nothing.
func (c *conn) endLocked() {
	c.enterLocked(connEnded)
	c.lent.End()
}

// leaveStore ends its part in what is kept for its tenant. It may take a while: it is called
// without the lock.
func (c *conn) leaveStore() {
	keeps, s := c.keeps, c.s
	c.keeps = nil
	keeps.Close()
	if keeps != nil && keeps.Wiped() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wake.Broadcast() // what trees keep for it has to go too
	}
}

// agreed is what becomes of our wish for Reads, and the peer's.
func agreed(ours, theirs uint16) int {
	if theirs == iwarp.DepthAny {
		return int(ours)
	}
	return int(min(ours, theirs))
}

// maxSource is the longest source that can be fetched from the client, in bytes.
func (c *conn) maxSource() uint64 {
	if !c.puller.Can() {
		return 0
	}
	return uint64(min(c.s.o.Source, c.s.large.Max()))
}

// open makes the verbs objects and posts the receives.
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
	qp, err := c.pd.CreateQP(iwarp.QPInitAttr{SendCQ: c.cq, RecvCQ: c.cq, MaxSend: sends, MaxRecv: recvs})
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	c.qp = qp
	c.s.mu.Unlock()
	c.recvs = make([]byte, recvs*job.MaxMessage)
	if c.recvMR, err = c.pd.RegMR(c.recvs, iwarp.LocalWrite, nil); err != nil {
		return err
	}
	for i := range recvs {
		if err := c.postRecv(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// postRecv posts receive i; sends have IDs with the top bit set, Reads with readID.
func (c *conn) postRecv(i uint64) error {
	return c.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{{
		Addr: c.recvMR.Base() + i*job.MaxMessage, Length: job.MaxMessage, LKey: c.recvMR.STag(),
	}}})
}

const (
	sendID = 1 << 63
	readID = 1 << 62
)

// receive handles completions until the QP ends; an error is why we end it.
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
				return nil // receives are always posted: this is the QP's end
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

// message handles one received message and posts its receive anew.
func (c *conn) message(w *iwarp.WC) error {
	at := int(w.ID) * job.MaxMessage
	m, err := job.Parse(c.recvs[at : at+int(w.ByteLen)])
	state := c.at()
	if err != nil && state == connProving {
		return errUnproven
	}
	if err != nil {
		return err
	}
	if err := c.postRecv(w.ID); err != nil {
		if errors.Is(err, iwarp.ErrState) {
			return nil // being closed in order, which an error would spoil for what is on its way
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
	case *job.Ack:
		return c.acked(m)
	}
	return fmt.Errorf("a client does not send messages of kind %d", m.Kind())
}

// hello answers the first message: the host's figures, its toolchains, credits.
func (c *conn) hello(m *job.Hello) error {
	s := c.s
	if s.keep != nil {
		c.keeps = s.keep.Open(c.lent.Tenant().Name())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.name = m.Name
	c.enterLocked(connServing)
	s.lend.Join(c.lent, c.boot, int(m.Weight), int(m.Want))
	c.log = c.log.With("name", m.Name)
	c.log.Info("client connected")
	s.o.Audit.Connected(c.auditPeer())
	err := c.openBoardLocked()
	if err != nil {
		return err
	}
	list, more := s.compilers.Now()
	err = c.sendLocked(&job.Welcome{
		Boot: s.boot, Jobs: clip16(s.o.Jobs), MaxBody: uint64(s.slots.Size()), MaxSource: c.maxSource(), MaxResult: uint64(s.slots.Size()),
		Toolchains: uint16(len(list)), Identifying: more, Board: c.board.window(), Tree: s.places.Trees, Zstd: true, Sandbox: uint16(s.measuresLocked()),
		Clock: uint64(time.Now().UnixMilli()), Program: job.Clip(s.o.Program, job.MaxName), Store: s.keepsFor(c), StoreEpoch: c.keeps.Epoch(), Load: s.loadLocked(),
	})
	if err != nil {
		return err
	}
	c.listToolchainsLocked()
	c.wantDrain = s.draining
	c.pumpLocked()
	s.rebalanceLocked()
	return nil
}

// listToolchainsLocked tells the client of all toolchains, from the first on.
func (c *conn) listToolchainsLocked() {
	if c.state != connServing {
		return
	}
	c.list = c.list[:0]
	for _, t := range c.s.Toolchains() {
		c.list = append(c.list, t.ID)
	}
	c.listNext, c.tellNames = 0, true
	c.pumpLocked()
}

// pumpLocked sends the unasked messages that are due and whose window is open.
func (c *conn) pumpLocked() {
	if c.state != connServing {
		return
	}
	if w := &c.unasked[job.KindCompilers]; !w.waiting && c.tellNames { // before the toolchains, which let a manager begin
		c.tellNames = false
		c.tellLocked(&job.Compilers{Seq: w.open(), Names: offered.Names(c.s.Toolchains())})
	}
	if w := &c.unasked[job.KindToolchains]; !w.waiting && c.listNext >= 0 {
		n := min(len(c.list)-c.listNext, job.MaxIDs)
		m := &job.Toolchains{Seq: w.open(), First: uint16(c.listNext), Total: uint16(len(c.list)), More: c.s.Identifying(), IDs: c.list[c.listNext : c.listNext+n]}
		if c.listNext += n; c.listNext == len(c.list) {
			c.listNext = -1
		}
		c.tellLocked(m)
	}
	if w := &c.unasked[job.KindGrant]; !w.waiting && len(c.toGrant) > 0 {
		m := &job.Grant{}
		for len(c.toGrant) > 0 && len(m.Credits) < job.MaxCredits {
			k := c.credits[c.toGrant[0]]
			c.toGrant = c.toGrant[1:]
			m.Credits = append(m.Credits, k.onWire())
		}
		m.Seq = w.open()
		c.tellLocked(m)
	}
	if w := &c.unasked[job.KindRecall]; !w.waiting && c.toRecall > 0 {
		c.tellLocked(&job.Recall{Seq: w.open(), Count: uint16(c.toRecall)})
		c.toRecall = 0
	}
	if w := &c.unasked[job.KindDrain]; !w.waiting && c.wantDrain {
		c.wantDrain = false
		c.tellLocked(&job.Drain{Seq: w.open()})
	}
}

func (w *window) open() uint32 {
	w.seq++
	w.waiting = true
	return w.seq
}

// tellLocked sends an unasked message; if that fails the QP is at its end.
func (c *conn) tellLocked(m job.Message) {
	if err := c.sendLocked(m); err != nil {
		c.log.Debug("send", "err", err)
		c.qp.Abort()
	}
}

// sendLocked posts a message as a plain Send.
func (c *conn) sendLocked(m job.Message) error {
	return c.qp.PostSend(&iwarp.SendWR{
		ID: sendID, Op: iwarp.OpSend, Flags: iwarp.Unsignaled | iwarp.Inline, Data: job.Append(nil, m),
	})
}

// ack answers an unasked message of the client's. A full queue is one that sends
// the next before the ack of the last.
func (c *conn) ack(of job.Kind, seq uint32) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.sendLocked(&job.Ack{Of: of, Seq: seq, Load: c.s.loadLocked()})
}

// acked opens the window for the next message of a kind.
func (c *conn) acked(m *job.Ack) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	w := &c.unasked[m.Of]
	if !w.waiting || w.seq != m.Seq {
		return fmt.Errorf("an Ack of message %d of kind %d, which was not sent", m.Seq, m.Of)
	}
	w.waiting = false
	// What a Recall brought came before this. If that was nothing the client needs its
	// credits: it is asked again when something changes, and not at once.
	c.pumpLocked()
	return nil
}

// shut says whether the message w has ended the client's access to mr. A device
// that does not tell leaves it to us.
func (c *conn) shut(w *iwarp.WC, mr iwarp.MR) bool {
	if !c.s.o.Device.Attr().WCMarks {
		return mr.Invalidate() == nil
	}
	return w.Inv && w.InvSTag == mr.STag()
}

// fetched takes the completion of a Read.
func (c *conn) fetched(w *iwarp.WC) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.puller.Completed(w)
}

// sent frees the slot from which a result went.
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
