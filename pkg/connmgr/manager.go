// Package connmgr is the connection manager of a build host: it keeps queue pairs
// to the compile hosts and a pool of shared-memory slots, and serves the
// wrappers of all build commands over a Unix socket.
//
// What can be understood alone has a package of its own:
//
//	ipc ipc/ipcserver socket     what wrappers say, one wrapper's session, and where they connect
//	lists compilers known        which hosts a job may go to; what its compiler is; what it reads
//	farm link holdings           which host it goes to; one connection to one host; what a host has
//	slots attempt trust          the memory of a job; its way to one host and back; what to believe
//	machine                      this build host
//	underway report metrics      what is done now, and what the manager tells of itself
//
// Here is what ties these together, from the ground up; no file calls one that is named below it:
//
//	options live service         what can be set; whether the socket is served
//	told hungry past account     what builds have heard, what earlier compiles took, what has come of all
//	manager                      the parts of a Manager, and one wrapper, its client
//	status keep                  what the manager knows, and where that is written down
//	slot turn record tell        a client's memory, its turn on this machine, its account, what it hears
//	object task                  the job that attempts get
//	audit race                   a job twice for comparison; attempts one after the other and side by side
//	local reply known submit     the answers: compile there; a result; a job whose inputs are known, or not
//	lease                        what a command begins with
//	drained control replace      what else is asked
//	command reserve serve new    a client from its first frame to its end; the socket; the manager
//
// A wrapper is served by one goroutine (and one that reads its socket), an attempt by one of
// its own. Each part of a Manager that changes has a lock; none is held while another one's is
// taken, and none while the farm is called.
package connmgr

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/metrics"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/connmgr/underway"
	"github.com/rdistcc/rdistcc/pkg/inputs"
)

// Manager serves wrappers. Make it with New, run it with Serve, end it with Close. Each of its
// parts has a lock of its own where it needs one.
type Manager struct {
	// set once in New
	o       Options
	uid     uint32 // that it runs as
	started time.Time
	metrics *metrics.Metrics
	farm    *farm.Farm
	known   *known.Table
	base    attempt.Base
	ctx     context.Context // ends all that is under way
	cancel  context.CancelCauseFunc

	// each with a lock of its own, or safe for concurrent use without
	service   service             // the socket
	places    *semaphore.Weighted // for wrappers
	underway  *underway.Table
	clients   sync.WaitGroup // goroutines of wrappers
	lists     *lists.Lists
	memory    *slots.Memory
	turns     turns
	compilers *compilers.Table
	past      *past
	account   account
	told      told
	ids       atomic.Uint64        // the last job's
	auditing  atomic.Int32         // audits under way
	now       atomic.Pointer[Live] // see live and Apply
}

// turns are for what runs on this machine.
type turns struct {
	cpp    machine.Gate // preprocessors
	local  machine.Gate // compiles, links and the like
	builds machine.Builds
}

// errShutdown ends what is under way when the manager stops.
var errShutdown = errors.New("connection manager stops")

// client is one wrapper's connection: one command. Its goroutine owns all of it.
type client struct {
	ipcserver.Session
	m     *Manager
	uid   uint32
	pid   int32
	place underway.Command // where it stands, for people who ask

	// the job
	id       uint64 // 0: it is a question, or nothing yet
	lease    *ipc.Lease
	asked    time.Time // when that came
	list     *lists.List
	compiler compilers.Compiler
	query    *inputs.Query // that was answered by a doubt, or nil

	// its memory, and what it counts as
	source   *slots.Hold
	sink     *slots.Hold
	free     bool // the wrapper has said that nobody else holds the source
	prepares bool // counted as one that wants a place soon

	// on this machine
	turn  *machine.Gate // held for the wrapper, or nil
	share bool          // it runs here as the scheduler placed it here
	began time.Time     // when it was told to run here

	// what came of it
	record   report.JobRecord
	untried  bool // why it runs here holds without any host having been asked
	remote   bool // a host gave a result
	compiled bool // a host compiled it, whether or not that stood
}

// live are the changeable options in force.
func (m *Manager) live() *Live { return m.now.Load() }

// errProtocol ends a connection whose wrapper says what does not fit.
var errProtocol = errors.New("wrapper broke the local protocol")

// Stop makes Serve end: what runs goes on, nothing new is taken.
func (m *Manager) Stop() { m.service.stop() }
