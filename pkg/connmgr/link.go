package connmgr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/fetch"
	"github.com/rdistcc/rdistcc/pkg/identity"
	"github.com/rdistcc/rdistcc/pkg/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// Bounds of one connection.
const (
	// maxInFlight bounds credits and jobs together on one connection: what is
	// granted beyond goes back at once. Each takes a receive of MaxMessage bytes.
	maxInFlight = 128
	recvBuffers = maxInFlight + job.Spare + 1 // and one for the Welcome
	maxSend     = maxInFlight*(chunksPosted+1) + fetch.Depth + 4*job.Spare
)

// Kinds of work requests, in the top byte of their ids.
const (
	wrRecv  = uint64(1) << 56 // and the index of the buffer
	wrWrite = uint64(2) << 56 // and the flight's id
	wrOther = uint64(3) << 56
	wrRead  = uint64(4) << 56
	wrKind  = uint64(0xff) << 56
)

// link is one live connection to a daemon: the QP, its posted receives, the
// credits that it carries and the jobs that are under way on it. It ends once,
// by fail or by the peer; dead is then closed and every flight has its error.
//
// Every method that ends in Locked needs Manager.mu.
type link struct {
	m *Manager
	h *host

	// set once in dial
	qp      iwarp.QP
	cq      iwarp.CQ
	recvMem []byte // recvBuffers messages
	recvMR  iwarp.MR
	// peerReads: the daemon may send RDMA Reads.
	peerReads bool
	up        chan struct{} // closed once Welcome and the toolchains are here
	retire    chan struct{} // closed when it is not needed any more
	dead      chan struct{} // closed when no completion is to come any more

	// guarded by m.mu
	cause    error // why it ends, once that is known
	ended    bool  // dead is closed
	ready    bool  // up is closed
	welcome  *job.Welcome
	ids      map[job.ToolchainID]bool
	idsTotal int // of the toolchains that were listed
	idsSeen  int
	credits  []job.Credit // unspent; the last one is the next
	flights  map[uint64]*flight
	puller   *fetch.Puller // of results and of the load board; nil until the connection is made
	offers   int           // results that the daemon keeps for us: a Release is due for each
	stopping int           // pulls that were stopped and have Reads under way
	spare    []int         // receive buffers that are not posted
	landed   bool          // a flight of those completions that are being handled
	draining bool
	used     time.Time // when it had something to do last
	turns    turns
	demand   demand
	path     path
	view     view
	board    boardReader

	beatSeq, beatAcked     uint32
	beatAt                 time.Time // when the last one was sent
	beatMark               uint64    // what the peer's host acknowledges before it, in bytes of the stream
	cancelSeq, cancelAcked uint32
	cancels                []uint64 // waiting for the Ack of the Cancel before

	heard   int64  // frames and messages received at the last tick, but for board reads
	sent    uint64 // sent FPDUs at the last tick
	unacked uint64 // bytes under way at the last tick
	acked   uint64 // bytes acknowledged at the last tick
	silent  time.Duration
}

// dialLink connects to h and returns once the daemon has said what it can do.
func dialLink(ctx context.Context, m *Manager, h *host) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.DialTimeout)
	defer cancel()
	l := &link{
		m: m, h: h,
		up:      make(chan struct{}),
		retire:  make(chan struct{}),
		dead:    make(chan struct{}),
		ids:     make(map[job.ToolchainID]bool),
		flights: make(map[uint64]*flight),
		recvMem: make([]byte, recvBuffers*job.MaxMessage),
	}
	var err error
	defer func() {
		if err != nil {
			l.destroy()
		}
	}()
	if l.cq, err = m.o.Device.CreateCQ(maxSend + recvBuffers); err != nil {
		return nil, fmt.Errorf("completion queue: %w", err)
	}
	if l.recvMR, err = m.pd.RegMR(l.recvMem, iwarp.LocalWrite, nil); err != nil {
		return nil, fmt.Errorf("register receives: %w", err)
	}
	l.qp, err = m.pd.CreateQP(iwarp.QPInitAttr{SendCQ: l.cq, RecvCQ: l.cq, MaxSend: maxSend, MaxRecv: recvBuffers, MaxSGE: 1})
	if err != nil {
		return nil, fmt.Errorf("queue pair: %w", err)
	}
	for i := recvBuffers - 1; i >= 0; i-- {
		l.spare = append(l.spare, i)
	}
	for range job.Spare + 1 {
		if err = l.postRecvLocked(); err != nil { // nobody else knows l yet
			return nil, err
		}
	}
	hi := job.Greeting{Version: job.Version, Boot: m.boot}
	p := &iwarp.ConnParam{PrivateData: hi.Append(nil), Timeout: m.o.DialTimeout}
	var proving *psk.Dialing // nil: there is no key
	if m.o.Key != nil {
		if k := m.o.Key(); k != nil {
			proving = k.Dial(p.PrivateData, m.o.Device.Attr().StartUp)
			p.PrivateData = proving.PrivateData()
		}
	}
	p.Unsent = unsent
	p.ORD, p.IRD = fetch.Depths(m.o.Device.Attr())
	name, _, serr := net.SplitHostPort(h.addr)
	if serr != nil {
		name = h.addr
	}
	info, err := m.o.Device.Dial(identity.WithHost(ctx, name), h.dialAddr(ctx), l.qp, p)
	if err != nil {
		return nil, dialError(err)
	}
	h.reachedAt(info.Remote)
	answer, err := job.ParseGreeting(info.PrivateData)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	if answer.Version != job.Version {
		err = fmt.Errorf("speaks version %d of the job protocol, we speak %d; install the same rdistcc on both", answer.Version, job.Version)
		return nil, err
	}
	var proof *job.Proof
	if proving != nil {
		// Before anything is sent: a host that does not prove that it has the key gets
		// no word of ours, and there is no way without.
		proof = new(job.Proof)
		if _, proof.MAC, err = proving.Finish(info.Request, info.Reply, info.PrivateData); err != nil {
			err = fmt.Errorf("does not prove that it has our pre-shared key: %w", err)
			return nil, err
		}
	}
	l.path = newPath(info)
	l.puller, l.peerReads = fetch.New(l.qp, int(info.ORD), wrRead), info.IRD > 0
	m.links.Go(l.serve)
	m.links.Go(l.tick)
	m.mu.Lock()
	if proof != nil {
		l.sendLocked(proof, 0)
	}
	l.sendLocked(&job.Hello{Name: job.Clip(m.o.Name, job.MaxName), Want: maxInFlight}, 0)
	m.mu.Unlock()
	if l.welcomed(ctx) {
		return l, nil
	}
	err = l.err()
	return nil, err
}

// dialError says what a Dial or a connection ran into, in the daemon's own words
// if it rejected.
// Whoever shows it names the host: "connection refused" says all that is left of
// an operation, an address and a system call.
func dialError(err error) error {
	var no *iwarp.RejectedError
	if !errors.As(err, &no) {
		var op *net.OpError
		var errno syscall.Errno
		var unproven *identity.Error
		switch {
		case errors.As(err, &unproven): // "hung up on TLS" says more than "connection reset"
			return unproven
		case errors.Is(err, iwarp.ErrPeerTLS):
			return iwarp.ErrPeerTLS
		case errors.As(err, &errno):
			return errno
		case errors.As(err, &op):
			return op.Err
		}
		return err
	}
	r, perr := job.ParseRejection(no.PrivateData)
	if perr != nil {
		return fmt.Errorf("rejected by a peer that is no rdistccd: %w", err)
	}
	return &rejection{r}
}

// rejection is a daemon's refusal of the connection.
type rejection struct{ job.Rejection }

func (r *rejection) Error() string { return "rejected (" + r.Cause.String() + "): " + r.Detail }

// serve handles completions until the QP has ended and been flushed.
func (l *link) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	go func() { // ends with the QP, at the latest when the link is destroyed
		defer close(stop)
		<-l.qp.Done()
		cancel()
	}()
	var wcs [32]iwarp.WC
	for {
		n := l.cq.Poll(wcs[:])
		if n == 0 {
			if ctx.Err() != nil {
				break // Done and nothing left
			}
			_ = l.cq.Wait(ctx) // its errors show in ctx, or there is something to poll
			continue
		}
		l.m.mu.Lock()
		for i := range wcs[:n] {
			l.completedLocked(&wcs[i])
		}
		if !l.landed { // who waits for a result says next what became of the job, and then asks
			l.m.dispatchLocked()
		}
		l.landed = false
		l.m.mu.Unlock()
	}
	<-stop
	l.m.mu.Lock()
	l.endLocked()
	l.m.mu.Unlock()
}

// completedLocked handles one completion.
func (l *link) completedLocked(wc *iwarp.WC) {
	switch wc.ID & wrKind {
	case wrRecv:
		if wc.Status == iwarp.StatusSuccess {
			l.receivedLocked(wc)
		}
	case wrWrite:
		if f := l.flights[wc.ID&^wrKind]; f != nil {
			l.wroteLocked(f, wc.Status == iwarp.StatusSuccess)
		}
	case wrRead:
		if err := l.puller.Completed(wc); err != nil {
			l.failLocked(err)
		}
	}
	// A completion in error ends the QP by itself; Done follows.
}

// receivedLocked handles one message of the daemon's.
func (l *link) receivedLocked(wc *iwarp.WC) {
	i := int(wc.ID &^ wrKind)
	msg, err := job.Parse(l.recvMem[i*job.MaxMessage:][:wc.ByteLen])
	l.spare = append(l.spare, i)
	if err != nil {
		l.failLocked(fmt.Errorf("daemon sent a %w", err))
		return
	}
	if wc.Inv != (msg.Kind() == job.KindResult) {
		l.failLocked(errors.New("daemon sent a message with the wrong invalidation"))
		return
	}
	switch msg := msg.(type) {
	case *job.Result: // its receive was posted for the job
		l.resultLocked(msg, wc.InvSTag)
		return
	case *job.Welcome: // its receive was one above Spare
		if l.welcome != nil {
			l.failLocked(errors.New("daemon sent a second Welcome"))
			return
		}
		l.welcome = msg
		if err := l.openBoardLocked(); err != nil {
			l.failLocked(err)
			return
		}
		l.setViewLocked(msg.Load, fromWelcome)
		l.checkReadyLocked()
		return
	case *job.Toolchains:
		l.toolchainsLocked(msg)
	case *job.Grant:
		for _, c := range msg.Credits {
			l.addCreditLocked(c)
		}
		l.ackLocked(job.KindGrant, msg.Seq)
	case *job.Recall:
		l.returnLocked(int(msg.Count))
		l.ackLocked(job.KindRecall, msg.Seq) // behind the Returns: the daemon knows that those were all
	case *job.Heartbeat:
		l.ackLocked(job.KindHeartbeat, msg.Seq)
	case *job.Drain:
		l.draining = true
		l.h.drainingLocked()
		l.returnLocked(len(l.credits))
		l.ackLocked(job.KindDrain, msg.Seq)
	case *job.Ack:
		l.setViewLocked(msg.Load, fromHeartbeat)
		switch msg.Of {
		case job.KindHeartbeat:
			if msg.Seq == l.beatSeq && l.beatAcked != msg.Seq {
				l.path.echoed(time.Since(l.beatAt))
			}
			l.beatAcked = msg.Seq
		case job.KindDemand:
			l.demand.acked = msg.Seq
			l.m.demandsLocked(time.Now())
		case job.KindCancel:
			l.cancelAcked = msg.Seq
			l.sendCancelLocked()
		default:
			l.failLocked(errors.New("daemon acknowledged what was not sent"))
			return
		}
	default:
		l.failLocked(errors.New("daemon sent a message that only a manager sends"))
		return
	}
	// One that the daemon has closed takes none, and ends by itself: what came before
	// its end counts.
	if err := l.postRecvLocked(); err != nil && !errors.Is(err, iwarp.ErrState) {
		l.failLocked(err)
	}
}

// maxSource is the longest source that the daemon will fetch, in bytes.
func (l *link) maxSource() uint64 {
	if !l.peerReads {
		return 0
	}
	return l.welcome.MaxSource
}

// toolchainsLocked takes one part of the daemon's list. A list that starts again
// at 0 replaces the one before.
func (l *link) toolchainsLocked(msg *job.Toolchains) {
	if msg.First == 0 {
		clear(l.ids)
		l.idsSeen = 0
	}
	l.idsTotal = int(msg.Total)
	l.idsSeen += len(msg.IDs)
	for _, id := range msg.IDs {
		l.ids[id] = true
	}
	l.ackLocked(job.KindToolchains, msg.Seq)
	l.checkReadyLocked()
	l.h.toolchainsLocked()
}

// checkReadyLocked opens the link for jobs once all that must be known is.
func (l *link) checkReadyLocked() {
	if l.ready || l.welcome == nil || l.idsSeen < max(l.idsTotal, int(l.welcome.Toolchains)) {
		return
	}
	l.ready = true
	close(l.up)
}

// addCreditLocked keeps a granted credit, or returns it at once when there are
// more than this side will ever use.
func (l *link) addCreditLocked(c job.Credit) {
	l.credits = append(l.credits, c)
	if l.draining || len(l.credits)+len(l.flights) > maxInFlight {
		l.returnLocked(1)
		return
	}
	l.h.creditsLocked()
}

// takeCreditLocked is the next credit. The scheduler has counted it: there is one.
func (l *link) takeCreditLocked() job.Credit {
	last := len(l.credits) - 1
	c := l.credits[last]
	l.credits = l.credits[:last]
	l.used = time.Now()
	return c
}

// returnLocked gives up to n unspent credits back.
func (l *link) returnLocked(n int) {
	for ; n > 0 && len(l.credits) > 0; n-- {
		last := len(l.credits) - 1
		c := l.credits[last]
		l.credits = l.credits[:last]
		l.sendLocked(&job.Return{Credit: c.ID}, c.Slot.STag)
	}
	l.h.creditsLocked()
}

func (l *link) ackLocked(of job.Kind, seq uint32) { l.sendLocked(&job.Ack{Of: of, Seq: seq}, 0) }

// sendLocked posts one message; inv, if not zero, is the daemon's slot to
// invalidate. What goes wrong ends the link.
func (l *link) sendLocked(m job.Message, inv uint32) {
	var buf [job.MaxMessage]byte
	wr := iwarp.SendWR{ID: wrOther, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: job.Append(buf[:0], m)}
	if inv != 0 {
		wr.Op, wr.InvSTag = iwarp.OpSendInv, iwarp.STag(inv)
	}
	if err := l.qp.PostSend(&wr); err != nil {
		l.failLocked(fmt.Errorf("post a message: %w", err))
	}
}

// postRecvLocked posts one receive.
func (l *link) postRecvLocked() error {
	n := len(l.spare)
	if n == 0 {
		return errors.New("daemon answered more than it was asked")
	}
	i := l.spare[n-1]
	l.spare = l.spare[:n-1]
	err := l.qp.PostRecv(&iwarp.RecvWR{
		ID:  wrRecv | uint64(i),
		SGL: []iwarp.SGE{{Addr: l.recvMR.Base() + uint64(i)*job.MaxMessage, Length: job.MaxMessage, LKey: l.recvMR.STag()}},
	})
	if err != nil {
		return fmt.Errorf("post a receive: %w", err)
	}
	return nil
}

var errClosedByPeer = errors.New("connection closed by the daemon")
