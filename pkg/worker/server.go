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
	"github.com/rdistcc/rdistcc/pkg/worker/shelves"
	"github.com/rdistcc/rdistcc/pkg/worker/users"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// Server does the daemon's work. It knows nothing of flags or signals.
type Server struct {
	o         Options
	boot      [16]byte
	compilers *offered.Compilers
	slots     *shm.Pool
	copies    *shm.Pool // what jobs bring and results, while slots stay open to the clients; nil if they do not
	large     *large.Memory
	keep      *store.Store      // contents that clients have sent; nil: no store; set once by New
	shelves   *shelves.Shelves  // results for clients to read; nil: none; set once by New
	arrived   arrived           // toolchains that clients have sent
	machine   files.Machine     // this machine's own headers
	learner   *files.Learner    // reads them in advance, if Options.Learn
	forgets   atomic.Uint64     // grows while the machine is short of memory: trees drop what they keep
	carried   carried           // memory of eager jobs
	intakes   chan *run.Scratch // one per place, which bounds how many tasks are taken in at a time
	area      *workdir.Area
	guard     *workdir.Guard
	places    *run.Host // what all places share
	noTree    string    // why they have no trees, though they were to; set once at the start
	ownUsers  bool      // each runner's compiles have a user of their own; set once by New
	users     users.Range
	cage      confinement
	shown     atomic.Pointer[display] // what trees have to show
	headers   headers                 // the same, for clients of other protocols; guarded by mu
	groups    *cgroup.Groups          // the control groups around this process; set once by New
	settings  atomic.Pointer[Settings]
	load      atomic.Pointer[hostLoad]
	started   time.Time
	ended     endedJobs // for status pages

	stop    context.CancelFunc // ends the accept loops and the ticker
	ctx     context.Context
	serving sync.WaitGroup // accept loops, connections, ticker
	runners sync.WaitGroup

	mu        sync.Mutex
	conns     map[*conn]bool
	lastConn  uint64
	streams   streamCount
	offenders lend.Offenders
	lend      *lend.Ledger // decides how credits, cores and memory are divided
	wake      *sync.Cond   // runners wait here for something to do, or for closing
	awaiting  bool         // a timer will wake the runners at the end of a pause
	rest      time.Time    // until then the host takes no work in any case
	drain     drain
	copying   int64 // bytes of memory for results that are being copied from clients
	closing   bool
	page      page
	twins     map[twinName]*twin // jobs under way for which equal ones can wait
}

// drain is how far Server.Drain has come.
type drain struct {
	begun     bool          // no new job is taken
	impatient bool          // the server has drained for Options.Grace
	idle      chan struct{} // made by Drain; closed when nothing runs, waits or is being sent
}

// page is what goes into every load board.
type page struct {
	seq    uint64
	buf    []byte      // scratch space of publishLocked
	speeds []job.Speed // of toolchains, the last used one first
}

// confinement is what is known about how compiles are confined.
type confinement struct {
	// guarded by Server.mu
	held     []sandbox.Set       // by runner: the measures of its tree; 0: no tree yet
	breach   string              // what a canary could reach, or what did not work; "": nothing
	doubt    sandbox.Set         // measures that a breach has put in doubt
	lost     *job.Refusal        // strict: why no work is taken
	tested   []*privatetree.Spec // by runner: what its tree showed when a canary last ran there
	shownAt  time.Time           // when the compilers that trees show last changed
	testing  int                 // idle runners that run a canary
	begun    bool                // runners exist, so that it is known how they can be confined
	told     bool                // tellSandbox has logged
	round    int                 // number of the round in which every runner has to pass a canary; see runner.round
	passed   int                 // runners that have passed in this round, during a breach
	again    time.Time           // when the next round begins
	wanted   bool                // the next idle runner is to run a canary
	schedule schedule
}

// display is what trees have to show, and the toolchains that this is for. It does not change.
type display struct {
	spec *privatetree.Spec
	list []toolchain.Toolchain
}

// hostLoad is the machine's state. It is read once a tick, because that takes reading several files.
type hostLoad struct {
	loadAvg    uint32 // x 100
	memoryFree uint64 // bytes
	oomKills   uint64
	diskFree   uint64 // bytes, for the work area
	diskErr    error
	pressure   job.Pressure
	// ample says that memory is free for everything here. Programs that wait for some then wait for other reasons.
	ample bool
}

// waits returns the memory pressure if it is for want of this host's memory, or 0.
func (h *hostLoad) waits() uint16 {
	if h.ample {
		return 0
	}
	return h.pressure.Memory
}

// most returns the largest number of spare credits that there can be.
func (s *Server) most() int { return lend.Most(s.o.Jobs) }

// key returns the pre-shared key for connections that begin now, or nil if there is none.
func (s *Server) key() *psk.Key {
	if s.o.Key == nil {
		return nil
	}
	return s.o.Key()
}

// Apply puts new settings into force. The caller calls Rescan if the directories have changed. Connections
// that are no longer allowed stay until they end.
func (s *Server) Apply(n Settings) { s.settings.Store(&n) }

// Settings returns the settings in force.
func (s *Server) Settings() Settings { return *s.settings.Load() }

// Toolchains returns the compilers that the server offers.
func (s *Server) Toolchains() []toolchain.Toolchain { return s.compilers.List() }

// Offered returns the same, and whether more may follow because compilers are still being identified.
func (s *Server) Offered() (list []toolchain.Toolchain, more bool) { return s.compilers.Now() }

// Trees reports whether the host can show private trees. It does not change.
func (s *Server) Trees() bool { return s.places.Trees }

// Identifying reports whether compilers are still being identified since the start.
func (s *Server) Identifying() bool { return s.compilers.Identifying() }
