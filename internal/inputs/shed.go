package inputs

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// What the records of a Table take, in bytes, with a part of the maps that they are in.
const (
	entryTakes = int64(unsafe.Sizeof(entry{})) + 48
	dirTakes   = int64(unsafe.Sizeof(dir{})+unsafe.Sizeof(watch{})) + 160
	fileTakes  = int64(unsafe.Sizeof(file{})+unsafe.Sizeof(text{})) + 64
	inputTakes = int64(unsafe.Sizeof(Input{}))
	unitTakes  = int64(unsafe.Sizeof(resolved{})+unsafe.Sizeof(Set{})) + 96
)

func (e *entry) size() int64 { return entryTakes + int64(len(e.base)) }
func (d *dir) size() int64   { return dirTakes + int64(len(d.path)) }

// size returns what u takes by itself, without what it shares with other commands.
func (u *resolved) size() int64 {
	n := unitTakes + 12*int64(len(u.dirs.at)) + 8*int64(cap(u.entries))
	if s := u.set; s != nil {
		n += 8*int64(cap(s.Files)+cap(s.more)) + 4*int64(cap(s.without)) + 16*int64(len(s.Dirs)) + 32*int64(len(s.Links)) + int64(len(s.spare))
	}
	return n
}

func (f *file) size() int64 { return fileTakes + f.text.size() }

// size returns what x takes, about.
func (x *text) size() (n int64) {
	if x == nil || x == &nothing {
		return 0
	}
	for _, list := range [...][]sources.Include{x.includes, x.imports, x.macros} {
		n += int64(cap(list)) * int64(unsafe.Sizeof(sources.Include{}))
		for i := range list {
			n += int64(len(list[i].Name) + len(list[i].Macro) + len(list[i].Line))
		}
	}
	n += int64(cap(x.table)) * int64(unsafe.Sizeof(sources.Macro{}))
	for i := range x.table {
		n += int64(len(x.table[i].Name) + len(x.table[i].Body) + 16*len(x.table[i].Params))
	}
	return n + 64*int64(len(x.values)+len(x.asked)+len(x.aliases)+len(x.assembly)+len(x.lines)) + 4*int64(cap(x.defined))
}

// shed evicts the least recently used commands, with everything that no other command needs, until a quarter of the
// memory is free.
func (t *Table) shed() {
	units := make([]*resolved, 0, len(t.units))
	keys := make(map[*resolved]unitKey, len(t.units))
	for key, u := range t.units {
		units, keys[u] = append(units, u), key
	}
	slices.SortFunc(units, func(a, b *resolved) int { return cmp.Compare(a.used.Load(), b.used.Load()) })
	t.sweep(units)
	for t.takes > t.o.Memory-t.o.Memory/4 && len(units) > 0 {
		n := (len(units) + 3) / 4
		for _, u := range units[:n] {
			delete(t.units, keys[u])
		}
		t.dropped += uint64(n)
		units = units[n:]
		t.sweep(units)
	}
	if len(units) == 0 {
		t.forget()
	}
}

// sweep drops what none of the units needs, and measures what the rest takes. A name is needed as long as some unit has
// asked for it or may have: one that was resolved no later than the name was last asked for.
func (t *Table) sweep(units []*resolved) {
	needed := make([]bool, len(t.ids))
	oldest := t.round
	t.takes = 0
	for _, u := range units {
		for id := range u.dirs.all {
			needed[id] = true
		}
		oldest = min(oldest, u.born)
		t.takes += u.size()
	}
	dirs, files := make(map[string]*dir, len(t.dirs)), make(map[inode]*file, len(t.files))
	for id, d := range t.ids {
		switch {
		case d == nil:
			continue
		case !needed[id]:
			t.ids[id], t.free = nil, append(t.free, uint32(id))
			t.ignore(d)
			continue
		}
		dirs[d.path] = d
		t.takes += d.size()
		t.prune(d, oldest)
		for _, e := range d.names {
			t.takes += e.size()
			if e.input != nil {
				t.takes += inputTakes + int64(len(e.input.Name))
			}
			if at := (inode{e.target().Dev, e.target().Ino}); e.file != nil && t.files[at] == e.file && files[at] == nil {
				files[at] = e.file
				t.takes += e.file.size()
			}
		}
	}
	t.dirs, t.files, t.used = dirs, files, nil
}

// prune drops the names in d that were last asked for before the round oldest.
func (t *Table) prune(d *dir, oldest uint64) {
	old := 0
	for _, e := range d.names {
		if e.asked < oldest {
			old++
		}
	}
	if old == 0 {
		return
	}
	names := make(map[string]*entry, len(d.names)-old) // a map does not shrink
	for base, e := range d.names {
		if e.asked >= oldest {
			names[base] = e
		}
	}
	d.names = names
	d.loose = slices.DeleteFunc(d.loose, func(e *entry) bool { return e.asked < oldest })
}
