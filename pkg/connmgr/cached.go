package connmgr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/move"
)

// mayFind reports whether the command's result may come from the cache, as far as that is known without its
// inputs.
func (c *client) mayFind() bool {
	return c.m.results != nil && c.lease.Command != nil && (c.lease.Cache == ipc.CacheOn || c.lease.Cache == ipc.CacheRead)
}

// mayKeep reports whether the command's result may be kept.
func (c *client) mayKeep() bool {
	return c.m.results != nil && (c.lease.Cache == ipc.CacheOn || c.lease.Cache == ipc.CacheRefresh)
}

// names are the names of a job's result in the cache.
type names struct {
	k     *known.Job // the job; nil: none yet
	ok    bool       // otherwise the result may depend on more than names are made of
	exact resultcache.Key
	moved resultcache.Key // where it may be shared with other directories; see base
	base  move.Base       // that moved does not depend on; empty: there is no moved
}

// names returns the names of a job's result. They are made once.
func (c *client) names(k *known.Job) *names {
	n := &c.named
	if n.k == k {
		return n
	}
	*n = names{k: k, ok: c.m.results != nil && !k.Set.Timed && !readsClock(k.Body.Args)}
	if !n.ok {
		return n
	}
	n.exact = resultcache.KeyOf(c.compiler.ID, k.Body, k.Set.Sum())
	if base, is := move.Of(cmp.Or(c.lease.Base, c.m.o.BaseDir)); is {
		if body, is := base.Command(k.Body); is {
			n.moved, n.base = resultcache.KeyOf(c.compiler.ID, body, k.Set.SumBelow(base.Hide)), base
		}
	}
	return n
}

// onCached answers with a result from the cache, if there is one. It reports whether it has answered.
func (c *client) onCached(k *known.Job) (done bool, err error) {
	return c.seek(k, func() (*resultcache.Entry, string) {
		c.record.Asked = true
		e, tier := c.find(k)
		if e == nil {
			c.record.Missed = c.m.missed(k)
		}
		return e, tier
	})
}

// onConnected looks once more for a result, on the hosts, if none of them was connected when it was looked for first.
// It reports whether it has answered.
func (c *client) onConnected(k *known.Job) (done bool, err error) {
	if !c.later {
		return false, nil
	}
	return c.seek(k, func() (*resultcache.Entry, string) {
		hosts, _ := c.shelves()
		hosts.Await(c.Context())
		return c.findIn(k, &results.Look{Farm: hosts, Only: resultcache.TierFarm})
	})
}

// seek answers with what find returns, whose outputs are in the sink that the client has meanwhile. It reports
// whether it has answered; otherwise the client has no memory, as before.
func (c *client) seek(k *known.Job, find func() (*resultcache.Entry, string)) (done bool, err error) {
	if !c.names(k).ok {
		return false, nil
	}
	if c.sink, err = c.m.memory.TrySink(c.uid); c.sink == nil {
		if err != nil {
			c.m.o.Log.Debug("no sink for a kept result", "err", err)
		}
		return false, nil // the job waits for one, as any other
	}
	if e, tier := find(); e != nil {
		fd, err := c.sink.OpenReader()
		if err == nil {
			defer closeFD(fd)
			c.free = true // the wrapper has no source to write to
			return true, c.sendKnown(k, c.cached(k, e, tier), fd)
		}
	}
	c.endLease()
	return false, nil
}

// shelves returns a look for a result on the hosts of the command's list, as shelved.New.
func (c *client) shelves() (l *shelved.Look, down bool) {
	l, down = shelved.New(c.m.farm, c.list.Sched, len(c.sink.Bytes()))
	l.Verify = c.m.o.Verify
	return l, down
}

// find returns a job's result from the cache, with its outputs in the client's sink, and its tier; nil: it has none.
func (c *client) find(k *known.Job) (*resultcache.Entry, string) {
	var hosts *shelved.Look
	hosts, c.later = c.shelves()
	return c.findIn(k, &results.Look{Farm: hosts})
}

// findIn does the same where a look says. It sets what is missing there.
func (c *client) findIn(k *known.Job, where *results.Look) (*resultcache.Entry, string) {
	n := c.names(k)
	if n.base != "" {
		look := *where
		look.Key, look.Room = n.moved, func(n int) ([]byte, error) { return make([]byte, n), nil }
		look.Check = func(e *resultcache.Entry) error {
			if !c.moveHere(k, n.base, e) {
				return resultcache.ErrMiss
			}
			return c.check(k, e)
		}
		if e, tier := c.m.results.Find(c.Context(), &look); e != nil && c.moveHere(k, n.base, e) {
			return e, tier
		}
	}
	look := *where
	look.Key, look.Room, look.Check, look.Second = n.exact, c.room, c.checker(k), c.second(k)
	return c.m.results.Find(c.Context(), &look)
}

// moveHere makes e, which may be from another directory, the result of k, and puts its outputs into the client's sink.
// It does nothing to one that is there already.
func (c *client) moveHere(k *known.Job, to move.Base, e *resultcache.Entry) bool {
	from, ok := move.Of(e.Base)
	if !ok {
		return false
	}
	for i := range e.Files {
		f := &e.Files[i]
		if int(f.Index) >= len(k.Body.Outputs) {
			return false
		}
		if from != to && k.Body.Outputs[f.Index].Kind == unit.OutputDependency {
			if f.Data, ok = from.Rules(f.Data, to); !ok {
				return false
			}
		}
	}
	mem, err := c.room(e.Len())
	if err != nil {
		return false
	}
	for _, part := range e.Parts() {
		n := copy(mem, *part)
		*part, mem = mem[:n:n], mem[n:]
	}
	e.Base = string(to)
	return true
}

// room returns memory for n bytes at the beginning of the client's sink.
func (c *client) room(n int) ([]byte, error) {
	mem := c.sink.Bytes()
	if n > len(mem) {
		return nil, fmt.Errorf("it has %d bytes, a sink %d", n, len(mem))
	}
	return mem[:n], nil
}

// cached returns an entry whose outputs are in the client's sink, one behind the other, as the wrapper gets it.
func (c *client) cached(k *known.Job, e *resultcache.Entry, tier string) *ipc.Result {
	r := &ipc.Result{Host: e.Host, Exit: e.Exit, Cached: tier}
	at := uint64(0)
	next := func(part []byte) (s ipc.Segment) {
		s = ipc.Segment{Off: at, Len: uint64(len(part))}
		at += s.Len
		return s
	}
	r.Stdout, r.Stderr = next(e.Stdout), next(e.Stderr)
	for i := range e.Files {
		r.Files = append(r.Files, ipc.File{Index: e.Files[i].Index, Segment: next(e.Files[i].Data)})
	}
	c.remote = true
	c.record.Cached, c.record.Host, c.record.Made, c.record.For = tier, e.Host, e.Made, e.Builder
	c.record.Second = c.bySecond(k, e)
	c.record.CPUUS, c.record.CompileUS = uint32(e.CPU.Microseconds()), uint32(e.Wall.Microseconds())
	if tier != resultcache.TierManager {
		c.listHit(k, e)
	}
	c.auditHit(k, e, tier)
	return r
}

// compileKnown makes a host compile a job whose inputs are known, unless an equal one is under way: then both
// get the same result. It keeps the result.
func (c *client) compileKnown(k *known.Job) (*ipc.Result, *ipc.GoLocal) {
	n := c.names(k)
	if !n.ok || !c.mayKeep() {
		return c.compile(c.knownTask(k), true)
	}
	for {
		flight, leads := c.m.results.Join(n.exact)
		if leads {
			return c.lead(k, flight, n)
		}
		key, entry := flight.Wait(c.Context())
		switch {
		case c.Context().Err() != nil:
			return nil, attempt.Interrupted
		case entry == nil:
			continue // its wrapper has gone, or the farm did not compile it: this one tries
		case c.lease.Cache == ipc.CacheRefresh:
			return c.compile(c.knownTask(k), true) // it asked for a compile of its own
		}
		e, err := resultcache.Decode(entry, key, c.room)
		if err != nil {
			return c.compile(c.knownTask(k), true)
		}
		c.m.metrics.Cached(resultcache.TierManager, results.Joined)
		return c.cached(k, e, resultcache.TierManager), nil
	}
}

// lead compiles the job that others may have joined, and keeps its result.
func (c *client) lead(k *known.Job, flight *results.Flight, n *names) (*ipc.Result, *ipc.GoLocal) {
	began := time.Now()
	t := c.knownTask(k)
	if c.m.o.shelves() {
		t.Result, t.Join = n.exact, c.mayFind()
		if n.base != "" && len(n.base) <= job.MaxBase {
			t.Below, t.Moved = string(n.base), n.moved
		}
	}
	e := c.onOthers(k, t)
	var r *ipc.Result
	var no *ipc.GoLocal
	for e == nil {
		if r, no = c.compile(t, true); no != elsewhere {
			break
		}
		e = c.onOthers(k, t)
	}
	if e != nil {
		sink := c.sink.Share()
		c.m.clients.Go(func() {
			entry, err := e.Append(nil)
			sink.Drop()
			if err != nil {
				entry = nil // cannot be
			}
			flight.End(e.Key, entry)
		})
		return c.cached(k, e, resultcache.TierFarm), nil
	}
	if no != nil || r.Exit != 0 || r.Signal != 0 {
		flight.End(n.exact, nil)
		return r, no
	}
	list := c.list.Sched
	twice := c.stepsTwice(k)
	if r.Cached != "" { // the compile began before
		began = began.Add(-time.Duration(r.CompileUS) * time.Microsecond)
	}
	made := madeFrom{k: k, compiler: c.compiler.ID, names: *n, began: began, ended: time.Now(), sink: c.sink.Share()}
	e = &resultcache.Entry{Key: n.exact, Exit: r.Exit, Origin: resultcache.Origin{Made: made.ended, Host: r.Host, Builder: c.m.o.Name,
		Source: c.record.Source, Compiler: c.compiler.Name(),
		CPU: time.Duration(c.record.CPUUS) * time.Microsecond, Wall: time.Duration(r.CompileUS) * time.Microsecond}}
	c.m.clients.Go(func() {
		entry, err := made.encode(e, r)
		var read *listed
		if err == nil && twice && e.Key == made.names.exact {
			read = whatIsRead(made.compiler, k, e.Key, func(index int) []byte { return outputOf(e, index) })
		}
		var exact []byte
		if err == nil && c.m.copies != nil {
			exact = made.exact(e, entry)
		}
		made.sink.Drop()
		flight.End(e.Key, entry)
		if err != nil {
			c.m.o.Log.Debug("a result is not kept", "source", e.Source, "err", err)
			return
		}
		c.m.results.Keep(e.Key, entry)
		c.m.keepListed(read)
		if exact != nil {
			c.m.copies.Make(list, n.exact, exact, e.Host)
		}
	})
	return r, nil
}

// madeFrom is what an entry is made from, besides the host's answer.
type madeFrom struct {
	k            *known.Job
	compiler     unit.ToolchainID
	names        names
	began, ended time.Time
	sink         *slots.Hold
}

// errTime says why a result is not kept.
var errTime = errors.New("it has the time of its compile in it")

// encode puts the outputs of r, which are in the sink, into e and returns it as it is kept: under its name for
// other directories, if it would be the same there.
func (x *madeFrom) encode(e *resultcache.Entry, r *ipc.Result) ([]byte, error) {
	mem := x.sink.Bytes()
	var err error
	part := func(s ipc.Segment) []byte {
		if s.Off > uint64(len(mem)) || s.Len > uint64(len(mem))-s.Off {
			err = fmt.Errorf("%w: it is longer than a sink", resultcache.ErrTooBig)
			return nil
		}
		return mem[s.Off:][:s.Len]
	}
	e.Stdout, e.Stderr = part(r.Stdout), part(r.Stderr)
	var outputs []move.Output
	for i := range r.Files {
		f := resultcache.File{Index: r.Files[i].Index, Data: part(r.Files[i].Segment)}
		e.Files = append(e.Files, f)
		outputs = append(outputs, move.Output{Kind: x.k.Body.Outputs[f.Index].Kind, Data: f.Data})
	}
	switch {
	case err != nil:
		return nil, err
	case tellsTime(e.Files, x.began, x.ended):
		return nil, errTime
	}
	if base := x.names.base; base != "" && base.Outputs(e.Stdout, e.Stderr, outputs) {
		e.Key, e.Base = x.names.moved, string(base)
	}
	slices.SortFunc(e.Files, func(x, y resultcache.File) int { return int(x.Index) - int(y.Index) })
	return e.Append(nil)
}

// exact returns e, which encode has returned as entry, under the name by which hosts keep it; nil if that does not
// work.
func (x *madeFrom) exact(e *resultcache.Entry, entry []byte) []byte {
	if e.Key == x.names.exact {
		return entry
	}
	same := *e
	same.Key, same.Base = x.names.exact, ""
	entry, err := same.Append(nil)
	if err != nil {
		return nil
	}
	return entry
}
