package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/cgroup"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
	"github.com/rdistcc/rdistcc/pkg/worker/offered"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
	"github.com/rdistcc/rdistcc/pkg/worker/users"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// Server is a daemon without its flags and signals.
type Server struct {
	o         Options
	boot      [16]byte
	compilers *offered.Compilers
	slots     *shm.Pool
	large     *large.Memory
	keep      *store.Store      // of what clients have sent; nil: there is none; set once by New
	machine   files.Machine     // of this machine's own headers
	learner   *files.Learner    // reads them in advance, if Options.Learn
	forgets   atomic.Uint64     // grows while the machine is short of memory: trees drop what they keep
	intakes   chan *run.Scratch // one for each place: so many tasks are taken in at a time
	area      *workdir.Area
	guard     *workdir.Guard
	places    *run.Host // what they share: how jobs are run
	ownUsers  bool      // each runner's as another user; set once by New
	users     users.Range
	cage      confinement
	shown     atomic.Pointer[display] // what trees have to show
	groups    *cgroup.Groups          // around this process; set once by New
	settings  atomic.Pointer[Settings]
	load      atomic.Pointer[hostLoad]
	started   time.Time

	stop    context.CancelFunc // ends the accept loops and the ticker
	ctx     context.Context
	serving sync.WaitGroup // accept loops, connections, ticker
	runners sync.WaitGroup

	mu        sync.Mutex
	conns     map[*conn]bool
	lastConn  uint64
	offenders lend.Offenders
	lend      *lend.Ledger // decides who gets credits, cores and memory
	wake      *sync.Cond   // runners wait for something that they can do, or closing
	awaiting  bool         // the cores are going to be woken
	rest      time.Time    // until then the host takes no work, whatever else
	drain     drain
	closing   bool
	page      page
}

// drain is how far Server.Drain has come.
type drain struct {
	begun     bool          // no new job is taken
	impatient bool          // it has gone on for Options.Grace: credits are not waited for any more
	idle      chan struct{} // made by Drain; closed when nothing runs, waits or is being sent
}

// page is what goes into every load board.
type page struct {
	seq    uint64
	buf    []byte      // of publishLocked
	speeds []job.Speed // of toolchains, the one used last first
}

// confinement is what is known of how compiles are kept in.
type confinement struct {
	// guarded by Server.mu
	held     []sandbox.Set       // by runner: the measures of its tree; 0: it has none yet
	breach   string              // what was found reachable, or did not work; "": nothing
	doubt    sandbox.Set         // measures that did not hold then
	lost     *job.Refusal        // strict: why no work is taken
	tested   []*privatetree.Spec // by runner: what its tree showed when a canary was there last
	shownAt  time.Time           // when the compilers changed last, which trees show
	testing  int                 // runners that run a canary as they have nothing else to do
	begun    bool                // there are runners: how they can be confined is known
	told     bool                // tellSandbox has spoken
	round    int                 // of canaries that are due from all runners; runner.round of those that have passed it
	passed   int                 // runners that passed in this round, as long as there is a breach
	again    time.Time           // when the next round begins
	wanted   bool                // a canary, on the next runner that is idle
	schedule schedule
}

// display is what trees have to show, and the toolchains for which that is. It does not change.
type display struct {
	spec *privatetree.Spec
	list []toolchain.Toolchain
}

// hostLoad is the machine's state, read once a tick as it costs some files.
type hostLoad struct {
	loadAvg    uint32 // x 100
	memoryFree uint64 // bytes
	oomKills   uint64
	diskFree   uint64 // bytes, for the work area
	diskErr    error
	pressure   job.Pressure
}

// most is the largest number of spare credits there can be.
func (s *Server) most() int { return lend.Most(s.o.Jobs) }

// key is the pre-shared key for connections that begin now; nil: there is none.
func (s *Server) key() *psk.Key {
	if s.o.Key == nil {
		return nil
	}
	return s.o.Key()
}

// Apply puts new settings in force; Rescan follows if the directories changed.
// Connections that are no longer allowed stay until they end.
func (s *Server) Apply(n Settings) { s.settings.Store(&n) }

// Settings are those in force.
func (s *Server) Settings() Settings { return *s.settings.Load() }

// Toolchains returns the compilers that the server offers.
func (s *Server) Toolchains() []toolchain.Toolchain { return s.compilers.List() }

// Identifying reports whether compilers are still being identified since the start.
func (s *Server) Identifying() bool { return s.compilers.Identifying() }
