package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/received"
)

// arrived are the toolchains that clients have sent. A program among them is code from outside, and gets no more
// rights than the source of a compile: it runs only where compiles are confined in trees of their own.
type arrived struct {
	store   *received.Store   // nil: none are accepted; set once by New
	reason  string            // why there is no store; set once by New
	service *received.Service // takes them

	mu    sync.Mutex
	trees map[unit.ToolchainID]*shown // made again when they are gone; guarded by mu
}

// shown is a display of a received toolchain.
type shown struct {
	*display
	of received.Toolchain // with another Parcel once it has gone and come back: earlier trees show what was removed
}

// mostTrees bounds arrived.trees.
const mostTrees = 256

// mostDirs is how many daemons can share a setting for the directory of received toolchains: the second one appends -2 to it.
const mostDirs = 16

// openReceived opens the store of received toolchains, if any may come.
func (s *Server) openReceived() {
	a := &s.arrived
	a.trees = make(map[unit.ToolchainID]*shown)
	switch {
	case s.o.Accept == AcceptNone || s.o.Received.Quota == 0 || s.o.Received.Dir == "":
		a.reason = "this daemon accepts no toolchains (toolchains.accept)"
		return
	case s.o.Cluster != nil: // nothing of it runs here
	case s.places.Answered:
		a.reason = "this daemon accepts no toolchains, because it makes private trees without namespaces"
		return
	case !s.places.Trees || !s.places.Confined:
		a.reason = "this daemon accepts no toolchains, because it does not confine compiles in trees of their own"
		return
	}
	o := s.o.Received
	o.Log = s.o.Log
	st, err := received.Open(o)
	for i := 2; errors.Is(err, received.ErrInUse) && i <= mostDirs; i++ { // several daemons of one user on one machine
		o.Dir = s.o.Received.Dir + "-" + strconv.Itoa(i)
		st, err = received.Open(o)
	}
	if err != nil {
		s.o.Log.Warn("no toolchains are accepted", "err", err)
		a.reason = "this daemon accepts no toolchains: its log says why"
		return
	}
	a.store = st
	a.service = received.NewService(st, s.o.Log, s.toolchainArrived)
}

func (s *Server) closeReceived() {
	if s.arrived.store == nil {
		return
	}
	s.arrived.service.Close()
	if err := s.arrived.store.Close(); err != nil {
		s.o.Log.Error("close the store of toolchains", "err", err)
	}
}

// serve takes toolchains on a stream.
func (a *arrived) serve(c net.Conn, tenant string) { a.service.Take(c, tenant) }

// refusesToolchains returns why a peer may not send toolchains, or "".
func (s *Server) refusesToolchains(info *iwarp.ConnInfo) string {
	switch {
	case s.arrived.store == nil:
		return s.arrived.reason
	case s.o.Accept == AcceptNamed && info.Peer == "" && !isLoopback(info.Remote):
		return "this daemon accepts toolchains only from clients with a certificate (toolchains.accept)"
	}
	return ""
}

// toolchainArrived tells the connections of a tenant that it can use another toolchain.
func (s *Server) toolchainArrived(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.lent != nil && c.lent.Tenant().Name() == tenant {
			c.listToolchainsLocked()
		}
	}
}

// received returns the toolchains that a client can use because its tenant has sent them.
func (s *Server) received(c *conn) []received.Toolchain {
	if s.arrived.store == nil {
		return nil
	}
	return s.arrived.store.List(c.lent.Tenant().Name())
}

// compiler returns the compiler with that ID, or a refusal.
func (c *conn) compiler(id unit.ToolchainID) (*toolchain.Toolchain, error) {
	tc, err := c.s.compilers.Find(id)
	if err == nil {
		return tc, nil
	}
	list := c.s.received(c)
	if i := slices.IndexFunc(list, func(t received.Toolchain) bool { return t.ID == id }); i >= 0 {
		return &c.s.arrived.display(&list[i], c.s.shown.Load().spec).list[0], nil
	}
	return nil, err
}

// display returns what trees show for a received toolchain. They are like others in everything else.
func (a *arrived) display(t *received.Toolchain, like *privatetree.Spec) *display {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.trees[t.ID]
	if d == nil || d.of != *t || d.spec.Size != like.Size || d.spec.Keep != like.Keep {
		tc := t.Toolchain
		tc.Root = t.Root
		spec := &privatetree.Spec{Root: t.Root, Files: t.Files, Dirs: t.Dirs, Size: like.Size, Keep: like.Keep}
		d = &shown{display: &display{spec: spec, list: []toolchain.Toolchain{tc}}, of: *t}
		if len(a.trees) >= mostTrees {
			clear(a.trees)
		}
		a.trees[t.ID] = d
	}
	return d.display
}

// useReceived returns what trees show for a received toolchain, which stays until the job has ended and calls done. A
// *job.Refusal says that it is no longer here; other errors are trouble of this host.
func (s *Server) useReceived(c *conn, tc *toolchain.Toolchain) (d *display, done func(), err error) {
	t, done, err := s.arrived.store.Use(c.lent.Tenant().Name(), tc.ID)
	if errors.Is(err, received.ErrUnknown) {
		s.arrived.mu.Lock()
		delete(s.arrived.trees, tc.ID)
		s.arrived.mu.Unlock()
		s.toolchainArrived(c.lent.Tenant().Name())
		return nil, nil, job.Refuse(job.CauseToolchain, "the toolchain that was sent is no longer here")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("lay out a received toolchain: %w", err)
	}
	return s.arrived.display(&t, s.shown.Load().spec), done, nil
}

// prepareReceived makes the place ready for a job with a received toolchain. No canary runs with it: what an attacker's
// compiler does says nothing about the sandbox. Canaries with the host's own compilers test the same measures.
func (r *runner) prepareReceived(ctx context.Context, shown *display) error {
	if err := r.place.Open(ctx, shown.spec); err != nil {
		return err
	}
	if level := r.place.Measures().Level(); level < sandbox.Confined {
		return job.Refuse(job.CauseSandbox, "compiles are %s here, and a compiler from outside has to be confined", level)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.lostLocked()
}
