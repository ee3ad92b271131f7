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

// conn is one connection of a client. serve, in a goroutine of its own, sets it up, reads its completion
// queue until the QP ends, and takes it down.
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
	recvs  []byte // job.MaxMessage bytes for each receive
	recvMR iwarp.MR
	puller *rdmaread.Puller // fetches sources; guarded by s.mu
	// peerReads says whether the client may send RDMA Reads.
	peerReads bool
	board     *board // nil: none
	// claim is set while the client has yet to prove that it has the key. It is written under s.mu, by serve's
	// goroutine or before that starts.
	claim   *psk.Claim
	proveBy *time.Timer // guarded by s.mu
	ousted  bool        // it has to make room for another connection; guarded by s.mu

	work  sync.WaitGroup // tasks that runners may hold
	keeps *store.Tenant  // the tenant's store; set by hello, until the end; nil: none

	// guarded by s.mu
	name      string           // the name that the client gives itself
	lent      *lend.Conn       // what it has been lent, and its tenant; set once, by admit
	allowance *large.Allowance // the tenant's part of the large memory; set once, by admit
	proof     string           // how it proves its identity, for the audit log; set once, by admit
	state     connState
	credits   map[uint64]*credit // on loan to the client, by ID
	tasks     map[uint64]*task   // unanswered, by the client's job ID
	taking    []chan struct{}    // those task.taken that are not closed, in order of arrival
	sending   map[uint64]*credit // slots from which a result is being sent, by work request
	offers    map[uint64]*offer  // results to be fetched, by the client's job ID
	lastWR    uint64
	received  uint64               // frames and messages received, at the last check of life
	reads     uint64               // Reads received, at that time
	wrote     uint64               // frames sent, at that time
	unacked   uint64               // bytes sent but not acknowledged, at that time
	silent    time.Duration        // time without a sign of life
	ending    ending               // why we end it, if not because of a message
	jobs      uint64               // received so far
	unasked   [job.NumKinds]window // by kind
	toGrant   []uint64             // credits that no Grant has announced yet
	toRecall  int                  // credits that the next Recall asks for
	wantDrain bool                 // a Drain is to be sent
	listNext  int                  // index of the next toolchain to announce; -1: none
	list      []unit.ToolchainID
	tellNames bool // the compilers' names are to be sent
}

// errLost ends what was under way on a connection that is gone.
var errLost = errors.New("connection lost")

// window allows one unsolicited message of a kind to be unacknowledged.
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

// recvDepth returns how many receives are posted at all times: one for each credit that the client can hold,
// which may become a Job or a Return, and then its result's window a Release; and job.Spare for the rest.
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

// agreed returns the depth of RDMA Reads that results from ours and the peer's.
func agreed(ours, theirs uint16) int {
	if theirs == iwarp.DepthAny {
		return int(ours)
	}
	return int(min(ours, theirs))
}

// maxSource returns the size of the largest source that can be fetched from the client, in bytes; 0 if none
// can be.
func (c *conn) maxSource() uint64 {
	if !c.puller.Can() {
		return 0
	}
	return uint64(min(c.s.o.Source, c.s.large.Max()))
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

// message handles one received message and posts its receive again.
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

// listToolchainsLocked announces all toolchains to the client, starting over from the first.
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

// pumpLocked sends the unsolicited messages that are due and whose window is open.
func (c *conn) pumpLocked() {
	if c.state != connServing {
		return
	}
	if w := &c.unasked[job.KindCompilers]; !w.waiting && c.tellNames { // before the toolchains, with which a manager begins to send jobs
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

// open takes the window for a message and returns its sequence number.
func (w *window) open() uint32 {
	w.seq++
	w.waiting = true
	return w.seq
}

// tellLocked sends an unsolicited message. If that fails, it ends the QP.
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

// ack acknowledges an unsolicited message of the client. The queue can be full only if the client sends the
// next message before the Ack of the last.
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
