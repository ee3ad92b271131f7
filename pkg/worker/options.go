package worker

import (
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/auditlog"
	"github.com/rdistcc/rdistcc/pkg/worker/cluster"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
	"github.com/rdistcc/rdistcc/pkg/worker/received"
)

// localTenant is the tenant of all peers on this machine without a name of their own.
const localTenant = "local"

// Options configure a Server.
type Options struct {
	Device  iwarp.Device
	Wait    iwarp.Waiting // how connections wait for messages
	Log     *slog.Logger
	Audit   *auditlog.Log // nil: no audit log
	Metrics *Metrics      // nil: not counted
	Program string        // the daemon's version, as clients are told
	// Key returns the pre-shared key for connections that begin now. If Key is nil or returns nil, there is
	// none, and a client that has one is turned away.
	Key func() *psk.Key
	// AuthFailed is called for each peer that has not proven its identity, with the cause as metrics name it
	// and a line for humans. If it is nil, the server counts and logs such peers itself. It must not call the
	// server.
	AuthFailed func(remote net.Addr, cause, detail string)
	// AuthPassed, if not nil, is called for each peer that has proven that it has the key. It must not call
	// the server.
	AuthPassed func(remote net.Addr)
	// Stream, if not nil, is given each stream that a peer opens, which it has to close. It must not block. nil:
	// streams are rejected.
	Stream    func(c net.Conn, peer StreamPeer)
	ProveTime time.Duration // from our Reply to the client's proof; 0 = 10 s
	Jobs      int           // compiles at a time
	Clients   int           // connections at a time
	Slot      int64         // bytes of a slot: for body and text, then for the result
	Slots     SlotAccess    // how clients get access to slots
	Prefault  int64         // bytes of each slot that stay allocated
	Source    int64         // largest source, in bytes, that is fetched because it is too big for a slot
	Result    int64         // largest result, in bytes, that is offered because it is too big for slot or sink
	Large     int64         // bytes that those may take together
	// Eager is how many bytes of body and text a Job message may carry, at most job.MaxEager; 0 = none. Each
	// receive is that much longer.
	Eager     int64
	NoWrite   bool          // credits have no slots
	NoPull    bool          // only sources too big for a slot are fetched
	WorkBase  string        // directory for the work area
	Compilers string        // file that remembers the compilers across restarts; empty: no file
	Answer    time.Duration // how long a compiler may take for one question about itself; 0 = 20 s
	Heartbeat time.Duration
	Silence   time.Duration // time without a sign of life after which a client counts as lost
	Grace     time.Duration // how long Drain waits for credits to be returned or spent
	// WindowTime is how long a client may leave a result unread, or our Read of its source unanswered. 0 =
	// job.WindowTime, the least that the protocol allows.
	WindowTime time.Duration
	Tree       TreeMode

	// Store configures the store for contents that clients send once. Memory 0 = a sixteenth of the machine's
	// memory, within bounds. There is no store if NoStore is set, or if there are no trees.
	Store   store.Options
	NoStore bool
	// Results bounds the memory of results that clients can read, in bytes for all tenants together; less than
	// 4 MiB: none are kept.
	Results int64
	// ResultsDir is a directory in which they are kept instead, as far as that is possible, in ResultsDisk bytes. It
	// must be this server's own. Empty, or less than 4 MiB: all are in memory.
	ResultsDir  string
	ResultsDisk int64
	// Groups has the group of each tenant that shares its results with others. On the shelf of a group is only what
	// this host has named itself, and signed by Sign; nil: there are no groups.
	Groups map[string]string
	Sign   func(sum [32]byte) ([]byte, error) // Raw.AppendSigned
	// Received configures the store of toolchains that clients may send, as far as Accept says.
	Received received.Options
	Accept   AcceptMode
	Learn    bool // read this machine's own headers in advance, while the server is idle

	// Cluster, if not nil, has all jobs done. Then nothing of a job runs on this machine, and Tree, Sandbox and the bounds of processes
	// and memory do not apply. The caller closes it after the server.
	Cluster *cluster.Cluster

	// Sandbox says how compiles are confined.
	Sandbox SandboxMode
	// Bounds of each compile: its memory in bytes, processes at a time, bytes of one file, and bytes of each
	// of its standard output and error. 0 is a default of this package.
	JobMemory int64
	Processes int
	File      int64
	Output    int64
	// Users is the first number of the users that confined compiles run as, if this process is root. Each
	// runner gets one that no other daemon has, from this number on. 0 = none.
	Users      int
	Cgroup     string        // a delegated control group directory (privatetree.Spec.Cgroup); "" = none
	CanaryMean time.Duration // average time between two canaries; 0 = 10 minutes

	// Bounds of one tenant: how many jobs run and wait at a time, 0 = no bound but that of the host.
	ClientRunning, ClientQueued int
	// ClientBytes bounds the bytes of slots and of large memory of one tenant. 0 = half of the large memory,
	// and any number of slots.
	ClientBytes int64

	Memory    int64  // bytes that each program of a compile may map; 0 = no limit
	DiskFloor int64  // bytes that must be free below WorkBase for the host to take work
	Proc      string // where the proc file system is mounted; "" = /proc
	Settings
}

// Settings are the options that can change while the server runs.
type Settings struct {
	Allow      []netip.Prefix // networks that may connect, in addition to loopback
	Nice       int            // niceness of compiles
	JobTimeout time.Duration
	Dirs       []string // directories with compilers
}

// SandboxMode says how compiles are confined.
type SandboxMode uint8

// Modes.
const (
	SandboxOff    SandboxMode = iota // not at all: a compile can do whatever this process's user can
	SandboxAuto                      // by everything that the system offers
	SandboxStrict                    // at least sandbox.Confined; otherwise New fails, or jobs are refused
)

func (m SandboxMode) String() string { return [...]string{"off", "auto", "strict"}[m] }

// AcceptMode says from whom toolchains are accepted.
type AcceptMode uint8

// Modes.
const (
	AcceptNone  AcceptMode = iota
	AcceptNamed            // from clients with a certificate, and from this machine
	AcceptAll              // from all that may send jobs
)

// TreeMode says whether jobs of the sources form are accepted.
type TreeMode uint8

// Modes.
const (
	TreeAuto     TreeMode = iota // if the system allows us to make trees, with namespaces if it can be
	TreeOff                      // never
	TreeRequire                  // New fails if the system does not allow it
	TreeAnswered                 // without namespaces: by answers to confined compiles' calls, if the system allows that
)

// Bounds of a compile if Options sets none.
const (
	defaultProcesses = 64
	defaultFile      = 1 << 30 // bytes: an assembly is several times its object
	defaultOutput    = 1 << 20 // bytes
)

// largePart returns how much of the large memory one tenant can have, in bytes: half of it, but at least what
// one job can take, whose source is in memory packed and unpacked.
func (o *Options) largePart() int64 {
	if o.ClientBytes > 0 {
		return o.ClientBytes
	}
	biggest := max(o.Source, o.Result)
	return max(1, o.Large/2, min(o.Large, biggest+biggest/4))
}

// lending returns the bounds of what is lent. One tenant can hold as many credits as slots fit in
// limits.client-bytes.
func (o *Options) lending() lend.Options {
	credits := int64(lend.Unlimited)
	if o.ClientBytes > 0 {
		credits = min(o.ClientBytes/o.Slot, lend.Unlimited)
	}
	return lend.Options{Cores: o.Jobs, Conns: o.Clients, Running: o.ClientRunning, Queued: o.ClientQueued, Credits: int(credits)}
}
