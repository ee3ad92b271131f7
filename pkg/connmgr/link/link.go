// Package link implements one connection of a connection manager to one daemon. A link dials the daemon and
// proves the pre-shared key. It passes on the credits that the daemon grants, carries the jobs that are under
// way (Flight) and writes their sources in turns. It keeps what is known of the network and of the daemon's
// load, and finds out when the daemon is gone.
//
// A link knows nothing of other links, of hosts, or of how a host is chosen. It tells its Owner what it
// learns, and asks it only whether jobs want the host.
//
// A link has a lock of its own, which its methods take. They may be called with the owner's lock held, also
// for several links, as no link takes the lock of another. A link calls its owner without its lock, so the
// owner may take its own there and call any link. The order of locks is: the owner's, a link's, its QP's.
//
// What the owner is told can be older than what it then asks of the link. A flight's Done is closed only when
// the owner has been told all that came before. Two goroutines serve a link, one for completions and one for
// timers; Run waits for them.
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
	"github.com/rdistcc/rdistcc/pkg/connmgr/purse"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Config is what the links of one manager have in common. It must not be changed. All fields but Key are
// required.
type Config struct {
	Device  iwarp.Device
	Wait    iwarp.Waiting // how links wait for messages
	PD      iwarp.PD
	Log     *slog.Logger
	Name    string          // of this build host, for the daemons' logs
	Version string          // of this program, likewise
	Boot    [16]byte        // this manager's boot number: to a daemon, all links with it are one client
	Key     func() *psk.Key // called for each connection; without a key, nil or returns nil

	Bare          bool          // credits need no slots, because no source is written
	Results       bool          // results that daemons keep are of interest
	DialTimeout   time.Duration // for establishing the connection
	Heartbeat     time.Duration
	HeartbeatDead time.Duration // the link ends after so long a silence
	CancelTimeout time.Duration // the daemon must answer a Cancel within it
}

// Owner dials one link and is told what the link learns. It keeps the unspent credits. The link holds no lock
// when it calls one of its methods.
type Owner interface {
	// Connected is called when the peer has accepted the connection of a Dial, before any message. It is called
	// during Dial, and not with all devices.
	Connected()
	// Reached reports the address that a Dial connected to, once start-up is over and before the daemon's
	// first message. It is called during Dial.
	Reached(remote net.Addr)
	// Learned reports what has changed; the owner gets it from l. Like all methods below, it may be called from
	// the daemon's first message on, so before Dial has returned.
	Learned(l *Link, what News)
	// Granted delivers credits. The owner gives those that it does not want back by Link.Return.
	Granted(l *Link, credits []job.Credit)
	// Answered delivers what came with the answer to a job: the daemon's load; out, the bytes of the source if
	// Moved has not counted them, otherwise 0; and the next credit, or nil. It is one call, because these come
	// with every answer.
	Answered(l *Link, load job.Load, out uint64, next *job.Credit)
	// Recalled asks the owner to give back up to n credits by Link.Return. When it has returned, the daemon is
	// told that there are no more.
	Recalled(l *Link, n int)
	// Moved counts payload: bytes of sources that have gone out, or of results.
	Moved(out, in uint64)
	// Tick is called twice per heartbeat. It reports whether jobs want the host; then the link keeps reading
	// the host's load board.
	Tick(l *Link, now time.Time) (wanted bool)
	// Settled is called after a batch of completions has been handled, unless one of them ended a flight whose
	// result is here: the owner is then about to be asked for more anyway.
	Settled()
	// Lost is called once, when l ends, before its flights have their errors. All that is left to do with l is
	// to pass it to Inherit.
	Lost(l *Link, why error)
}

// News is what a link has learned.
type News uint8

const (
	ToolchainsChanged News = iota // see Toolchains
	LoadChanged                   // see View
	DrainBegun                    // see Draining: the owner gives its credits back and wants no more
	DemandHeard                   // the daemon has acknowledged the last Demand
	BoardRead                     // the daemon's load board was read
	BoardTorn                     // it was read while the daemon changed it, and told nothing
)

// Bounds of one connection.
const (
	// MaxInFlight bounds credits and jobs together on one connection: the owner gives back at once what is
	// granted beyond it. Each takes a receive of MaxMessage bytes.
	MaxInFlight = 128
	recvBuffers = MaxInFlight + job.Spare + 1 // and one for the Welcome
	maxSend     = MaxInFlight*(chunksPosted+1) + rdmaread.Depth + 4*job.Spare
)

// Link is one live connection to a daemon: the QP, its posted receives, and the jobs that are under way on
// it. It ends once, by either side or for an error. Then every flight has its error, and dead is closed.
type Link struct {
	// set once in Dial
	c       *Config
	owner   Owner
	addr    string
	running sync.WaitGroup // serve and tick
	qp      iwarp.QP
	cq      iwarp.CQ
	peer    string // the name in the daemon's certificate; empty: it has none
	recvMem []byte // room for recvBuffers messages; nil until the connection is established
	recvMR  iwarp.MR
	// peerReads is set if the daemon may send RDMA Reads.
	peerReads bool
	up        chan struct{} // closed once Welcome and the toolchains are here
	retire    chan struct{} // closed by Retire
	dead      chan struct{} // closed when no further completion can come

	landed []*Flight // ended by the completions that are being handled; owned by serve

	mu sync.Mutex // guards the rest; taken before qp's lock, not held when the owner is called

	cause    error // why the link ends, once that is known
	lost     bool  // the link has ended; the owner has been told or is being told
	ended    bool  // the owner has been told; dead is closed next
	ready    bool  // up is closed
	welcome  *job.Welcome
	ids      map[unit.ToolchainID]bool
	idsSeen  int
	listed   bool     // one list has come in full
	relisted bool     // a later list has begun, which may be shorter than the Welcome said
	more     bool     // the daemon is still finding out which compilers it has
	names    []string // of the compilers behind the toolchains
	flights  map[uint64]*Flight
	puller   *rdmaread.Puller // reads results and the load board; nil until the connection is established
	offers   int              // results that the daemon keeps in a window; each needs a Release
	stopping int              // stopped pulls that still have Reads under way
	spare    []int            // indexes of receive buffers that are not posted
	draining bool
	used     time.Time // when the link last had something to do
	turns    turns
	demand   demand
	path     path
	view     View
	board    boardReader
	shelf    shelfReader
	copies   copies

	beatSeq, beatAcked uint32
	beatAt             time.Time     // when the last heartbeat was sent
	beatMark           uint64        // bytes of the stream acknowledged before that heartbeat is
	cancels            purse.Cancels // of flights, by ID

	heard   int64  // frames and messages received until the last tick, without board reads
	sent    uint64 // FPDUs sent until the last tick
	unacked uint64 // bytes under way at the last tick
	acked   uint64 // bytes acknowledged until the last tick
	silent  time.Duration
	rests   bool
}

// Welcome returns what the daemon said it can do. It does not change once Dial has returned.
func (l *Link) Welcome() *job.Welcome { return l.welcome }

// Peer returns the name in the certificate by which the daemon has proven its identity, or "".
func (l *Link) Peer() string { return l.peer }

// Group returns the name of the group whose shelf the daemon's is, or "" if it is this tenant's alone.
func (l *Link) Group() string { return l.welcome.Group }

// QP returns the queue pair, for registrations that end with this connection. Only the link posts to it.
func (l *Link) QP() iwarp.QP { return l.qp }

// MaxSource returns the longest source that the daemon will fetch, in bytes; 0: it fetches none.
func (l *Link) MaxSource() uint64 {
	if !l.peerReads {
		return 0
	}
	return l.welcome.MaxSource
}

// Toolchains returns the toolchains that the daemon can run, in no order, and how many it has listed so far.
func (l *Link) Toolchains() (ids []unit.ToolchainID, listed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.AppendSeq(make([]unit.ToolchainID, 0, len(l.ids)), maps.Keys(l.ids)), l.idsSeen
}

// Has reports whether the daemon can run a toolchain.
func (l *Link) Has(id unit.ToolchainID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[id]
}

// Identifying reports whether the daemon is still finding out which compilers it has. It may then list more
// of them soon.
func (l *Link) Identifying() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.more
}

// Compilers returns the families and versions of the compilers behind the toolchains, such as "gcc 12.2.0",
// as far as the daemon has named them. The slice must not be changed.
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

// Room reports whether the link has a use for as many unspent credits, besides those of the jobs that are
// under way.
func (l *Link) Room(unspent int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.draining && unspent+len(l.flights) <= MaxInFlight
}

// Backlog returns how many bytes of sources are still to be written or are under way.
func (l *Link) Backlog() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turns.backlog()
}

// A link is busy, and a further one worth having, when it carries busyJobs jobs, or when its backlog would
// take longer than busyBacklog to send: one TCP stream does not fill every network.
const (
	busyJobs    = MaxInFlight / 2
	busyBacklog = time.Second
	busyBytes   = 16 << 20 // the bound on the backlog if the rate is not known
)

// Busy reports whether the link has more to do than one link should.
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

// Use records that a job is about to come, so the link is not idle.
func (l *Link) Use() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = time.Now()
}

// Return gives an unspent credit back to the daemon.
func (l *Link) Return(c job.Credit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sendLocked(&job.Return{Credit: c.ID}, l.ends(&c))
}

// demand is what a link's daemon has been told of the jobs for it, and what it will be told next.
type demand struct {
	seq, acked   uint32
	jobs, builds int       // told last
	peak         int       // the number of jobs, without falls that were too short
	low          time.Time // since when there have been fewer; zero if there are not
	lowPeak      int       // the most jobs since low
}

// boardReader is a link's reading of the daemon's board, guarded by Link.mu.
type boardReader struct {
	mem   [job.BoardLen]byte
	mr    iwarp.MR // of mem; nil if there is no board to read
	busy  bool
	asked time.Time
	reads uint64 // answered reads: each is a frame that no program sent
	news  []News // from finished reads, for the owner
}

// View is what is known of a host's load.
type View struct {
	Load     job.Load
	Pressure *job.Pressure // from a board, otherwise nil; must not be changed
	From     string        // FromWelcome, FromResult, FromHeartbeat or FromBoard
	At       time.Time
}

// View returns what is known of the daemon's load.
func (l *Link) View() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view
}

// Packing reports whether a source and a result of the given sizes, in bytes, arrive sooner if they are
// compressed.
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

// Path returns the round trip time to the daemon and the rate in bytes per second, each 0 if not known.
func (l *Link) Path() (rtt time.Duration, rate float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.path.floor {
		rate = l.path.rate
	}
	return l.path.rtt, rate
}

// Said returns how many jobs the daemon was last told there are for it.
func (l *Link) Said() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.demand.jobs, 0)
}
