package connmgr

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
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
	hole  string          // directory that a result under moved may name in its debug information alone; empty: none
	body  *job.Body       // the command, as moved has it if there is one
	moves bool            // what was found under moved is from another directory
}

// names returns the names of a job's result. They are made once.
func (c *client) names(k *known.Job) *names {
	n := &c.named
	if n.k == k {
		return n
	}
	*n = names{k: k, ok: c.m.results != nil && !k.Left && !k.Set.Timed && !readsClock(k.Body.Args)}
	for i := range k.Body.Images {
		n.ok = n.ok && !readsClock(k.Body.Images[i].Args)
	}
	if !n.ok {
		return n
	}
	n.exact, n.body = resultcache.KeyOf(c.compiler.ID, k.Body, sumOf(c.compiler.ID, k)), k.Body
	if len(k.Images) > 0 {
		return n // the compiler finds what an image is made of by the names of here
	}
	dir := cmp.Or(c.lease.Base, c.m.o.BaseDir)
	if dir == "" {
		dir = c.m.checkouts.Of(c.lease.Cwd)
	}
	if base, is := move.Of(dir); is {
		hole := ""
		if k.Set.Relative {
			hole = move.Holes(c.compiler.Family, c.compiler.Major, k.Body)
		}
		if body, is := base.Command(k.Body, move.NamesTypes(c.compiler.Family, c.compiler.Major, k.Body.Language), hole); is {
			n.body, n.hole = body, hole
			n.moved, n.base = resultcache.KeyOf(c.compiler.ID, body, k.Set.SumBelow(string(base), base.Hide)), base
		}
	}
	return n
}

// inBuild returns what the cache is to know of the command, whose job is b, for what it fetches before that is asked for.
func (c *client) inBuild(b *job.Body) *results.Command {
	if c.ofBuild == nil {
		tc := c.compiler.ID
		c.ofBuild = &results.Command{Build: c.record.Build, Keeps: c.mayKeep(), Name: func() resultcache.Key { return resultcache.ForecastKeyOf(tc, b) }}
	}
	return c.ofBuild
}

// sumOf returns the sum over everything that a compile can see, for the name of its result: the files of its Set and, for each
// precompiled header, by which command of the compiler it is made, and of what.
func sumOf(tc unit.ToolchainID, k *known.Job) [sha256.Size]byte {
	sum := k.Set.Sum()
	if len(k.Images) == 0 {
		return sum
	}
	h := sha256.New()
	h.Write(sum[:])
	for i, in := range k.Images {
		key := resultcache.KeyOf(tc, &k.Body.Images[i], in.Sum())
		h.Write(key[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// onCached answers with a result from the cache, if there is one. It reports whether it has answered.
func (c *client) onCached(k *known.Job) (done bool, err error) {
	return c.seek(k, func() (*resultcache.Entry, string) {
		c.record.Asked = true
		e, tier := c.find(k)
		if e == nil {
			c.record.Missed = c.unlessRefused(c.m.missed(k))
		}
		return e, tier
	})
}

// onConnected looks once more for a result, on the hosts, if none of them was connected when it was looked for first, or one
// was, but had not been read.
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
func (c *client) shelves() (l *shelved.Look, early bool) {
	l, early = shelved.New(c.m.farm, c.list.Sched, len(c.sink.Bytes()))
	l.Verify = c.m.o.Verify
	return l, early
}

// find returns a job's result from the cache, with its outputs in the client's sink, and its tier; nil: it has none.
func (c *client) find(k *known.Job) (*resultcache.Entry, string) {
	var hosts *shelved.Look
	hosts, c.later = c.shelves()
	return c.findIn(k, &results.Look{Farm: hosts})
}

// unlessRefused returns why the cache has no result, which is missed if none was refused.
func (c *client) unlessRefused(missed string) string {
	if c.refused == "" {
		return missed
	}
	return c.refused + " has a result, but nobody has signed it whose signature counts (cache.trust)"
}

// findIn does the same where a look says. It sets what is missing there.
func (c *client) findIn(k *known.Job, where *results.Look) (*resultcache.Entry, string) {
	n := c.names(k)
	where.Command = c.inBuild(n.body)
	where.Untrusted = func(tier string) { c.refused = tier }
	apart := func(n int) ([]byte, error) { return make([]byte, n), nil }
	if n.base != "" {
		look := *where
		look.Key, look.Room = n.moved, apart
		look.Check = func(e *resultcache.Entry) error {
			if !c.moveHere(k, n.base, e) {
				return resultcache.ErrMiss
			}
			return c.check(k.Body, k.Modules, e)
		}
		if e, tier := c.m.results.Find(c.Context(), &look); e != nil && c.moveHere(k, n.base, e) {
			return e, tier
		}
	}
	look := *where
	look.Key, look.Room, look.Check, look.Second = n.exact, c.room, c.checker(k), c.second(k)
	if n.base == "" {
		return c.m.results.Find(c.Context(), &look)
	}
	look.Room, look.Check = apart, func(e *resultcache.Entry) error { // by the second step, it may be from another directory
		if !c.fit(k, n.base, e) {
			return resultcache.ErrMiss
		}
		return c.check(k.Body, k.Modules, e)
	}
	e, tier := c.m.results.Find(c.Context(), &look)
	if e != nil && !c.fit(k, n.base, e) {
		return nil, ""
	}
	return e, tier
}

// fit puts the outputs of e into the client's sink, made those of k if e is from another directory.
func (c *client) fit(k *known.Job, base move.Base, e *resultcache.Entry) bool {
	if e.Base == "" {
		return c.intoSink(e)
	}
	return c.moveHere(k, base, e)
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
		dir := string(from) + strings.TrimPrefix(k.Body.Cwd, string(to))
		if f.Data, ok = from.Move(move.Output{Kind: k.Body.Outputs[f.Index].Kind, Data: f.Data}, dir, to); !ok {
			return false
		}
	}
	c.named.moves = c.named.moves || from != to
	e.Base = string(to)
	return c.intoSink(e)
}

// intoSink copies the outputs of e to the beginning of the client's sink, one behind the other, unless they are there.
func (c *client) intoSink(e *resultcache.Entry) bool {
	mem, err := c.room(e.Len())
	if err != nil {
		return false
	}
	for _, part := range e.Parts() {
		n := copy(mem, *part)
		*part, mem = mem[:n:n], mem[n:]
	}
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
	r := c.hit(e, tier)
	c.record.Second = c.bySecond(k, e)
	if tier != resultcache.TierManager || c.named.moves && !c.record.Second { // this directory's manifest does not have it
		c.listHit(k, e)
	}
	c.auditHit(k, e, tier)
	return r
}

// hit is cached without what needs the job's inputs to be known.
func (c *client) hit(e *resultcache.Entry, tier string) *ipc.Result {
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
	c.answered()
	return r
}
