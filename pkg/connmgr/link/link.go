// Package link is one connection of a connection manager to one daemon: how it is dialled
// and proven, the credits that the daemon has granted on it, the jobs that are under way
// (Flight) and the turns in which their sources are written, what is known of the network
// and of the daemon's load, and how the link finds out that the daemon is gone.
//
// A link knows nothing of other links, of hosts and of how one is chosen. It tells its
// Owner what it learns, and asks it nothing else than whether anybody wants the host.
//
// A link has a lock of its own, which its methods take: they may be called with the owner's
// lock held, and of any number of links, as no link ever takes another one's. The link
// calls its owner without a lock, so the owner may take its own there and call any link.
// So the order is: the owner's lock, a link's, its QP's. What the owner is told can be older
// than what it then asks of the link; a flight is over for whoever waits for it only when the owner
// has been told all that came before. Two goroutines serve a link, one its completions and
// one the time; Run waits for them.
package link

import (
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Config is what the links of one manager have in common. It is not changed, and all of
// it is needed but Key.
type Config struct {
	Device iwarp.Device
	PD     iwarp.PD
	Log    *slog.Logger
	Name   string          // of this build host, for the daemons' logs
	Boot   [16]byte        // of this manager: a daemon takes all links with it for one client
	Key    func() *psk.Key // asked for each connection; nil, or nil from it: there is no key

	DialTimeout   time.Duration // of the transport's part
	Heartbeat     time.Duration
	HeartbeatDead time.Duration // of silence: the link ends
	CancelTimeout time.Duration // a daemon's answer to a Cancel
}

// Owner dials one link and is told what that learns. It keeps the credits that are not
// spent. None of its methods is called with a lock of the link's held.
type Owner interface {
	// Connected says that something has taken the connection of a Dial, and has not said a
	// word. It is called in Dial; not by all devices.
	Connected()
	// Reached says where a Dial came to, once start-up is over and before the daemon's
	// first message. It is called in Dial.
	Reached(remote net.Addr)
	// Learned says that something is new, which is to be asked of l. Like all that follow it
	// comes from the first message on, so before Dial has returned.
	Learned(l *Link, what News)
	// Granted brings credits. Those that are not wanted go back by Return.
	Granted(l *Link, credits []job.Credit)
	// Answered brings what came with the answer to a job, all at once as it comes with each: a new load,
	// the bytes of its source where Moved has not counted them, and a credit, if that is not nil.
	Answered(l *Link, load job.Load, out uint64, next *job.Credit)
	// Recalled asks for up to n credits, by Return. Once it has come back the daemon hears
	// that those were all.
	Recalled(l *Link, n int)
	// Moved counts payload: bytes of sources that have gone out, or of results.
	Moved(out, in uint64)
	// Tick comes twice a heartbeat. It reports whether jobs want the host: then its load
	// board is looked at now and then.
	Tick(l *Link, now time.Time) (wanted bool)
	// Settled follows completions that were handled, but where one of them has ended a flight
	// whose result is there: who waits for that one asks for more by itself.
	Settled()
	// Lost comes once, when l ends, before its flights have their errors. Nothing is to be done
	// with l any more but Inherit.
	Lost(l *Link, why error)
}

// News is what a link has learned.
type News uint8

const (
	ToolchainsChanged News = iota // Toolchains
	LoadChanged                   // View
	DrainBegun                    // Draining: no credit is wanted any more, those that there are go back
	DemandHeard                   // the daemon has taken note of the last Demand
	BoardRead                     // its load board was read
	BoardTorn                     // the same in the midst of a change: it says nothing
)

// Bounds of one connection.
const (
	// MaxInFlight bounds credits and jobs together on one connection: what is
	// granted beyond its owner gives back at once. Each takes a receive of MaxMessage bytes.
	MaxInFlight = 128
	recvBuffers = MaxInFlight + job.Spare + 1 // and one for the Welcome
	maxSend     = MaxInFlight*(chunksPosted+1) + rdmaread.Depth + 4*job.Spare
)

// Link is one live connection to a daemon: the QP, its posted receives, and the jobs that
// are under way on it. It ends once, by Fail or by the peer; dead is then closed and
// every flight has its error.
type Link struct {
	// set once in Dial
	c       *Config
	owner   Owner
	addr    string
	running sync.WaitGroup // serve and tick
	qp      iwarp.QP
	cq      iwarp.CQ
	recvMem []byte // recvBuffers messages; nil before the connection is made
	recvMR  iwarp.MR
	// peerReads: the daemon may send RDMA Reads.
	peerReads bool
	up        chan struct{} // closed once Welcome and the toolchains are here
	retire    chan struct{} // closed when it is not needed any more
	dead      chan struct{} // closed when no completion is to come any more

	landed []*Flight // ended by those completions that are being handled; owned by serve

	mu sync.Mutex // before that of qp; no owner is called with it. It guards the rest

	cause    error // why it ends, once that is known
	lost     bool  // it has ended, and its owner is told, or has been
	ended    bool  // the owner has been told; dead is closed next
	ready    bool  // up is closed
	welcome  *job.Welcome
	ids      map[unit.ToolchainID]bool
	idsSeen  int
	listed   bool     // one list has come whole
	relisted bool     // a later list has begun: it may be shorter than the Welcome said
	more     bool     // the daemon is still finding out which compilers it has
	names    []string // of the compilers behind them
	flights  map[uint64]*Flight
	puller   *rdmaread.Puller // of results and of the load board; nil until the connection is made
	offers   int              // results that the daemon keeps for us: a Release is due for each
	stopping int              // pulls that were stopped and have Reads under way
	spare    []int            // receive buffers that are not posted
	draining bool
	used     time.Time // when it had something to do last
	turns    turns
	demand   demand
	path     path
	view     View
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

// Welcome returns what the daemon said it can do. From Dial on it does not change.
func (l *Link) Welcome() *job.Welcome { return l.welcome }

// QP returns the queue pair, for registrations that end with this connection. Only the link posts to it.
func (l *Link) QP() iwarp.QP { return l.qp }

// MaxSource returns the longest source that the daemon will fetch, in bytes; 0: it fetches none.
func (l *Link) MaxSource() uint64 {
	if !l.peerReads {
		return 0
	}
	return l.welcome.MaxSource
}

// Toolchains returns those that the daemon can run, and how many it has listed.
func (l *Link) Toolchains() (ids []unit.ToolchainID, listed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.AppendSeq(make([]unit.ToolchainID, 0, len(l.ids)), maps.Keys(l.ids)), l.idsSeen
}

// Identifying reports whether the daemon is still finding out which compilers it has: it
// may list further ones soon.
func (l *Link) Identifying() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.more
}

// Compilers returns the families and versions behind the toolchains, say "gcc 12.2.0", as
// far as the daemon has told. The slice is not changed.
func (l *Link) Compilers() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names
}

// Draining reports whether the daemon wants no new jobs.
func (l *Link) Draining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// Builds returns, for each job that is under way, the build that it belongs to.
func (l *Link) Builds() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	builds := make([]uint64, 0, len(l.flights))
	for _, f := range l.flights {
		builds = append(builds, f.Build)
	}
	return builds
}

// Running returns how many jobs are under way.
func (l *Link) Running() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.flights)
}

// Room reports whether the link has a use for so many unspent credits beside the jobs that are
// under way.
func (l *Link) Room(unspent int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.draining && unspent+len(l.flights) <= MaxInFlight
}

// Backlog returns how many bytes of sources are to be written or under way.
func (l *Link) Backlog() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turns.backlog()
}

// A link is busy, and a further one worth having, when it carries busyJobs, or when what
// waits on it would keep the network so for busyBacklog: one TCP stream does not fill every
// network.
const (
	busyJobs    = MaxInFlight / 2
	busyBacklog = time.Second
	busyBytes   = 16 << 20 // the same where the rate is not known
)

// Busy reports whether the link has more to do than one should.
func (l *Link) Busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flights) >= busyJobs {
		return true
	}
	n := l.turns.backlog()
	if l.path.rate > 0 && !l.path.floor {
		return float64(n) > l.path.rate*busyBacklog.Seconds()
	}
	return n > busyBytes
}

// Use notes that a job is about to come: the link is not idle.
func (l *Link) Use() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = time.Now()
}

// Return gives an unspent credit back to the daemon.
func (l *Link) Return(c job.Credit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sendLocked(&job.Return{Credit: c.ID}, c.Slot.STag)
}

// demand is what a link's daemon has been told, and is to be told.
type demand struct {
	seq, acked   uint32
	jobs, builds int       // said last
	peak         int       // the jobs, less falls that did not last
	low          time.Time // when there were fewer for the first time since; zero: there are not
	lowPeak      int       // the most since then
}

// boardReader is a link's reading of the daemon's board, guarded by Link.mu.
type boardReader struct {
	mem   [job.BoardLen]byte
	mr    iwarp.MR // of mem; nil: there is no board to be read
	busy  bool
	asked time.Time
	reads uint64 // that were answered: each is a frame that no program sent
	news  []News // of the last one, for the owner
}

// View is what is known of a host's load.
type View struct {
	Load     job.Load
	Pressure *job.Pressure // of a board; it is not changed
	From     string        // see above
	At       time.Time
}

// View returns what is known of the daemon's load.
func (l *Link) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view
}

// Packing reports whether a source and a result of so many bytes are there sooner if they are
// packed.
func (l *Link) Packing(source, result uint64) (out, in bool) {
	if l.path.near { // which does not change
		return false, false
	}
	now := l.qp.Stats().Path
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path.tell(now)
	return l.path.packs(source, sourceLeft), l.path.packs(result, resultLeft)
}

// Path returns what is known of the way to the daemon: a round trip, and bytes a second;
// 0: not known.
func (l *Link) Path() (rtt time.Duration, rate float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.path.floor {
		rate = l.path.rate
	}
	return l.path.rtt, rate
}

// Said returns how many jobs the daemon was told that there are.
func (l *Link) Said() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.demand.jobs, 0)
}
