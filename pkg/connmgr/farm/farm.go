// Package farm is the compile hosts as one connection manager knows them: what hosts there are,
// how they are connected, and which one a job goes to.
//
// The files, from the ground up; none calls one that is named below it:
//
//	state options farm             what there is: the types, and all that they know by themselves
//	credits host pool redial       one host: its credits, its states, how many connections, when it is dialled
//	resolve                        where it is dialled
//	here rule                      this machine as a host, and why a job was placed as it was
//	word forms hedge               the scheduler's word: which host, which form, which second host
//	dispatch demand                the same for all jobs that wait; what hosts are told that there is to do
//	owner dial run want            a host's connections: what they tell, how they begin, what keeps them
//	ended pick                     what became of a job, and asking for one
//	drain asked status new         what people and callers ask, and the beginning and the end
//
// It does not know what a job is made of, what becomes of its result, or who asked for it: a
// caller has its Request, waits for the Grant, puts a link.Flight on the grant's link, and says
// what it Ended with.
//
// One mutex, Farm.mu, guards all of it; what needs it ends in Locked and stays inside the package.
// Every exported method takes it by itself and none blocks with it held; what is called under it
// (Options, link.Link, holdings.Ledger) never comes back here. The order of locks is: drains.change,
// Farm.mu, a link's, and a holdings.Ledger's last; links call their owner without theirs. A host has one
// goroutine, which dials, and one for each connection that waits for its end.
package farm

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Farm is what hosts there are, how they are connected, and which of them a job goes to.
type Farm struct {
	// set once in New
	o        Options
	dialling dialling
	ctx      context.Context // ends all hosts
	running  sync.WaitGroup  // Host.run

	mu     sync.Mutex // before the lock of any link; it guards the rest
	pace   Pace
	sched  *scheduler.Scheduler
	hosts  map[string]*Host           // by address
	racing map[uint64]*Request        // jobs that are at a host, or on their way, by id
	used   map[job.ToolchainID]string // compilers that jobs have asked for, by what people call them
	queue  queue
	here   here
	demand demand
	drains drains
}

// Host is one address that some host list named. Its goroutine dials it again and
// again, at the scheduler's pace, and keeps what connection there is.
type Host struct {
	f    *Farm
	Addr string        // set once
	grow chan struct{} // capacity 1: one more link is wanted; serve takes it
	kick chan struct{} // capacity 1: a job does not want to wait for the next attempt

	reached netip.Addr      // where it was connected last; owned by run
	Holds   holdings.Ledger // which of our contents it has; with a lock of its own, after all others

	// guarded by Farm.mu
	state    State
	link     *conn   // while up or draining: the one that speaks for the host
	links    []*conn // and all
	growing  bool    // one more is asked for or dialled
	nextGrow time.Time
	served   *conn // the link that spoke for it when a job was placed last
	lastErr  error // of the last attempt or loss
	lastWant time.Time
	lostAt   time.Time
	answered time.Time // when something took the connection first, of attempts on which nothing has been said
	retry    time.Time // after a loss: when to dial again
	jobs     counts
	refused  string // why it refused the last job; empty: it did not
}

// counts are a host's jobs since it is known.
type counts struct {
	ok, failed uint64
	out, in    atomic.Uint64 // bytes of sources and results; counted without the lock
}

// conn is one connection to a host, with the credits that came over it and are not spent.
// It is its link's Owner: it passes on to the host what the link learns. Only it and the host's
// methods take credits and give them back, all under Farm.mu, so that the scheduler never
// counts one that is not there.
type conn struct {
	*link.Link // nil until the daemon has said something, and then the same; guarded by Farm.mu
	h          *Host
	credits    []job.Credit // the last one is the next; guarded by Farm.mu
}

// queue are the jobs that wait for the scheduler's word; Farm.mu guards it.
type queue struct {
	waiting []*Request       // for a credit, in order of arrival
	asking  []*question      // for their form
	jobs    []*scheduler.Job // dispatchLocked works in it
	alarm   *time.Timer      // asks again, as something may have changed just by the time
}

// question is a job that waits for its form: whether a host shows private trees is
// known once it is connected.
type question struct {
	list      []scheduler.Host
	toolchain job.ToolchainID
	ready     chan bool // capacity 1
}

// Request is a job that waits for the scheduler's word, or has had it and may get a further
// one.
type Request struct {
	ID uint64 // tells it apart from all others
	// Job is the caller's until it asks for the first word. From then on it is not changed by
	// the caller, who reads nothing of it but what is never written: not Tried, Again and Lost.
	Job scheduler.Job
	// Races: it may get a second host (Second), from the first Pick on until Leave, which is due then. Set
	// by the caller before that.
	Races bool

	// guarded by Farm.mu, but for why and rule, which are the caller's between two words

	ready  chan Grant             // capacity 1
	second chan Grant             // capacity 1: of a further host, as the one that has the job is slow
	why    []scheduler.Considered // of the last word
	rule   string                 // and which rule made it
	early  bool                   // it is not made yet: the word is due once a host is there, and takes no credit
}

// NewRequest returns a job that has not been asked for yet.
func NewRequest(id uint64, j scheduler.Job) *Request {
	return &Request{ID: id, Job: j, ready: make(chan Grant, 1), second: make(chan Grant, 1)}
}

// Considered returns what the last word weighed, and a line for a person about the rule
// that made it; empty where the decision has words of its own. The slice is not changed.
func (r *Request) Considered() (list []scheduler.Considered, rule string) { return r.why, r.rule }

// Second delivers a further host for a job that Races and is late where it is.
// What comes from it is due an attempt, or GiveBack.
func (r *Request) Second() <-chan Grant { return r.second }

// Grant is the scheduler's word: a connection with one of its credits, or a decision that no
// host gets the job. A credit is due an attempt, of which Ended tells, or GiveBack.
type Grant struct {
	Req      *Request
	Host     *Host // nil: none gets the job
	Credit   job.Credit
	Decision scheduler.Decision // of a job that no host gets
	conn     *conn              // one of Host's
}

// Link returns the connection that the credit is of.
func (g *Grant) Link() *link.Link { return g.conn.Link }

// demand is what the daemons are told that there is for them to do; Farm.mu guards it.
type demand struct {
	preparing map[*scheduler.Host]*preparing // by the first host of the list
	counted   time.Time                      // when it was counted last
	timer     *time.Timer                    // counts it again, if again is set
	again     bool
}

// preparing are the leased jobs of one host list whose wrappers are listing or
// preprocessing: they want a place soon.
type preparing struct {
	hosts []scheduler.Host
	jobs  int
}

// here is what runs on this machine; Farm.mu guards it.
type here struct {
	jobs   int       // that the scheduler has placed here
	looked time.Time // at the machine's load
}

// drains are the hosts that somebody has drained by hand: nothing new goes there until
// they are undrained, whatever manager serves then.
type drains struct {
	change sync.Mutex      // one at a time; before Farm.mu
	on     map[string]bool // by address; guarded by Farm.mu
}
