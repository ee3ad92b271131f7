// Package link is one connection of a connection manager to one daemon: how it is dialled
// and proven, the credits that the daemon has granted on it, the jobs that are under way
// (Flight) and the turns in which their sources are written, what is known of the network
// and of the daemon's load, and how the link finds out that the daemon is gone.
//
// A link knows nothing of other links, of hosts and of how one is chosen. It tells its
// Owner what it learns, and asks it nothing else than whether anybody wants the host.
//
// One lock guards it and all that its owner keeps: Config.Mu, the manager's. Who calls a
// method that ends in Locked holds it, and so does the link when it calls one of its
// owner's that does: these may call Locked methods, of this link and of others. All other
// methods take Mu by themselves where they need it, and are called without. The link has
// no lock of its own, but its QP has: that one comes after Mu. Two goroutines serve a
// link, one its completions and one the time; Run waits for them.
package link

import (
	"iter"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/fetch"
	"github.com/rdistcc/rdistcc/pkg/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// Config is what the links of one manager have in common. It is not changed, and all of
// it is needed but Key.
type Config struct {
	Device iwarp.Device
	PD     iwarp.PD
	Mu     sync.Locker // see the package
	Log    *slog.Logger
	Name   string          // of this build host, for the daemons' logs
	Boot   [16]byte        // of this manager: a daemon takes all links with it for one client
	Key    func() *psk.Key // asked for each connection; nil, or nil from it: there is no key

	DialTimeout   time.Duration // of the transport's part
	Heartbeat     time.Duration
	HeartbeatDead time.Duration // of silence: the link ends
	CancelTimeout time.Duration // a daemon's answer to a Cancel
}

// Owner is who dials links to a host, and is told what they learn.
type Owner interface {
	// Connected says that something has taken the connection of a Dial, and has not said a
	// word. It is called in Dial, without Mu; not by all devices.
	Connected()
	// Reached says where a Dial came to, once start-up is over and before the daemon's
	// first message. It is called in Dial, without Mu.
	Reached(remote net.Addr)
	// LearnedLocked says that something is new, which is to be asked of l. It comes from
	// the first message on, so before Dial has returned.
	LearnedLocked(l *Link, what News)
	// MovedLocked counts payload: bytes of sources that have gone out, or of results.
	MovedLocked(out, in uint64)
	// TickLocked comes twice a heartbeat. It says whether jobs want the host: then its
	// load board is looked at now and then.
	TickLocked(l *Link, now time.Time) (wanted bool)
	// SettledLocked follows completions that were handled, if none of them has ended a
	// flight: who waits for that one asks for more by itself.
	SettledLocked()
	// LostLocked comes once, when l ends: its flights have their errors already. Nothing
	// is to be done with l any more but InheritLocked.
	LostLocked(l *Link, why error)
}

// News is what a link has learned.
type News uint8

const (
	CreditsChanged    News = iota // CreditsLocked
	ToolchainsChanged             // ToolchainsLocked
	LoadChanged                   // ViewLocked
	DrainBegun                    // DrainingLocked
	DemandHeard                   // the daemon has taken note of the last DemandLocked
	BoardRead                     // its load board was read
	BoardTorn                     // the same in the midst of a change: it says nothing
)

// Bounds of one connection.
const (
	// MaxInFlight bounds credits and jobs together on one connection: what is
	// granted beyond goes back at once. Each takes a receive of MaxMessage bytes.
	MaxInFlight = 128
	recvBuffers = MaxInFlight + job.Spare + 1 // and one for the Welcome
	maxSend     = MaxInFlight*(chunksPosted+1) + fetch.Depth + 4*job.Spare
)

// Link is one live connection to a daemon: the QP, its posted receives, the
// credits that it carries and the jobs that are under way on it. It ends once,
// by FailLocked or by the peer; dead is then closed and every flight has its error.
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

	// guarded by c.Mu
	cause    error // why it ends, once that is known
	ended    bool  // dead is closed
	ready    bool  // up is closed
	welcome  *job.Welcome
	ids      map[job.ToolchainID]bool
	idsSeen  int
	listed   bool         // one list has come whole
	relisted bool         // a later list has begun: it may be shorter than the Welcome said
	more     bool         // the daemon is still finding out which compilers it has
	names    []string     // of the compilers behind them
	credits  []job.Credit // unspent; the last one is the next
	flights  map[uint64]*Flight
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

// Welcome is what the daemon said it can do. From Dial on it does not change.
func (l *Link) Welcome() *job.Welcome { return l.welcome }

// QP is for registrations that end with this connection. Only the link posts to it.
func (l *Link) QP() iwarp.QP { return l.qp }

// MaxSource is the longest source that the daemon will fetch, in bytes; 0: it fetches none.
func (l *Link) MaxSource() uint64 {
	if !l.peerReads {
		return 0
	}
	return l.welcome.MaxSource
}

// ToolchainsLocked are those that the daemon can run, and how many it has listed. The map
// is the link's: it is read under Mu and not kept.
func (l *Link) ToolchainsLocked() (ids map[job.ToolchainID]bool, listed int) { return l.ids, l.idsSeen }

// IdentifyingLocked reports whether the daemon is still finding out which compilers it
// has: it may list further ones soon.
func (l *Link) IdentifyingLocked() bool { return l.more }

// CompilersLocked are the families and versions behind the toolchains, say "gcc 12.2.0",
// as far as the daemon has told. The slice is not changed.
func (l *Link) CompilersLocked() []string { return l.names }

// DrainingLocked says that the daemon wants no new jobs.
func (l *Link) DrainingLocked() bool { return l.draining }

// FlightsLocked are the jobs that are under way.
func (l *Link) FlightsLocked() iter.Seq[*Flight] { return maps.Values(l.flights) }

// RunningLocked is how many these are.
func (l *Link) RunningLocked() int { return len(l.flights) }

// CreditsLocked is how many credits are not spent.
func (l *Link) CreditsLocked() int { return len(l.credits) }

// BacklogLocked is how many bytes of sources are to be written or under way.
func (l *Link) BacklogLocked() uint64 { return l.turns.backlog() }

// A link is busy, and a further one worth having, when it carries busyJobs, or when what
// waits on it would keep the network so for busyBacklog: one TCP stream does not fill every
// network.
const (
	busyJobs    = MaxInFlight / 2
	busyBacklog = time.Second
	busyBytes   = 16 << 20 // the same where the rate is not known
)

// BusyLocked says whether the link has more to do than one should.
func (l *Link) BusyLocked() bool {
	if len(l.flights) >= busyJobs {
		return true
	}
	n := l.turns.backlog()
	if l.path.rate > 0 && !l.path.floor {
		return float64(n) > l.path.rate*busyBacklog.Seconds()
	}
	return n > busyBytes
}

// AddCreditLocked keeps a credit that was granted, or was taken and not spent, or returns
// it at once when there are more than this side will ever use.
func (l *Link) AddCreditLocked(c job.Credit) {
	l.credits = append(l.credits, c)
	if l.draining || len(l.credits)+len(l.flights) > MaxInFlight {
		l.ReturnLocked(1)
		return
	}
	l.owner.LearnedLocked(l, CreditsChanged)
}

// TakeCreditLocked is the next credit, which the caller knows to be there (CreditsLocked). It
// is spent by a Flight, or goes back by AddCreditLocked.
func (l *Link) TakeCreditLocked() job.Credit {
	last := len(l.credits) - 1
	c := l.credits[last]
	l.credits = l.credits[:last]
	l.used = time.Now()
	return c
}

// ReturnLocked gives up to n unspent credits back to the daemon.
func (l *Link) ReturnLocked(n int) {
	for ; n > 0 && len(l.credits) > 0; n-- {
		last := len(l.credits) - 1
		c := l.credits[last]
		l.credits = l.credits[:last]
		l.sendLocked(&job.Return{Credit: c.ID}, c.Slot.STag)
	}
	l.owner.LearnedLocked(l, CreditsChanged)
}
