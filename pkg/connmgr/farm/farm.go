// Package farm manages a connection manager's compile hosts: which hosts there are, how they are connected,
// and which one a job goes to.
//
// The files, from the ground up. None calls one that is named below it:
//
//	state options farm             the types
//	credits host pool redial       one host: its credits, its states, how many connections, when it is dialled
//	resolve                        the address at which it is dialled
//	here rule                      this machine as a host, and why a job was placed as it was
//	word forms hedge               the scheduler's decisions: which host, which form, which second host
//	dispatch demand                the same for all jobs that wait; the demand that hosts are told
//	owner dial run want            a host's connections: what they report, how they begin, what keeps them
//	ended pick                     the outcome of a job, and asking for a host
//	drain asked status new         requests of users and callers; construction and end
//
// The package does not know what a job consists of, what becomes of its result, or which client it is for. A
// caller makes a Request, waits for the Grant, starts a link.Flight on the grant's link, and reports the
// outcome (Ended).
//
// One mutex, Farm.mu, guards everything. Methods that need it held end in Locked and are internal. Every
// exported method locks it by itself, and none blocks with it held. What is called under it (Options,
// link.Link, holdings.Ledger) never calls back. The order of locks is: drains.change, Farm.mu, a link's, a
// holdings.Ledger's. Links call their owner without their lock. A host has one goroutine that dials, and one
// for each connection, which waits for its end.
package farm

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/connmgr/purse"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Farm is the set of a manager's compile hosts and their connections, and decides which host a job goes to.
type Farm struct {
	// set once in New
	o        Options
	dialling dialling
	ctx      context.Context // ends all hosts
	running  sync.WaitGroup  // Host.run

	mu      sync.Mutex // guards the rest; locked before any link's
	pace    Pace
	sched   *scheduler.Scheduler
	hosts   map[string]*Host            // by address
	racing  map[uint64]*Request         // jobs that are on a host or in transit, by ID
	used    map[unit.ToolchainID]string // the common names of compilers that jobs have asked for
	aliases aliases
	queue   queue
	here    here
	demand  demand
	drains  drains
}

// Host is one address that some host list has named. Its goroutine dials it, again and again at the
// scheduler's pace, and maintains its connections.
type Host struct {
	f    *Farm
	Addr string        // set once
	grow chan struct{} // capacity 1: one more link is wanted; received by serve
	kick chan struct{} // capacity 1: a job asks to dial without waiting for the pause to end

	reached netip.Addr      // where it was last connected; owned by run
	Holds   holdings.Ledger // which of our contents it holds; has a lock of its own, taken last

	// guarded by Farm.mu
	state    State
	link     *conn   // while up or draining: the one that represents the host
	links    []*conn // all of them
	growing  bool    // one more link is wanted or being dialled
	nextGrow time.Time
	served   *conn // the link that represented it when a job was last placed
	lastErr  error // of the last attempt or loss
	lastWant time.Time
	lostAt   time.Time
	answered time.Time // when a connection was first accepted, in a series of attempts without a Welcome
	hangsUp  time.Time // the first of the latest attempts, all of which the host hung up on
	retry    time.Time // after a loss: when to dial again
	jobs     counts
	refused  string // why it refused the last job; empty if it did not
}

// counts are the figures of a host's jobs since it became known.
type counts struct {
	ok, failed uint64
	out, in    atomic.Uint64 // bytes of sources and results; counted without the lock
}

// conn is one connection to a host, with its unspent credits. It is its link's Owner, and passes on to the
// host what the link learns. Only its methods and the host's take and return credits, all under Farm.mu, so
// that the scheduler never counts one that does not exist.
type conn struct {
	*link.Link // nil until the daemon's first message, then fixed; guarded by Farm.mu
	h          *Host
	credits    purse.Purse // guarded by Farm.mu
}

// queue holds the jobs that wait for the scheduler's decision; guarded by Farm.mu.
type queue struct {
	waiting []*Request       // jobs that wait for a credit, in order of arrival
	asking  []*question      // jobs that wait for their form
	jobs    []*scheduler.Job // scratch space of dispatchLocked
	alarm   *time.Timer      // asks again, because time alone may change the decisions
}

// question is a job that waits for its form: whether a host shows private trees is known only once it is
// connected.
type question struct {
	list      []scheduler.Host
	toolchain unit.ToolchainID
	ready     chan bool // capacity 1
}

// Request is a job that waits for the scheduler's decision, or has had one and may get another.
type Request struct {
	ID uint64 // unique
	// Job belongs to the caller until it asks for the first decision. From then on the caller must not change
	// it, and may read only fields that the farm never writes: not Tried, Again and Lost.
	Job scheduler.Job
	// Races is set if the job may get a second host (Second), from the first Pick until the caller calls
	// Leave, which it then must. The caller sets it before the first Pick.
	Races bool

	// guarded by Farm.mu, except for why and rule, which belong to the caller between two decisions

	ready  chan Grant             // capacity 1
	second chan Grant             // capacity 1: of a second host, because the first is slow
	why    []scheduler.Considered // what the last decision weighed
	rule   string                 // the rule that made the last decision
	early  bool                   // the job is not made yet: it is decided once a host is connected, and takes no credit
}

// NewRequest returns a request for the job j.
func NewRequest(id uint64, j scheduler.Job) *Request {
	return &Request{ID: id, Job: j, ready: make(chan Grant, 1), second: make(chan Grant, 1)}
}

// Considered returns what the last decision weighed, and a line for the user about the rule that made it,
// empty if the decision explains itself. The caller must not change the slice.
func (r *Request) Considered() (list []scheduler.Considered, rule string) { return r.why, r.rule }

// Second delivers a second host for a job that Races and is late on its host. For each grant, the caller
// makes an attempt or calls GiveBack.
func (r *Request) Second() <-chan Grant { return r.second }

// Grant is the scheduler's decision: a connection with one of its credits, or that no host gets the job. For
// a credit, the caller makes an attempt and reports it (Ended), or calls GiveBack.
type Grant struct {
	Req      *Request
	Host     *Host // nil: no host gets the job
	Credit   job.Credit
	Decision scheduler.Decision // if no host gets the job
	conn     *conn              // one of Host's
}

// Link returns the connection that the credit belongs to.
func (g *Grant) Link() *link.Link { return g.conn.Link }

// demand is what daemons are told they could be given; guarded by Farm.mu.
type demand struct {
	preparing map[*scheduler.Host]*preparing // by the first host of the list
	counted   time.Time                      // when it was last counted
	timer     *time.Timer                    // counts it again, if again is set
	again     bool
}

// preparing counts the leased jobs of one host list whose wrappers are listing or preprocessing: they will
// soon want a place.
type preparing struct {
	hosts []scheduler.Host
	jobs  int
}

// here describes what runs on this machine; guarded by Farm.mu.
type here struct {
	jobs   int       // jobs that the scheduler has placed here
	looked time.Time // when the machine's load was last read
}

// drains are the hosts that were drained by hand. They get no new jobs until they are undrained, also from
// later managers.
type drains struct {
	change sync.Mutex      // serializes changes; locked before Farm.mu
	on     map[string]bool // by address; guarded by Farm.mu
}
