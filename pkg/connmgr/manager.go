// Package connmgr is the connection manager of a build host: it keeps queue pairs to the compile hosts and a
// pool of shared-memory slots, and serves the wrappers of all build commands over a Unix socket.
//
// Parts that can be understood alone have packages of their own:
//
//	ipc ipc/ipcserver socket     the local protocol, one wrapper's session, and the socket
//	quick typed plain            the beginning of a wrapper; how a command comes to a lease, in either program
//	lists compilers known        which hosts a job may go to; what its compiler is; what it reads
//	farm link holdings           which host a job goes to; one connection to a host; which contents a host has
//	outfit                       compilers of this machine for hosts that lack them
//	results shelved              results that are kept, and equal jobs under way; those in the memory of hosts
//	slots attempt trust          the memory of a job; one attempt at it on one host; checks of results
//	machine                      this build host
//	underway report metrics      the commands under way, and what the manager reports about itself
//	paired                       how fast hosts are beside this machine
//
// The files of this package tie these together, from the ground up. No file calls one that is named below it:
//
//	options live service         the settings; whether the socket is served
//	told hungry past held account  what builds were told, what earlier compiles took, what hosts hold, the record of all commands
//	costs                        what compiles read and took, for the journal
//	nearest                      why the cache has no result of a command
//	manager                      the parts of a Manager, and a client: its side of one wrapper
//	status keep                  what the manager knows, and how it is kept on disk
//	slot turn record tell        a client's memory, its turn on this machine, its record, what its wrapper is told
//	object task                  the job that attempts get
//	ahead                        precompiled headers that hosts make while they are made here
//	audit audit_hit race         a job compiled twice for comparison; attempts in sequence and in parallel
//	clock check                  results that depend on when they were made; results that others have kept
//	second cached                results of compiles that have read the same; what the cache has of a job, and what it keeps
//	ranhere                      what a compile on this machine came to
//	local reply known submit     the answers: compile locally; a result; a job whose inputs are known, or not
//	lease                        what a command begins with
//	drained control replace      other requests
//	command reserve serve new    a client from its first frame to its end; the socket; the manager
//
// Each wrapper is served by one goroutine (and one that reads its socket), and each attempt has one of its
// own. Each part of a Manager that changes has a lock. No lock is held while another is taken, or while the
// farm is called.
package connmgr

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/checkout"
	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/metrics"
	"github.com/rdistcc/rdistcc/pkg/connmgr/outfit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/paired"
	"github.com/rdistcc/rdistcc/pkg/connmgr/plain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/connmgr/underway"
)

// Manager serves wrappers. Make it with New, run it with Serve, end it with Close. Each of its parts that
// needs a lock has its own.
type Manager struct {
	// set once in New
	o       Options
	uid     uint32 // that it runs as
	started time.Time
	metrics *metrics.Metrics
	farm    *farm.Farm
	known   *known.Table
	base    attempt.Base
	results *results.Cache    // nil: there is none
	copies  *shelved.Copies   // nil: a result is kept by its host alone
	spread  *shelved.Copies   // has hosts keep values; nil: none do
	outfit  *outfit.Outfitter // nil: hosts are sent no toolchains
	ctx     context.Context   // ends all that is under way
	cancel  context.CancelCauseFunc

	// each safe for concurrent use
	service   service             // the socket
	places    *semaphore.Weighted // for wrappers
	values    *semaphore.Weighted // bytes of values that come and go
	underway  *underway.Table
	clients   sync.WaitGroup // goroutines of wrappers
	lists     *lists.Lists
	memory    *slots.Memory
	turns     turns
	compilers *compilers.Table
	past      *past
	held      *held
	costs     *costs
	paired    paired.Table
	account   account
	told      told
	nearest   nearest
	checkouts checkout.Roots
	ids       atomic.Uint64        // the last job's
	auditing  atomic.Int32         // audits under way
	strikes   strikes              // what audits found of hosts
	now       atomic.Pointer[Live] // see live and Apply
}

// turns bound how many commands run on this machine at a time.
type turns struct {
	cpp    machine.Turns // preprocessors
	local  machine.Turns // compiles, links and the like
	builds machine.Builds
}

// errShutdown ends what is under way when the manager stops.
var errShutdown = errors.New("connection manager stops")

// client is one wrapper's connection, which is one command. Its goroutine owns all of it.
type client struct {
	ipcserver.Session
	m     *Manager
	uid   uint32
	pid   int32
	place underway.Command // what it does now, for status

	// the job
	id       uint64 // 0: a control request, or nothing yet
	lease    *ipc.Lease
	asked    time.Time // when that came
	list     *lists.List
	compiler compilers.Compiler
	query    *inputs.Query  // that was answered by a doubt, or nil
	sought   string         // a name of which the job's inputs take no account, or ""
	later    bool           // its result was looked for before it was known what the hosts have
	refused  string         // a tier that has a result which is not trusted, or ""
	waits    int            // in vain, for compiles of other managers
	plain    *plain.Command // read for the wrapper; nil: the wrapper has sent the lease
	named    names          // of the job's result
	ofBuild  *results.Command
	reads    *reads // what it reads; nil: not known
	here     ranHere

	// its memory, and what it counts as
	source   *slots.Hold
	sink     *slots.Hold
	free     bool // the wrapper has said that no other process holds the source
	prepares bool // it counts as a job that will soon want a place

	// on this machine
	turn  *machine.Turns // held for the wrapper, or nil
	share bool           // it runs locally because the scheduler has placed it here
	began time.Time      // when it was told to run locally
	makes *known.Making  // the precompiled header that it makes here, or nil
	ahead *ahead         // its making on hosts meanwhile, or nil

	// the outcome
	record   report.JobRecord
	untried  bool // it runs locally for a reason that needed no host to be asked
	remote   bool // a host gave a result
	compiled bool // a host has compiled it, whether or not the result was accepted
}

// live returns the changeable options in force.
func (m *Manager) live() *Live { return m.now.Load() }

// errProtocol ends a connection whose wrapper sends a frame that is not allowed now.
var errProtocol = errors.New("wrapper broke the local protocol")

// Stop makes Serve end. Commands under way go on; no new ones are taken.
func (m *Manager) Stop() { m.service.stop() }
