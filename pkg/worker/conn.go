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
	life      signs
	ending    ending // why we end it, if that is decided here
	jobs      uint64
	unasked   [job.NumKinds]window // by kind
	toGrant   []uint64             // credits of which no Grant has told yet
	toRecall  int
	wantDrain bool
	listing   listing
}

// signs are what the last look at a connection's life found, and since when it is silent.
type signs struct {
	received uint64        // frames and messages
	reads    uint64        // of the client's
	wrote    uint64        // frames of ours
	unacked  uint64        // bytes under way
	silent   time.Duration // without a sign of life
}

// listing is what a client is yet to be told of the compilers that the host offers.
type listing struct {
	ids   []unit.ToolchainID
	next  int  // index of the next one to tell of; -1: all are told
	names bool // families and versions are due
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

const (
	sendID = 1 << 63
	readID = 1 << 62
)

// task is a job on its way: queued, running, answered. Exactly one of the
// connection's goroutine (refused, cancelled in the queue) and a runner answers it.
type task struct {
	c      *conn
	m      *job.Job
	k      *credit // its slot is the task's alone
	job    run.Job // what runs
	queued time.Time

	before []chan struct{} // taken of tasks of this connection that came before it and had something to be kept
	taken  chan struct{}   // closed once what it brings is kept; nil: it brings nothing

	abort context.CancelFunc // of one that is not queued at once, else nil

	no      *job.Refusal // why it is not run
	started time.Time    // when a core took it
	lent    lend.Job     // its turn on a core; guarded by Server.mu

	lacks []unit.ContentID // what it names and is not here: it is not done

	// the runner's, from the body
	source, language string
	files            int // of the sources form; 0: it is of the text form

	shown atomic.Pointer[string] // source, for those who look; nil: not read yet
}

// credit is a slot on loan: to the peer, until its Job or Return, then to the job.
type credit struct {
	lent *lend.Credit
	buf  *shm.Buffer
	mr   iwarp.MR
}

// offer is a result too big for the client's sink, in a window of its own that the
// client reads until its Release. It counts as a credit in the client's hands: so
// every message that it may send has its receive, and who releases nothing gets
// less work.
type offer struct {
	data *large.Part
	mr   iwarp.MR
	age  time.Duration // since the Result
	idle time.Duration // since a Read
}

// board is one client's load board: a page of its own, so that nothing else is on
// it, which the client reads whenever it likes. It stays as long as the QP.
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
	i     int
	place *run.Place
	round int // of confinement, when the place has proven itself last
}

// size returns how many bytes of text a task's compiler is given.
func (t *task) size() uint64 {
	if t.job.Files == nil {
		return t.m.TextLen
	}
	return t.job.Files.Size()
}

// mostText is how long all files of a job may be together: as long as they could be if they
// came with it.
func (t *task) mostText() uint64 { return max(uint64(t.k.mr.Len()), t.c.maxSource()) }

func (k *credit) window() job.Window {
	return job.Window{STag: uint32(k.mr.STag()), TO: k.mr.Base(), Len: uint64(k.mr.Len())}
}

// onWire is the credit as messages bring it.
func (k *credit) onWire() job.Credit { return job.Credit{ID: k.lent.ID, Slot: k.window()} }

// free ends the loan. Nothing may be reading or writing the slot's memory.
func (k *credit) free() error {
	err := k.mr.Dereg()
	if err != nil {
		k.buf.Discard() // whoever may still reach it, no later job is concerned
		return fmt.Errorf("free slot: %w", err)
	}
	k.buf.Put()
	return nil
}

// connOf is the connection that lend has by another name.
func connOf(c *lend.Conn) *conn { return c.Owner.(*conn) }

const (
	turnEnd    turn = iota // the server closes
	turnTask               // a task
	turnCanary             // it proves itself, as it has nothing else to do
	turnForget             // it drops what its tree keeps
)
