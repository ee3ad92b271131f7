package inputs

import (
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/stamp"
)

// Most commands of a build find everything as it was. That is established side by side, by goroutines that hold Table.mu for
// reading: they look at what no generation has looked at that began after their requests came, as the others do, and change
// nothing but the number of the generation in which it was found unchanged. Any difference, and whatever must be looked at again or
// is to be watched, is left to the goroutine that holds Table.mu alone.

// glance is one such look.
type glance struct {
	t    *Table
	came uint64 // what was looked at in later generations counts
	gen  uint64 // the one of this look, for which the kernel was asked what has changed
	buf  []byte // for paths
}

// quick returns the Set of a command if it is known and everything that it depends on is as it was, else nil. join has returned.
func (t *Table) quick(key unitKey, came uint64) *Set {
	t.mu.RLock()
	defer t.mu.RUnlock()
	u := t.units[key]
	if u == nil || u.set == nil || t.takes > t.o.Memory {
		return nil
	}
	g := glance{t: t, came: came, gen: t.ready.Load()}
	for id := range u.dirs.all {
		if d := t.ids[id]; d.changed > u.seen || !g.dir(d) {
			return nil
		}
	}
	for _, e := range u.entries {
		if e.changed > u.seen || !g.entry(e) {
			return nil
		}
	}
	u.used.Store(t.asks.Add(1))
	return u.set
}

// dir reports whether d is as it was.
func (g *glance) dir(d *dir) bool {
	if d.gen.Load() > g.came {
		return d.err == nil
	}
	if d.err != nil || d.watch != nil && len(d.watch.stale) > 0 || d.parent != nil && !g.dir(d.parent) {
		return false
	}
	if !g.t.sound(d) && !g.at(d) {
		return false
	}
	for _, e := range d.loose {
		if !g.entry(e) {
			return false
		}
	}
	d.gen.Store(g.gen)
	return true
}

// at looks at d by its path.
func (g *glance) at(d *dir) bool {
	var below *entry
	if d.parent != nil {
		if !d.parent.there {
			return !d.there
		}
		below = d.parent.names[d.base]
		if below == nil || below.unknown() || (below.kind == isDir) != d.there || below.kind == isFile && !g.entry(below) {
			return false
		}
		if !d.there {
			return true
		}
	}
	if g.t.wanted(d) || d.watch != nil && d.parent != nil {
		return false
	}
	var u unix.Stat_t
	err := stat(d.path, &u)
	st := stamp.Of(&u)
	if err != nil || !st.Is(unix.S_IFDIR) {
		return !d.there && (err == nil || absent(err))
	}
	return d.same(&st, below) && (d.heard(g.t.watcher.era, &st) || d.st == st && d.settled)
}

// entry reports whether e is as it was.
func (g *glance) entry(e *entry) bool {
	if e.gen.Load() > g.came {
		return true
	}
	if e.gen.Load() == 0 || e.file != nil && !e.file.settled {
		return false
	}
	kind, st, led := examine(e, &g.buf)
	if kind != e.kind || st != e.st || (led == nil) != (e.leads == nil) || led != nil && *led != *e.leads {
		return false
	}
	e.gen.Store(g.gen)
	return true
}
