package connmgr

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
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

// key returns the name of a job's result. ok is false if the result may depend on more than what the name is
// made of.
func (c *client) key(k *known.Job) (key resultcache.Key, ok bool) {
	if c.m.results == nil || k.Set.Timed || readsClock(k.Body.Args) {
		return key, false
	}
	return resultcache.KeyOf(c.compiler.ID, k.Body, k.Set.Sum()), true
}

// onCached answers with a result from the cache, if there is one. It reports whether it has answered.
func (c *client) onCached(k *known.Job) (done bool, err error) {
	key, ok := c.key(k)
	if !ok {
		return false, nil
	}
	if c.sink, err = c.m.memory.TrySink(c.uid); c.sink == nil {
		return false, nil // the job waits for one, as any other
	}
	c.free = true // the wrapper has no source to write to
	c.record.Asked = true
	e, tier := c.m.results.Find(c.Context(), key, c.room)
	if e == nil {
		c.record.Missed = c.m.missed(k)
		c.endLease()
		return false, nil
	}
	fd, err := c.sink.OpenReader()
	if err != nil {
		c.endLease()
		return false, nil
	}
	defer closeFD(fd)
	return true, c.sendKnown(k, c.cached(k, e, tier), fd)
}

// room returns memory for n bytes at the beginning of the client's sink.
func (c *client) room(n int) ([]byte, error) {
	mem := c.sink.Bytes()
	if n > len(mem) {
		return nil, fmt.Errorf("it has %d bytes, a sink %d", n, len(mem))
	}
	return mem[:n], nil
}

// cached returns an entry whose outputs are in the client's sink as the wrapper gets it.
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
	c.record.CPUUS, c.record.CompileUS = uint32(e.CPU.Microseconds()), uint32(e.Wall.Microseconds())
	c.auditHit(k, e, tier)
	return r
}

// compileKnown makes a host compile a job whose inputs are known, unless an equal one is under way: then both
// get the same result. It keeps the result.
func (c *client) compileKnown(k *known.Job) (*ipc.Result, *ipc.GoLocal) {
	key, ok := c.key(k)
	if !ok || !c.mayKeep() {
		return c.compile(c.knownTask(k), true)
	}
	for {
		flight, leads := c.m.results.Join(key)
		if leads {
			return c.lead(k, flight, key)
		}
		entry := flight.Wait(c.Context())
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
func (c *client) lead(k *known.Job, flight *results.Flight, key resultcache.Key) (*ipc.Result, *ipc.GoLocal) {
	began := time.Now()
	r, no := c.compile(c.knownTask(k), true)
	if no != nil || r.Exit != 0 || r.Signal != 0 {
		flight.End(nil)
		return r, no
	}
	ended, sink := time.Now(), c.sink.Share()
	cpu := time.Duration(c.record.CPUUS) * time.Microsecond
	e := &resultcache.Entry{Key: key, Exit: r.Exit, Origin: resultcache.Origin{Made: time.Now(), Host: r.Host, Builder: c.m.o.Name,
		Source: c.record.Source, Compiler: c.compiler.Name(), CPU: cpu, Wall: time.Duration(r.CompileUS) * time.Microsecond}}
	c.m.clients.Go(func() {
		var entry []byte
		err := errTime
		if !tellsTime(r, sink.Bytes(), began, ended) {
			entry, err = encode(e, r, sink)
		}
		sink.Drop()
		if err != nil {
			c.m.o.Log.Debug("a result is not kept", "source", e.Source, "err", err)
			flight.End(nil)
			return
		}
		flight.End(entry)
		c.m.results.Keep(key, entry)
	})
	return r, nil
}

// errTime says why a result is not kept.
var errTime = errors.New("it has the time of its compile in it")

// encode puts the outputs of r, which are in sink, into e and returns it as it is kept.
func encode(e *resultcache.Entry, r *ipc.Result, sink *slots.Hold) ([]byte, error) {
	mem := sink.Bytes()
	var err error
	part := func(s ipc.Segment) []byte {
		if s.Off > uint64(len(mem)) || s.Len > uint64(len(mem))-s.Off {
			err = fmt.Errorf("%w: it is longer than a sink", resultcache.ErrTooBig)
			return nil
		}
		return mem[s.Off:][:s.Len]
	}
	e.Stdout, e.Stderr = part(r.Stdout), part(r.Stderr)
	for i := range r.Files {
		e.Files = append(e.Files, resultcache.File{Index: r.Files[i].Index, Data: part(r.Files[i].Segment)})
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(e.Files, func(x, y resultcache.File) int { return int(x.Index) - int(y.Index) })
	return e.Append(nil)
}
