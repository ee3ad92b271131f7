package connmgr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
	"github.com/rdistcc/rdistcc/pkg/inputs"
	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/toolchain"
)

// client is one wrapper's connection: one command. Its goroutine owns all of it,
// and reads frames itself; only while it waits for something else a second one
// does (watch), to end ctx when the wrapper is gone.
type client struct {
	m      *Manager
	conn   *ipcserver.Conn
	ctx    context.Context
	cancel context.CancelFunc
	uid    uint32
	pid    int32

	watched bool         // a frame, or nil for the end, is going to be in frames
	frames  chan message // capacity 1

	counts bool  // a compile or a local command, not a question; guarded by wrappers.mu
	stage  stage // guarded by wrappers.mu

	id       uint64 // the job's; set before counts is
	lease    *ipc.Lease
	asked    time.Time // when that came
	list     *lists.List
	compiler compilers.Compiler
	query    *inputs.Query // that was answered by a doubt, or nil
	source   *slots.Hold
	sink     *slots.Hold
	prepares bool          // counted as one that wants a place soon
	free     bool          // the wrapper has said that nobody else holds the source
	turn     *machine.Gate // held for the wrapper, or nil
	share    bool          // it runs here as the scheduler placed it here
	began    time.Time     // when it was told to run here
	record   report.JobRecord
	untried  bool // why it runs here holds without any host having been asked
	remote   bool // a host gave a result
	compiled bool // a host compiled it, whether or not that stood
}

// message is a parsed frame of a wrapper's.
type message interface{ Parse([]byte) error }

// errProtocol ends a connection whose wrapper says what does not fit.
var errProtocol = errors.New("wrapper broke the local protocol")

func newClient(m *Manager, conn *ipcserver.Conn) *client {
	c := &client{m: m, conn: conn, frames: make(chan message, 1)}
	c.ctx, c.cancel = context.WithCancel(m.ctx)
	return c
}

// run serves the command to its end and gives back all that it held.
func (c *client) run() {
	err := c.serve()
	if err != nil && c.ctx.Err() == nil {
		c.m.o.Log.Warn("wrapper", "err", err)
	}
	c.cancel()
	_ = c.conn.Close() // nothing is left to be said
	if c.watched {
		<-c.frames
	}
	c.endTurn()
	c.endLease()
	c.endShare()
	c.logJob()
}

// next waits for a frame; nil says that the wrapper is gone.
func (c *client) next() message {
	if c.watched {
		c.watched = false
		return <-c.frames
	}
	return c.read()
}

// watch reads the next frame in the background; should the wrapper go away
// instead, ctx ends. It is for everything that can take long.
func (c *client) watch() {
	if c.watched {
		return
	}
	c.watched = true
	go func() { // run waits for it
		f := c.read()
		if f == nil {
			c.cancel()
		}
		c.frames <- f
	}()
}

// read waits for a frame and parses it; nil says that there is none to come, or
// none that makes sense.
func (c *client) read() message {
	kind, fields, err := c.conn.Recv()
	if err != nil {
		c.m.o.Log.Debug("wrapper gone", "err", err)
		return nil
	}
	var msg message
	switch kind {
	case ipc.KindLease:
		msg = new(ipc.Lease)
	case ipc.KindSubmit:
		msg = new(ipc.Submit)
	case ipc.KindLocal:
		msg = new(ipc.Local)
	case ipc.KindFinish:
		msg = new(ipc.Finish)
	case ipc.KindControl:
		msg = new(ipc.Control)
	case ipc.KindReplace:
		msg = new(ipc.Replace)
	case ipc.KindGo:
		msg = goAhead{}
	default:
		c.m.o.Log.Warn("wrapper sent a frame of a kind that wrappers do not send", "kind", kind)
		return nil
	}
	switch err := msg.Parse(fields); {
	case errors.Is(err, ipc.ErrVersion):
		return otherVersion{}
	case err != nil:
		c.m.o.Log.Warn("wrapper sent a frame that cannot be read", "kind", kind, "err", err)
		return nil
	}
	return msg
}

// otherVersion stands for a frame of another version of the protocol.
type otherVersion struct{}

func (otherVersion) Parse([]byte) error { return nil }

// goAhead is a successor's word that it serves.
type goAhead struct{}

func (goAhead) Parse([]byte) error { return nil }

// serve answers frame by frame until Finish or the wrapper's end.
func (c *client) serve() error {
	peer, err := c.conn.Peer()
	if err != nil {
		return fmt.Errorf("who is the wrapper: %w", err)
	}
	c.uid, c.pid = peer.Uid, peer.Pid
	allowed := c.m.o.AnyUser || peer.Uid == 0 || peer.Uid == c.m.uid
	for {
		f := c.next()
		if f == nil {
			return nil
		}
		if !allowed {
			c.m.o.Log.Warn("wrapper of another user refused", "uid", peer.Uid)
			return c.send(&ipc.GoLocal{Reason: reason.Denied, Trouble: true, Code: reason.ExitDenied,
				Detail: fmt.Sprintf("the connection manager of user %d does not serve user %d", c.m.uid, peer.Uid)})
		}
		switch f := f.(type) {
		case *ipc.Lease:
			err = c.onLease(f)
		case *ipc.Submit:
			err = c.onSubmit(f)
		case *ipc.Local:
			err = c.onLocal(f)
		case *ipc.Finish:
			c.onFinish(f)
			return nil
		case *ipc.Control:
			return c.onControl(f)
		case *ipc.Replace:
			return c.onReplace(f)
		case goAhead:
			return errProtocol
		case otherVersion:
			return c.send(&ipc.GoLocal{Reason: reason.Manager, Trouble: true, Code: reason.ExitProtocol,
				Detail: "the connection manager is of another version than this rdistcc; rdistcc-cm --replace puts the right one in its place"})
		}
		if err != nil {
			return err
		}
	}
}

func (c *client) send(m interface{ Append([]byte) []byte }, fds ...int) error {
	return c.conn.Send(m.Append(nil), fds...)
}

// onLease answers with a slot, or with the reason to compile there.
func (c *client) onLease(f *ipc.Lease) error {
	if c.id != 0 {
		return errProtocol
	}
	c.begin(f.Source, f.Output, f.Compiler)
	c.lease, c.asked, c.record.Cwd = f, time.Now(), f.Cwd
	c.record.Build = c.build()
	if no := c.prepare(); no != nil {
		c.untried = true
		return c.goLocal(no)
	}
	native, ok := c.compiler.Native(c.lease.Machine)
	if !ok {
		return c.goLocal(&ipc.GoLocal{Reason: "not-reproducible:native"})
	}
	tree, err := c.m.farm.Trees(c.ctx, c.list.Sched, c.compiler.ID, c.watch)
	if err != nil {
		return nil // the wrapper is gone
	}
	why := ""
	if tree {
		var k *known.Job
		if k, why = c.know(native); k != nil {
			return c.onKnown(k, native)
		}
	}
	if why != "" {
		c.record.Doubt = why
		c.m.metrics.Doubted(why)
	}
	if err := c.takeTurn(&c.m.turns.cpp, c.list.Preprocessors(c.m.live().Preprocessors)); err != nil {
		return nil // the wrapper is gone
	}
	if no := c.takeSlot(); no != nil {
		return c.goLocal(no)
	}
	w, err := c.source.OpenWriter()
	if err != nil {
		return c.goLocal(attempt.NoSlot(err))
	}
	defer closeFD(w)
	r, err := c.sink.OpenReader()
	if err != nil {
		return c.goLocal(attempt.NoSlot(err))
	}
	defer closeFD(r)
	c.enter(report.PhaseLists)
	err = c.send(&ipc.Leased{Job: c.id, SourceMax: uint64(c.m.o.Source),
		Family: c.compiler.Family, Major: uint32(c.compiler.Major), Direct: c.direct(tree),
		Tree: tree, Fast: c.m.live().Fast, Include: c.include(false), Native: native.Words, NativeOrder: native.Order, Inputs: why}, w, r)
	if err == nil {
		c.include(true) // for the next one, while the wrapper is busy
	}
	return err
}

// prepare finds the job's hosts and toolchain, and starts what connections it
// will need while the preprocessor runs.
func (c *client) prepare() *ipc.GoLocal {
	c.list = c.m.lists.Of(c.lease.Hosts)
	if c.list.Err != nil {
		return &ipc.GoLocal{Reason: reason.HostList, Trouble: true, Code: reason.ExitHostList, Detail: c.list.Err.Error()}
	}
	if c.lease.Mode == ipc.ModeLocal {
		return &ipc.GoLocal{Reason: reason.Mode}
	}
	if c.list.Empty() {
		return &ipc.GoLocal{Reason: reason.NoHosts, Code: reason.ExitNoHosts, Detail: c.noHostsLine()}
	}
	var eager *time.Duration
	switch ms := c.lease.BackoffMS; ms {
	case 0:
	case ipc.NoBackoff:
		eager = new(time.Duration)
	default:
		d := time.Duration(ms) * time.Millisecond
		eager = &d
	}
	c.m.farm.Want(c.list.Sched, eager)
	err := c.mayAsk()
	if err != nil {
		return &ipc.GoLocal{Reason: reason.Toolchain, Code: reason.ExitNoCompiler, Detail: err.Error()}
	}
	found, err := c.m.o.Identify(c.ctx, c.lease.Compiler, toolchain.Env{Path: c.lease.Path, Cwd: c.lease.Cwd, Libraries: c.lease.Libraries})
	if err != nil {
		return &ipc.GoLocal{Reason: reason.Toolchain, Code: reason.ExitNoCompiler, Detail: err.Error()}
	}
	c.compiler = c.m.compilers.Of(found, c.lease.Compiler)
	c.m.farm.Use(c.compiler.ID, c.compiler.Name())
	no := c.hopeless()
	if no != nil {
		c.explain(no)
	}
	return no
}

// mayAsk reports, as nil, that the manager may run what the job's compiler is, to learn about it.
func (c *client) mayAsk() error {
	if !c.foreign() {
		return nil
	}
	return trust.MayRun(c.lease, c.m.uid)
}

// takeSlot leases the pair of buffers.
func (c *client) takeSlot() *ipc.GoLocal {
	source, err := c.m.memory.Source(c.ctx, c.uid, c.watch)
	if err != nil {
		return attempt.NoSlot(err)
	}
	sink, err := c.m.memory.Sink(c.ctx, c.uid, c.watch)
	if err != nil {
		source.Drop() // nobody has seen it
		return attempt.NoSlot(err)
	}
	c.source, c.sink = source, sink
	c.m.farm.Prepare(c.list.Sched, 1)
	c.prepares = true
	return nil
}

// prepared ends that the job counts as one that wants a place soon.
func (c *client) prepared() {
	if c.prepares {
		c.prepares = false
		c.m.farm.Prepare(c.list.Sched, -1)
	}
}

// onSubmit runs the job on a host and answers with its result, or with the
// reason why the wrapper has to do it.
func (c *client) onSubmit(f *ipc.Submit) error {
	if c.source == nil || c.free {
		return errProtocol
	}
	c.free = true // the preprocessor has ended
	c.record.PreprocessUS = f.PreprocessUS
	c.enter(report.PhaseWaits)
	c.record.Inputs = howListed(f)
	c.m.metrics.Inputs(c.record.Inputs)
	var r *ipc.Result
	no := c.takeLarge(slotEnd(f))
	c.endTurn()
	c.prepared()
	c.watch()
	if no == nil {
		var t *attempt.Task
		if t, no = c.task(f); no == nil {
			r, no = c.compileListed(t, f)
		}
	}
	switch {
	case c.ctx.Err() != nil:
		return nil
	case no != nil:
		return c.goLocal(no)
	}
	c.record.Host = r.Host
	c.enter(report.PhaseReturns)
	return c.sendResult(r)
}

// sendResult answers with a result, and with its sink if that is not the leased one.
func (c *client) sendResult(r *ipc.Result) error {
	if !r.Moved {
		return c.send(r)
	}
	fd, err := c.sink.OpenReader()
	if err != nil {
		return c.goLocal(attempt.NoSlot(err))
	}
	defer closeFD(fd)
	return c.send(r, fd)
}

// goLocal answers that the wrapper has to do it, once it is its turn.
func (c *client) goLocal(no *ipc.GoLocal) error {
	c.record.Reason, c.record.Detail, c.record.Trouble = no.Reason, no.Detail, no.Trouble
	no.NoFallback = c.m.live().NoFallback
	if c.untried {
		c.tell(no)
	}
	c.enterHere(report.PhaseWaits)
	c.endTurn()
	if c.free {
		c.endLease() // the compile there needs the memory
	}
	if c.takeTurn(&c.m.turns.local, c.list.LocalJobs(c.m.live().LocalJobs)) != nil {
		return nil // the wrapper is gone
	}
	c.began = time.Now()
	c.enterHere(report.PhaseRuns)
	return c.send(no)
}

// onLocal gives a command that runs there its turn. A lease ends.
func (c *client) onLocal(f *ipc.Local) error {
	switch {
	case c.id == 0:
		c.begin(f.Source, f.Output, f.Compiler)
		c.list = c.m.lists.Of("")
	case c.turn != nil && c.turn != &c.m.turns.cpp:
		return errProtocol // it has its turn
	}
	c.record.Reason = f.Reason
	c.enterHere(report.PhaseWaits)
	c.endTurn()
	c.free = c.free || f.Closed
	c.endLease()
	switch f.Gate {
	case ipc.GateNone:
		c.enterHere(report.PhaseRuns)
		return nil
	case ipc.GateCPP:
		if c.takeTurn(&c.m.turns.cpp, c.list.Preprocessors(c.m.live().Preprocessors)) != nil {
			return nil
		}
	case ipc.GateLocal:
		if c.takeTurn(&c.m.turns.local, c.list.LocalJobs(c.m.live().LocalJobs)) != nil {
			return nil
		}
	}
	c.enterHere(report.PhaseRuns)
	return c.conn.Send(ipc.AppendBare(nil, ipc.KindGo))
}

// onFinish takes the wrapper's account.
func (c *client) onFinish(f *ipc.Finish) {
	c.free = c.free || f.Closed
	c.record.Finished = true
	c.record.Exit = f.Exit
	c.record.TotalUS = f.TotalUS
	if f.PreprocessUS != 0 {
		c.record.PreprocessUS = f.PreprocessUS
	}
	c.record.Local = f.Where == ipc.WhereLocal
	if c.record.Local && f.Reason != "" {
		c.record.Reason = f.Reason
	}
}

// takeTurn waits at a gate; an error says that the wrapper is gone.
func (c *client) takeTurn(g *machine.Gate, limit int) error {
	if !g.Try(limit) {
		c.watch()
		if err := g.Acquire(c.ctx, limit); err != nil {
			return err
		}
	}
	c.turn = g
	return nil
}

func (c *client) endTurn() {
	if c.turn != nil {
		c.turn.Release()
		c.turn = nil
	}
}

// endLease gives the slot back. The wrapper only ever reads the sink. The source
// is used again only when nobody can write it any more: a preprocessor that
// outlived its wrapper would scribble over the next job's text.
func (c *client) endLease() {
	if c.sink == nil {
		return
	}
	c.prepared()
	c.sink.Drop()
	if c.source != nil { // else the manager has made the job by itself
		if !c.free {
			c.source.Spoil()
		}
		c.source.Drop()
	}
	c.source, c.sink = nil, nil
}

func closeFD(fd int) { _ = unix.Close(fd) } // EINTR and EIO mean nothing for a memfd
