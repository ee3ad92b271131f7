package connmgr

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/plain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// onLease answers with a slot, or with the reason why the wrapper has to compile locally.
func (c *client) onLease(f *ipc.Lease) error {
	if c.id != 0 {
		return errProtocol
	}
	c.begin(f.Source, f.Output, f.Compiler)
	c.lease, c.asked, c.record.Cwd, c.record.Link = f, time.Now(), f.Cwd, f.Link
	c.belongsTo(c.build())
	alone, no := c.prepare()
	if no != nil {
		c.untried = true
		return c.goLocal(no)
	}
	if c.mayFind() {
		c.m.results.Comes()
	}
	if w := c.compiler.NoFlag(c.lease.Unlisted); w != "" {
		c.untried = true
		return c.goLocal(&ipc.GoLocal{Reason: reason.UnknownOption + w})
	}
	native, ok := c.compiler.Native(c.lease.Machine)
	if !ok && alone == nil {
		return c.goLocal(&ipc.GoLocal{Reason: "not-reproducible:native"})
	}
	var k *known.Job
	why := ""
	if ok && c.lease.Command != nil && (c.mayFind() || alone != nil && c.mayKeepHere()) {
		if k, why = c.know(native); k != nil && c.mayFind() {
			if done, err := c.onCached(k); done {
				return err
			}
		}
	}
	if alone != nil {
		c.untried = true
		c.record.Doubt = why
		return c.goLocal(alone)
	}
	if no := c.hopeless(); no != nil {
		c.untried = true
		return c.goLocal(no)
	}
	tree, err := c.m.farm.Trees(c.Context(), c.list.Sched, c.compiler.ID, c.Watch)
	if err != nil {
		return nil // the wrapper is gone
	}
	if k != nil { // no sooner: Trees is what waits for a first connection
		if done, err := c.onConnected(k); done {
			return err
		}
	}
	switch {
	case !tree:
		why = ""
	case k == nil && why == "":
		k, why = c.know(native)
	}
	if tree && k != nil {
		return c.onKnown(k, native)
	}
	if why != "" {
		c.record.Doubt = why
		c.m.metrics.Doubted(why)
	}
	if why == known.Sought {
		return c.goLocal(c.staysHere())
	}
	if why == known.Pipe {
		return c.goLocal(&ipc.GoLocal{Reason: reason.NotReproducible + "file", Detail: "a source or header is a pipe, which only the compiler may read"})
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
	c.place.Enter(report.PhaseLists)
	err = c.Send(&ipc.Leased{Job: c.id, SourceMax: uint64(c.m.o.Source),
		Family: c.compiler.Family, Major: uint32(c.compiler.Major), Direct: c.direct(tree),
		Tree: tree, Fast: c.m.live().Fast, Include: c.include(false), Native: native.Words, NativeOrder: native.Order, Inputs: why}, w, r)
	if err == nil {
		c.include(true) // for the next job, while the wrapper is busy
	}
	return err
}

// onWhole reads a command for its wrapper and answers the Lease that comes of it, unless that is the wrapper's to do.
func (c *client) onWhole(w *ipc.Whole) error {
	if c.id != 0 {
		return errProtocol
	}
	if !c.foreign() {
		c.plain = plain.Read(w, int(c.pid))
	}
	if c.plain == nil {
		return c.SendFrame(ipc.AppendBare(nil, ipc.KindAsk))
	}
	return c.onLease(c.plain.Lease)
}

// prepare finds the job's hosts and toolchain, and starts the connections that it will need, while the
// preprocessor runs. no says why the job runs here whatever the cache may have, and alone why it does if the cache has nothing:
// there are no hosts.
func (c *client) prepare() (alone, no *ipc.GoLocal) {
	c.list = c.m.lists.Of(c.lease.Hosts)
	if c.list.Err != nil {
		return nil, &ipc.GoLocal{Reason: reason.HostList, Trouble: true, Code: reason.ExitHostList, Detail: c.list.Err.Error()}
	}
	if c.lease.Mode == ipc.ModeLocal {
		return nil, &ipc.GoLocal{Reason: reason.Mode}
	}
	if c.list.Empty() {
		alone = &ipc.GoLocal{Reason: reason.NoHosts, Code: reason.ExitNoHosts, Detail: c.noHostsLine()}
		if !c.mayFind() && !c.mayKeepHere() || c.identify() != nil {
			return nil, alone
		}
		return alone, nil
	}
	c.wantHosts()
	if no := c.identify(); no != nil {
		return nil, no
	}
	c.m.farm.Use(c.compiler.ID, c.compiler.Name())
	c.m.outfit.Use(&c.compiler.Toolchain, c.m.identifies(c.lease.Compiler, c.env()))
	return nil, nil
}

// wantHosts has the hosts of the job's list connected.
func (c *client) wantHosts() {
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
}

// env returns what the toolchain of the job depends on besides its compiler.
func (c *client) env() toolchain.Env {
	return toolchain.Env{Path: c.lease.Path, Cwd: c.lease.Cwd, Libraries: c.lease.Libraries, Plugins: c.lease.Plugins}
}

// identify finds the job's toolchain. It returns why the job runs here, or nil.
func (c *client) identify() *ipc.GoLocal {
	err := c.mayAsk()
	if err != nil {
		return &ipc.GoLocal{Reason: reason.Toolchain, Code: reason.ExitNoCompiler, Detail: err.Error()}
	}
	name, env := c.lease.Compiler, c.env()
	if !c.mayLoad(env.Plugins) {
		return &ipc.GoLocal{Reason: reason.NotReproducible + "plugin"}
	}
	found, err := c.m.o.Identify(c.Context(), name, env)
	if err != nil && toolchain.IsScript(name) { // it may need variables, or a shell to start it
		return &ipc.GoLocal{Reason: reason.NotReproducible + "compiler", Detail: err.Error()}
	}
	if err != nil {
		return &ipc.GoLocal{Reason: reason.Toolchain, Code: reason.ExitNoCompiler, Detail: err.Error()}
	}
	if found.Script != "" {
		return &ipc.GoLocal{Reason: reason.NotReproducible + "compiler", Detail: found.Script + " is a script"}
	}
	if dir := c.lease.PluginDir; dir != "" && dir != found.PluginDir {
		return &ipc.GoLocal{Reason: reason.NotReproducible + "plugin"} // on a host it would look elsewhere
	}
	c.compiler = c.m.compilers.Of(found, c.lease.Compiler)
	return nil
}

// mayLoad reports whether hosts may load plugins for the job: the settings name them, and no other user could make the manager send
// a file that he cannot read.
func (c *client) mayLoad(files []string) bool {
	for _, f := range files {
		name, library := strings.CutSuffix(filepath.Base(f), ".so")
		if !library || !filepath.IsAbs(f) || filepath.Clean(f) != f || !slices.Contains(c.m.live().Plugins, name) || c.foreign() && !trust.Installed(f, c.m.uid) {
			return false
		}
	}
	return true
}

// mayAsk returns nil if the manager may run the job's compiler to ask it about itself, otherwise why not.
func (c *client) mayAsk() error {
	if !c.foreign() {
		return nil
	}
	return trust.MayRun(c.lease, c.m.uid)
}

// hopeless returns why no host will take the job, or nil, so that the preprocessor does not run in vain. If
// none of the hosts that it could go to is connected, it waits for one as long as the scheduler does.
func (c *client) hopeless() *ipc.GoLocal {
	r := farm.NewRequest(c.id, c.request(0, c.lease.NeedTree))
	g, err := c.m.farm.Early(c.Context(), r, c.Watch)
	if err != nil {
		return attempt.Interrupted
	}
	if g.Decision.Verdict != scheduler.Local {
		return nil
	}
	c.share = g.Decision.Share
	c.consider(r)
	return c.localDecision(&g.Decision)
}
