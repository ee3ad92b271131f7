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
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// localTenant is the tenant of all peers on this machine without a name of their own.
const localTenant = "local"

// Options of a Server.
type Options struct {
	Device  iwarp.Device
	Log     *slog.Logger
	Audit   *auditlog.Log // nil: none is kept
	Metrics *Metrics      // nil: not counted
	Program string        // what the daemon calls its version
	// Key is the pre-shared key of connections that begin now. Nil, or nil from it:
	// there is none, and a client that has one is turned away.
	Key func() *psk.Key
	// AuthFailed is told of each peer that has not proven who it is, by the word for
	// it in metrics and a line for a person; nil: that is counted and logged here.
	// AuthPassed is told of one that has. They must not call the server.
	AuthFailed func(remote net.Addr, cause, detail string)
	AuthPassed func(remote net.Addr)
	ProveTime  time.Duration // from our Reply to the client's proof; 0 = 10 s
	Jobs       int           // compiles at a time
	Clients    int           // connections at a time
	Slot       int64         // bytes of a slot: body and text, and the result
	Prefault   int64         // of these, kept in memory
	Source     int64         // bytes of a source that is fetched, when a slot is too small
	Result     int64         // bytes of a result that is offered, when slot or sink are too small
	Large      int64         // bytes that those may take together
	WorkBase   string        // directory for the work area
	Compilers  string        // file that remembers which compilers there are; empty: none
	Answer     time.Duration // to one question to a compiler about itself; 0 = 5 s
	Heartbeat  time.Duration
	Silence    time.Duration // without a sign of life a client is lost
	Grace      time.Duration // how long Drain waits for credits to come back, or be spent
	// WindowTime is how long a client may leave a result unread, or our Read of its
	// source unanswered. 0 = job.WindowTime, the least that the protocol allows.
	WindowTime time.Duration
	Tree       TreeMode

	// Store is of contents that clients send once; Memory 0 = a sixteenth of the machine's.
	// There is none where NoStore says so, or no trees.
	Store   store.Options
	NoStore bool
	Learn   bool // this machine's own headers are read while there is nothing else to do

	// How compiles are confined, and what each may take: Processes at a time, File bytes of a
	// file, Output bytes of its words, JobMemory bytes of memory in all. 0 is a default of this package.
	Sandbox    SandboxMode
	JobMemory  int64
	Processes  int
	File       int64
	Output     int64
	Users      int           // that confined compiles run as: this number and the next ones that no other daemon has, where this process is root; 0 = none
	Cgroup     string        // directory of control groups that is delegated to us (tree.Spec.Cgroup); "" = none
	CanaryMean time.Duration // between two canaries; 0 = 10 minutes

	// Of one tenant: jobs that run and that wait, 0 = as many as there are places for;
	// and bytes of slots and of large memory, 0 = half of the latter.
	ClientRunning, ClientQueued int
	ClientBytes                 int64

	Memory    int64  // bytes that each program of a compile may take; 0 = no limit
	DiskFloor int64  // bytes free below WorkBase without which no work is taken
	Proc      string // where the system tells about itself; "" = /proc
	Settings
}

// Settings can change while the server runs.
type Settings struct {
	Allow      []netip.Prefix // beside loopback
	Nice       int
	JobTimeout time.Duration
	Dirs       []string // with compilers
}

// SandboxMode says how compiles are confined.
type SandboxMode uint8

// Modes.
const (
	SandboxOff    SandboxMode = iota // not: a compile can do what this process's user can
	SandboxAuto                      // by all that the system offers
	SandboxStrict                    // by nothing less than sandbox.Confined: else New fails, and jobs are refused
)

func (m SandboxMode) String() string { return [...]string{"off", "auto", "strict"}[m] }

// TreeMode says whether jobs of the sources form are taken.
type TreeMode uint8

// Modes.
const (
	TreeAuto    TreeMode = iota // where the system lets us make trees
	TreeOff                     // nowhere
	TreeRequire                 // New fails where it cannot
)

// Bounds of a compile where Options has none.
const (
	defaultProcesses = 64
	defaultFile      = 1 << 30 // bytes: an assembly is several times its object
	defaultOutput    = 1 << 20 // bytes
)

// largePart is how much of the large memory one tenant can have, in bytes: half of it, but
// what one job can take, which has its source packed and unpacked.
func (o *Options) largePart() int64 {
	if o.ClientBytes > 0 {
		return o.ClientBytes
	}
	biggest := max(o.Source, o.Result)
	return max(1, o.Large/2, min(o.Large, biggest+biggest/4))
}

// lending are the bounds of what is lent: of one tenant's credits as many as there are slots in
// limits.client-bytes.
func (o *Options) lending() lend.Options {
	credits := int64(lend.Unlimited)
	if o.ClientBytes > 0 {
		credits = min(o.ClientBytes/o.Slot, lend.Unlimited)
	}
	return lend.Options{Cores: o.Jobs, Conns: o.Clients, Running: o.ClientRunning, Queued: o.ClientQueued, Credits: int(credits)}
}
