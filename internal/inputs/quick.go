package inputs

import (
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/stamp"
)

// Most commands of a build find nothing changed. Goroutines that hold Table.mu for reading establish that in parallel: like
// all others, they check whatever no generation that began after their request has checked, and modify nothing but the
// number of the generation in which it was found unchanged. Anything that differs, must be read again or is to be watched
// is left to a goroutine that holds Table.mu exclusively.

// glance is one such look.
type glance struct {
	t    *Table
	came uint64 // what was looked at in later generations counts
	gen  uint64 // the one of this look, for which the kernel was asked what has changed
	buf  []byte // for paths
}

// quick returns a command's Set if it is known and nothing that it depends on has changed, else nil. join has returned.
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
