package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// closeTime bounds a graceful disconnect.
const closeTime = 2 * time.Second

// conn is one connection of a client. serve, in a goroutine of its own, sets it up, reads its completion
// queue until the QP ends, and takes it down.
type conn struct {
	s       *Server
	log     *slog.Logger
	id      uint64
	remote  net.Addr
	via     string // another protocol, in which the client speaks with this process; empty: it speaks ours itself
	since   time.Time
	version uint16   // of the protocol, as in the Greeting
	boot    [16]byte // of the Greeting
	peer    lend.Peer

	// set once by open, before the first message
	pd     iwarp.PD
	cq     iwarp.CQ
	qp     iwarp.QP
	recvs  []byte // Server.recvLen bytes for each receive
	recvMR iwarp.MR
	puller *rdmaread.Puller // fetches sources; guarded by s.mu
	// peerReads says whether the client may send RDMA Reads.
	peerReads bool
	bare      bool   // it wants credits without slots; set by hello
	board     *board // nil: none
	// claim is set while the client has yet to prove that it has the key. It is written under s.mu, by serve's
	// goroutine or before that starts.
	claim   *psk.Claim
	proveBy *time.Timer // guarded by s.mu
	ousted  bool        // it has to make room for another connection; guarded by s.mu

	work  sync.WaitGroup // tasks that runners may hold
	keeps *store.Tenant  // the tenant's store; set by hello, until the end; nil: none
	shelf *shelf         // set by hello, before any job; nil: none
	// misnamed says that the client has named a result otherwise than its job, and the log has it.
	misnamed atomic.Bool

	// guarded by s.mu
	name      string           // the name that the client gives itself
	program   string           // its version; empty: it has not said; set by hello
	lent      *lend.Conn       // what it has been lent, and its tenant; set once, by admit
	allowance *large.Allowance // the tenant's part of the large memory; set once, by admit
	proof     string           // how it proves its identity, for the audit log; set once, by admit
	state     connState
	credits   map[uint64]*credit // on loan to the client, by ID
	kept      keptSlots
	tasks     map[uint64]*task   // unanswered, by the client's job ID
	spare     []uint64           // receives that are not posted, the one to be posted next last
	taking    []chan struct{}    // those task.taken that are not closed, in order of arrival
	sending   map[uint64]*credit // slots from which a result is being sent, by work request
	offers    map[uint64]*offer  // results to be fetched, by the client's job ID
	lastWR    uint64
	life      signs
	ending    ending // why we end it, if not because of a message
	jobs      uint64 // received so far
	unasked   job.Unasked
	wantDrain bool // a Drain is to be sent
	copying   bool // it has not been told yet what became of its last Keep
	listing   listing
}

// signs are what the last check of a connection's life found, and how long it has been silent.
type signs struct {
	received uint64        // frames and messages received
	reads    uint64        // Reads received
	wrote    uint64        // frames sent
	unacked  uint64        // bytes sent but not acknowledged
	silent   time.Duration // time without a sign of life
	jobs     uint64        // received
	unused   time.Duration // time without a job
}

// listing is what remains to be announced of the compilers that the host offers.
type listing struct {
	ids   []unit.ToolchainID
	next  int  // index of the next toolchain to announce; -1: none
	names bool // the compilers' names are to be sent
}

// errLost ends what was under way on a connection that is gone.
var errLost = errors.New("connection lost")

func newConn(s *Server, id uint64, remote net.Addr, via string) *conn {
	log := s.o.Log.With("client", id, "remote", remote.String())
	if via != "" {
		log = log.With("via", via)
	}
	return &conn{
		s: s, id: id, remote: remote, via: via, since: time.Now(),
		log:     log,
		credits: make(map[uint64]*credit),
		tasks:   make(map[uint64]*task),
		sending: make(map[uint64]*credit),
		offers:  make(map[uint64]*offer),
	}
}

// recvDepth returns how many receives may be posted at a time: one for each credit that the client can hold,
// which may become a Job or a Return, and then its result's window a Release; and job.Spare for the rest.
func (s *Server) recvDepth() int { return s.most() + 1 + job.Spare }

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
	n := min(c.s.o.Source, c.s.large.Max())
	if c.pulls() {
		n = max(n, c.s.slots.Size())
	}
	return uint64(n)
}

// pulls reports whether the client's jobs may be pulled.
func (c *conn) pulls() bool { return !c.s.o.NoPull && c.puller.Can() }

// recvLen returns how many bytes each receive has.
func (s *Server) recvLen() int { return job.MaxMessage + int(s.o.Eager) }

const (
	sendID = 1 << 63
	readID = 1 << 62
)

// task is a job under way: queued, running, answered. Exactly one goroutine answers it: the connection's (if
// it is refused, or cancelled in the queue), that of bring, or a runner.
type task struct {
	c      *conn
	m      *job.Job
	k      *credit // its slot, or the memory in place of that, belongs to this task alone
	pulled bool    // its source is fetched when its turn comes
	job    run.Job // what runs
	queued time.Time

	before []chan struct{} // taken of earlier tasks of this connection that use the store
	taken  chan struct{}   // closed once the contents that it brings are kept; nil: it does not use the store

	abort context.CancelFunc // ends bring; nil if the task is queued at once, or has yet to be fetched

	no      *job.Refusal // why it is not run
	started time.Time    // when it got a core
	place   int          // the runner that has it, from 1; 0: none; guarded by Server.mu
	lent    lend.Job     // its turn on a core; guarded by Server.mu

	moves  bool  // its result does not depend on Job.Base
	marked int   // its mark on the shelf; 0: none
	twin   *twin // what equal jobs wait for; nil: nothing; guarded by Server.mu

	lacks []unit.ContentID // contents that it names and this host lacks: it is refused

	// owned by the goroutine that has the task, set from the body
	source, language string
	files            int       // number of files in the sources form; 0 for the text form
	body             *job.Body // nil unless this host may have to name the result itself

	shown atomic.Pointer[string] // source, for Status; nil: not read yet
}

// credit is a slot on loan: to the peer until its Job or Return, then to the job. A bare one has no slot. Its
// job gets memory of the same size, which no peer can write to, once it needs some (task.lodge).
type credit struct {
	c    *conn
	lent *lend.Credit
	slot
	own   *shm.Buffer // holds the job's source and result if its slot stays open, or if it has none; nil otherwise
	ownMR iwarp.MR    // of the result in own, if the credit has no slot
}

// offer is a result that is too big for the client's slot or sink. It has a window of its own, which the
// client reads until its Release. It counts as a credit that the client holds, so that a receive is posted
// for every message that the client may send, and a client that releases nothing gets less work.
type offer struct {
	data *large.Part
	mr   iwarp.MR
	age  time.Duration // since the Result
	idle time.Duration // since the last Read
}

// board is one connection's load board. It is a page of its own, so that nothing else is on it, and the
// client may read it at any time. It exists as long as the QP.
type board struct {
	mu   sync.Mutex // lent to the device: held while the page is written, or copied for a Read
	page []byte
	mr   iwarp.MR
}

// turn is what a runner does next.
type turn uint8

// runner does one task at a time, in its place.
type runner struct {
	s     *Server
	i     int // its index
	place *run.Place
	round int // confinement.round when a canary last ran in the place
}

// size returns how many bytes of source the task's compiler is given.
func (t *task) size() uint64 {
	if t.job.Files == nil {
		return t.m.TextLen
	}
	return t.job.Files.Size()
}

// mostText returns how many bytes all files of a job may have together: as many as if the job brought them.
func (t *task) mostText() uint64 { return max(uint64(t.c.s.slots.Size()), t.c.maxSource()) }

// onWire returns the credit as messages carry it.
func (k *credit) onWire() job.Credit { return job.Credit{ID: k.lent.ID, Slot: k.window()} }

// free ends the loan. Nothing of ours may be reading or writing the slot's memory. The caller holds the
// server's lock.
func (k *credit) free() (err error) {
	if k.ownMR != nil {
		if err = k.ownMR.Dereg(); err != nil {
			err = fmt.Errorf("free a result: %w", err)
			k.own.Discard() // the peer may still reach it, so no later job may use it
			k.own = nil
		}
		k.ownMR = nil
	}
	if k.own != nil {
		k.own.Put()
		k.own = nil
	}
	if k.buf == nil {
		return err
	}
	return errors.Join(err, k.c.closeSlotLocked(k.slot))
}

// connOf returns the connection that a lend.Conn belongs to.
func connOf(c *lend.Conn) *conn { return c.Owner.(*conn) }

const (
	turnEnd    turn = iota // the server closes
	turnTask               // do a task
	turnCanary             // run a canary, because it is idle
	turnForget             // drop what its tree keeps
)
