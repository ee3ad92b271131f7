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
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/move"
)

// compileKnown makes a host compile a job whose inputs are known, unless an equal one is under way: then both
// get the same result. It keeps the result.
func (c *client) compileKnown(k *known.Job) (*ipc.Result, *ipc.GoLocal) {
	if k.Left {
		return c.compileLeft(c.knownTask(k))
	}
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
	if c.m.o.shelves() && len(k.Images) == 0 { // a host compares no jobs by what precompiled headers are made of
		t.Result, t.Join = n.exact, c.mayFind()
		below := string(n.base)
		if n.hole != "" {
			below += "/"
		}
		if n.base != "" && len(below) <= job.MaxBase {
			t.Below, t.Moved = below, n.moved
		}
	}
	r, e, no := c.onFarm(k, t)
	switch {
	case e != nil:
		c.hand(e, flight)
		return c.cached(k, e, resultcache.TierFarm), nil
	case no != nil || r.Exit != 0 || r.Signal != 0:
		flight.End(n.exact, nil)
		return r, no
	}
	if r.Cached != "" { // the compile began before
		began = began.Add(-time.Duration(r.CompileUS) * time.Microsecond)
	}
	c.keep(&madeFrom{k: k, body: k.Body, compiler: c.compiler.ID, names: *n, began: began, ended: time.Now(), sink: c.sink.Share()}, r, flight)
	return r, nil
}

// onFarm makes a host compile the job t. It returns the host's answer, the entry that another builder's compile
// of the same job left meanwhile, or why neither is to be had.
func (c *client) onFarm(k *known.Job, t *attempt.Task) (*ipc.Result, *resultcache.Entry, *ipc.GoLocal) {
	for {
		if e := c.onOthers(k, t); e != nil {
			return nil, e, nil
		}
		if r, no := c.compile(t, true); no != elsewhere {
			return r, nil, no
		}
	}
}

// hand gives the entry e, which was found on a host and lies in the sink, to those who joined the flight.
func (c *client) hand(e *resultcache.Entry, flight *results.Flight) {
	sink := c.sink.Share()
	c.m.clients.Go(func() {
		entry, err := e.Append(nil)
		sink.Drop()
		if err != nil {
			entry = nil // cannot be
		}
		flight.End(e.Key, entry)
	})
}

// keep makes an entry of the host's answer r, in the background. It gives the entry to those who joined the
// flight, if there is one, and to the tiers of the cache.
func (c *client) keep(made *madeFrom, r *ipc.Result, flight *results.Flight) {
	k, list, twice, reads := made.k, c.list.Sched, made.k != nil && c.stepsTwice(made.k), c.reads
	cmd := c.inBuild(cmp.Or(made.names.body, made.body))
	e := &resultcache.Entry{Key: made.names.exact, Exit: r.Exit, Origin: resultcache.Origin{Made: made.ended, Host: r.Host, Builder: c.m.o.Name,
		Source: c.record.Source, Compiler: c.compiler.Name(),
		CPU: time.Duration(c.record.CPUUS) * time.Microsecond, Wall: time.Duration(r.CompileUS) * time.Microsecond}}
	c.m.clients.Go(func() {
		entry, err := made.encode(e, r, made.sink.Bytes())
		var read *listed
		if err == nil && twice {
			read = whatIsRead(made.compiler, k, e.Key, func(index int) []byte { return outputOf(e, index) })
			reads.left(k, read)
		}
		var exact []byte
		if err == nil && made.k != nil && c.m.copies != nil {
			exact = made.exact(e, entry)
		}
		made.sink.Drop()
		if flight != nil {
			flight.End(e.Key, entry)
		}
		if err != nil {
			c.m.o.Log.Debug("a result is not kept", "source", e.Source, "err", err)
			return
		}
		c.m.results.Keep(cmd, e.Key, entry)
		c.m.keepListed(read)
		if exact != nil {
			c.m.copies.Make(list, made.names.exact, exact, e.Host)
		}
	})
}

// madeFrom is what an entry is made from, besides the host's answer.
type madeFrom struct {
	k            *known.Job // nil: of the text form
	body         *job.Body
	compiler     unit.ToolchainID
	names        names
	began, ended time.Time
	sink         *slots.Hold // of a host's answer; encode does not need it
}

// errLong says why a result is not kept that a client's sink could not hold.
var errLong = fmt.Errorf("%w: it is longer than a sink", resultcache.ErrTooBig)

// errTime says why a result is not kept.
var errTime = errors.New("it has the time of its compile in it")

// encode puts the outputs of r, which are in mem, into e and returns it as it is kept: under its name for
// other directories, if it would be the same there.
func (x *madeFrom) encode(e *resultcache.Entry, r *ipc.Result, mem []byte) ([]byte, error) {
	var err error
	part := func(s ipc.Segment) []byte {
		if s.Off > uint64(len(mem)) || s.Len > uint64(len(mem))-s.Off {
			err = errLong
			return nil
		}
		return mem[s.Off:][:s.Len]
	}
	e.Stdout, e.Stderr = part(r.Stdout), part(r.Stderr)
	var outputs []move.Output
	for i := range r.Files {
		f := resultcache.File{Index: r.Files[i].Index, Data: part(r.Files[i].Segment)}
		e.Files = append(e.Files, f)
		outputs = append(outputs, move.Output{Kind: x.body.Outputs[f.Index].Kind, Data: f.Data})
	}
	switch {
	case err != nil:
		return nil, err
	case tellsTime(e.Files, x.began, x.ended):
		return nil, errTime
	}
	if base := x.names.base; base != "" && base.Outputs(e.Stdout, e.Stderr, outputs, x.names.hole) {
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
