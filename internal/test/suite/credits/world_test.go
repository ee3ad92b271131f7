// Package credits explores every order of events between managers and daemons, as far as credits and the jobs that they
// pay for are concerned: grants, recalls, returns, jobs by each carrier, cancels, second hosts, drains, lost connections.
//
// What is decided is decided by the code that ships: pkg/worker/lend with pkg/worker/shares on the daemon's side,
// pkg/connmgr/purse on the manager's, and internal/job's windows of unsolicited messages between them. What only carries
// decisions out, under a lock and with a queue pair, is repeated here with the same order of calls, and names the
// function that it repeats:
//
//	memory_test.go    pkg/worker: slot.go, source.go, conn.go; the RDMA stack's view of slots and sinks
//	daemon_test.go    pkg/worker: credits.go, accept.go, answer.go, queue.go, tell.go, life.go
//	manager_test.go   pkg/connmgr/link: jobs.go, write.go, serve.go; farm: credits.go, owner.go, pool.go
//	race_test.go      pkg/connmgr: race.go; attempt: run.go
//	steps_test.go     what can happen next
//	truth_test.go     what must hold in each state
//	rest_test.go      what must hold once nothing happens by itself any more
//	rules_test.go     rules that are left out, and what has to be found then
//
// The host that a job goes to is any that has a credit, and any job may get a second host at any time: more than
// pkg/scheduler would choose. Results that are too big for a sink are not explored.
package credits

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/purse"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// scope bounds what is explored.
type scope struct {
	managers, hosts int
	conns           int // of a manager with a host; 0: one
	cores           int // of a host
	slots           int // of a host
	want            int // credits that a connection can hold
	jobs            int // of each manager
	demand          int // places that a manager says it can use, beyond its jobs
	attempts        int // at one job
	carrier         job.Carrier
	writes          int  // of a source that is written: 1 or 2; 0: its content is not looked at
	pulls           bool // hosts may pull sources, so credits may be bare
	bare            bool // managers want no slots
	kept            bool // slots stay open
	hedges          bool // a job may get a second host
	gives           bool // wrappers may give up
	fails           bool // compiles may fail
	cuts            int  // connections that are lost
	drains          int  // hosts that drain
	closes          int  // how often a host takes no work for a while
	joins           int  // managers that come later
	retires         int  // idle connections that managers close
	returns         int  // credits that managers give back unasked
	guesses         int  // credits that a manager spends before it is told of them
	ticks           int  // seconds that may pass
}

// world is one state.
type world struct {
	sc       *scope
	left     rule // the rule that is left out
	now      time.Time
	hosts    []*host
	managers []*manager
	wires    []*wire // connections, in the order in which they were made
	lastSTag uint32

	cuts, drains, closes, retires, returns, guesses, ticks int // how many there were
}

// host is a daemon.
type host struct {
	w        *world
	lend     *lend.Ledger
	free     int // slots in their pool
	copies   int // buffers in the pool of copies, for slots that stay open
	draining bool
	wires    []*wire // those whose end has not been dealt with
	running  []*task // whose compilers run
}

// manager is a manager, with the wrappers that it serves.
type manager struct {
	id   int
	here bool // it has come
	jobs []*wrapper
}

// packet is a message on its way, or RDMA Writes: put and fill.
type packet struct {
	m     any
	inv   uint32 // the STag that it invalidates; 0: none
	guess bool   // it spends a credit that the manager was not told of
}

// put is a Write of a source to a slot, fill one of a result to a sink.
type (
	put struct {
		stag   uint32
		credit uint64
		by     uint64 // the job
	}
	fill struct {
		stag uint32
		by   uint64
	}
)

// bye is the end of a connection that a manager closes.
type bye struct{}

// wire is a connection: what is on its way, and either end.
type wire struct {
	w           *world
	id          int
	host        *host
	man         *manager
	forth, back []packet // to the daemon, and to the manager
	cut         bool     // nothing more is sent

	// The daemon's end: worker.conn.
	joined    bool
	lent      *lend.Conn
	unasked   job.Unasked
	wantDrain bool
	credits   []*loan // on loan to the client
	kept      []*slot // open ones that no credit names
	tasks     []*task // unanswered
	sending   []*loan // whose memory a result is being sent from
	ended     bool    // the daemon has noticed
	released  bool

	// The manager's end: link.Link and farm.conn.
	purse      purse.Purse
	flights    []*attempt
	cancels    purse.Cancels
	lastCancel uint32
	told       int // the demand that the daemon was told last; -1: none
	telling    bool
	draining   bool
	retired    bool // it gets no more jobs, and is being closed
	lost       bool // the manager has noticed
}

// task is worker.task.
type task struct {
	wire     *wire
	id       uint64 // the client's
	k        *loan
	sink     uint32 // its STag
	written  bool   // its source is in the slot
	pulled   bool
	fetching bool
	lent     *lend.Job
	stopped  bool
}

// wrapper is one command, and its race.
type wrapper struct {
	man       *manager
	id        int
	came      bool
	done      bool // it has its answer, or is gone
	gone      bool
	local     bool
	delivered int
	won       uint64 // the attempt whose result it has got
	sink      *sink  // in which it finds the result; nil: none any more
	started   int    // attempts
	running   []*attempt
	tried     []*wire
}

// attempt is attempt.Attempt with its link.Flight.
type attempt struct {
	job       *wrapper
	id        uint64
	wire      *wire
	credit    job.Credit
	leg       purse.Leg
	carrier   job.Carrier
	left      int // Writes to be posted
	sink      *sink
	stag      uint32 // under which the daemon may write to the sink; 0: none
	flies     bool   // Start was called
	cancelled bool   // its result is not wanted any more
	asked     bool   // Cancel was called
	status    job.Status
	over      bool // it has landed
	err       bool // it has no Result
}
