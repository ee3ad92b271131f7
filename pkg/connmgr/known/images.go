package known

import (
	"context"
	"crypto/sha256"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known/made"
)

// A precompiled header is an image of the memory of a compiler, and no host takes one. A host makes it itself, by the command
// that has made the one here, of the same files. What is known of that command, and of what it has read, is a recipe. It is of
// use only while the image is still what came out of that command, and while the files are still what went in: a compiler may
// go on using an image whose headers have changed, or complain about it, and no host could do the same.

// recipe describes how an image was made. It is immutable, except for its atomic fields.
type recipe struct {
	body     job.Body
	set      *inputs.Set // inputs.Set.Whole
	list     unit.ContentID
	at       stamp.Stamp // of the image
	compiler *compilers.Compiler
	query    *inputs.Query
	ask      []string

	lease *ipc.Lease                        // the command
	used  atomic.Int64                      // seconds since 1970
	sum   atomic.Pointer[[sha256.Size]byte] // of the image; nil: not known yet
}

// images holds the recipes by the names of their images, absolute and without links.
type images struct {
	past *past // set once, in Keep

	mu      sync.Mutex
	recipes map[string]*recipe
	making  map[string]*making
}

// making are the commands under way that make one image.
type making struct {
	commands int
	twice    bool          // there was more than one: which of them the image is from is not certain
	done     chan struct{} // closed when the last one has ended
}

// mostImages bounds the recipes that are kept.
const mostImages = 1024

// Making is a command that makes an image here.
type Making struct {
	t    *Table
	name string // of the image
	c    *Command
	plan *compile.Plan
	from *inputs.Set // what it was to be made of when it began; nil: not known, and there will be no recipe
	// If that was in doubt: when it began, in nanoseconds since 1970, and then what a compiler has listed.
	doubted     int64
	names, dirs []string
	made        *recipe // nil: none
}

// Make announces a command that makes an image here, before it starts. It returns nil if the command makes none, or not in a
// way that hosts can repeat. The caller calls End.
func (t *Table) Make(c *Command) *Making {
	l := c.Lease
	if l.Command == nil || c.Foreign || !sees(l.Command.View, l.Cwd) {
		return nil
	}
	m, direct := t.command(c)
	if m == nil {
		return nil
	}
	t.images.begin(m.name)
	if direct { // otherwise a host could not tell where users find it
		began := time.Now().UnixNano()
		if m.from = m.reads(); m.from == nil {
			m.doubted = began
		}
	}
	return m
}

// command returns what a command makes, or nil if that is no image, or not made in a way that hosts can repeat. direct says
// that the name of the image leads through no link.
func (t *Table) command(c *Command) (m *Making, direct bool) {
	l, cmd := c.Lease, c.Lease.Command
	driver, ok := compile.DriverOf(cmd.Argv0, cmd.Real)
	if !ok {
		return nil, false
	}
	plan := compile.ParseUnlisted(cmd.Args, driver, variables(cmd.Env))
	if plan.Makes == nil {
		return nil, false
	}
	m = &Making{t: t, c: c, plan: plan.Header()}
	out := path.Clean(from(l.Cwd, plan.Makes.Outputs[0].Name))
	dir := sources.RealPath(filepath.Dir(out))
	if dir == "" {
		return nil, false
	}
	m.name = path.Join(dir, path.Base(out))
	return m, m.name == out
}

// Doubted reports whether a compiler has to list what the header is made of.
func (m *Making) Doubted() bool { return m.doubted != 0 && m.names == nil }

// Listed takes what a compiler has listed after the command had ended; there are no names if that is uncertain. What it has listed
// has to be what it was before the command began.
func (m *Making) Listed(names, dirs []string) {
	if !m.Doubted() || len(names) == 0 {
		return
	}
	m.names, m.dirs = names, dirs
	q, _ := m.query()
	if set, why := m.t.listed(q, m.doubted); why == "" {
		m.from = set.Whole()
	}
}

// query returns the query for what the command reads, or nil if there is none, and the words that choose the compiler's own directories.
func (m *Making) query() (q *inputs.Query, ask []string) {
	if m.names != nil {
		q = listing(m.c, m.plan.Whole(), m.names, m.dirs)
	} else {
		var ok bool
		if q, ask, ok = query(m.c, m.plan); !ok {
			return nil, nil
		}
	}
	q.Key += "\x01image"
	return q, ask
}

// reads returns what the command reads as it is now (inputs.Set.Whole), or nil if that is not known.
func (m *Making) reads() *inputs.Set {
	q, ask := m.query()
	if q == nil {
		return nil
	}
	set, why := m.t.resolve(m.c.Compiler, q, m.plan.Language, ask)
	if why != "" || !alone(q, set, m.name) || set.Timed || set.Unsure {
		return nil
	}
	return set.Whole()
}

// alone reports whether no image goes into the one of that name. gcc empties that before it looks for images.
func alone(q *inputs.Query, set *inputs.Set, name string) bool {
	return len(set.Images) == 0 || q.GCC && len(set.Images) == 1 && set.Images[0] == name
}

// Made reports that the command has made the image. It waits until any later change of the image would show in its stamp, so the
// build must not go on until then. The recipe is kept if what the command was to read has not changed.
//
// A host would make the image as this package believes that its compiler searches, so that is judged here.
func (m *Making) Made(ctx context.Context) {
	if m.from == nil {
		return
	}
	if r := m.recipe(ctx); r != nil && m.t.judgeMaking(ctx, m, r) == "" {
		m.made = r
	}
}

// End reports that the command has ended.
func (m *Making) End() { m.t.images.end(m.name, m.made) }

// recipe returns the recipe of the image that the command has made, or nil if there is none.
func (m *Making) recipe(ctx context.Context) *recipe {
	if !made.Faithful(m.name) {
		return nil
	}
	at, ok := made.Look(m.name)
	now := time.Now().UnixNano()
	if rest := at.CTime + stamp.Tick + 1 - now; ok && rest > 0 {
		if rest > stamp.Tick+1 { // the clock was set back
			return nil
		}
		select {
		case <-time.After(time.Duration(rest)):
		case <-ctx.Done():
			return nil
		}
		again, there := made.Look(m.name)
		ok = there && again == at && at.Settled(time.Now().UnixNano())
	}
	if !ok {
		return nil
	}
	began, _ := m.from.List()
	return m.ofList(began, at)
}

// ofList returns the recipe of an image with that stamp, or nil if the command does not read just what that list has.
func (m *Making) ofList(list unit.ContentID, at stamp.Stamp) *recipe {
	set := m.reads()
	if set == nil {
		return nil
	}
	q, ask := m.query()
	r := &recipe{set: set, at: at, compiler: m.c.Compiler, query: q, ask: ask, lease: m.c.Lease}
	if r.list, _ = set.List(); r.list != list {
		return nil
	}
	r.used.Store(time.Now().Unix())
	r.body = m.body(r.list)
	return r
}

func (x *images) begin(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.making == nil {
		x.making = make(map[string]*making)
	}
	delete(x.recipes, name)
	x.past.forget(name)
	m := x.making[name]
	if m == nil {
		m = &making{done: make(chan struct{})}
		x.making[name] = m
	}
	m.commands++
	m.twice = m.twice || m.commands > 1
}

func (x *images) end(name string, r *recipe) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.making[name]
	if m.commands--; m.commands > 0 {
		return
	}
	delete(x.making, name)
	if r != nil && !m.twice {
		x.addLocked(name, r)
		x.past.changed()
	}
	close(m.done)
}

// addLocked makes r the recipe of an image.
func (x *images) addLocked(name string, r *recipe) {
	if x.recipes == nil {
		x.recipes = make(map[string]*recipe)
	}
	if len(x.recipes) >= mostImages {
		clear(x.recipes)
	}
	x.recipes[name] = r
}

// find returns the recipe of an image, or nil. It waits for commands that make it: the build system believes that they have
// ended, and so their word is on its way.
func (x *images) find(ctx context.Context, name string) *recipe {
	x.mu.Lock()
	m, r := x.making[name], x.recipes[name]
	x.mu.Unlock()
	if m == nil {
		return r
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.recipes[name]
}

// use returns the recipes of all images that a compile finds here: those that are known without links, and those named as
// typed. why says why there is none for one of them.
func (t *Table) use(ctx context.Context, c *Command, known, typed []string) (all []*recipe, why string) {
	names := slices.Clone(known)
	for _, n := range typed {
		real := sources.RealPath(from(c.Lease.Cwd, n))
		if real == "" || real != path.Clean(from(c.Lease.Cwd, n)) {
			return nil, inputs.DoubtPCH
		}
		names = append(names, real)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > job.MaxImages {
		return nil, inputs.DoubtPCH
	}
	for _, n := range names {
		r := t.images.find(ctx, n)
		if r == nil {
			r = t.restore(c, n)
		}
		if r == nil || !t.fresh(r, n) || r.compiler.ID != c.Compiler.ID || r.body.Argv0 != c.Lease.Command.Argv0 || r.body.Compiler != c.Lease.Command.Real {
			t.log.Debug("a precompiled header cannot be made elsewhere", "source", c.Lease.Source, "image", n, "known", r != nil)
			return nil, inputs.DoubtPCH
		}
		t.images.past.usedNow(r)
		all = append(all, r)
	}
	return all, ""
}

// fresh reports whether an image, and what it was made of, are unchanged.
func (t *Table) fresh(r *recipe, name string) bool {
	if at, ok := made.Look(name); !ok || at != r.at {
		return false
	}
	set, why := t.resolve(r.compiler, r.query, r.body.Language, r.ask)
	if why != "" || !alone(r.query, set, name) {
		return false
	}
	list, _ := set.Whole().List()
	return list == r.list
}

// with returns set, or a set that also has what images are made of: clang compares that with what it has noted in the image. made is
// the query that the set answers, or nil if it is no answer to one.
func (t *Table) with(c *compilers.Compiler, q *inputs.Query, language string, ask []string, set *inputs.Set, used []*recipe) (with *inputs.Set, made *inputs.Query, why string) {
	var more []string
	for _, r := range used {
		more = append(more, set.Lacks(r.set)...)
	}
	if len(more) == 0 {
		return set, q, ""
	}
	if set.Memo { // a compiler has listed it, which a walk over more files would not find again
		for _, r := range used {
			set = set.With(r.set)
		}
		return set, nil, ""
	}
	slices.Sort(more)
	wider := *q
	wider.More = slices.Concat(q.More, slices.Compact(more))
	wider.Key += "\x01" + strings.Join(more, "\x00")
	with, why = t.resolve(c, &wider, language, ask)
	return with, &wider, why
}

// from returns a name as seen from cwd.
func from(cwd, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return cwd + "/" + name
}
