package inputs

import (
	"slices"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// imports follows the headers that the text of e may import as C++ modules.
func (w *walk) imports(x *text, e *entry, from []*dir) *Doubt {
	if x.vague {
		w.noticed(DoubtComputed, e.path())
	}
	for _, i := range x.imports {
		if i.Computed {
			if w.modules == nil {
				w.modules = make(map[string]struct{})
			}
			w.modules[i.Macro] = struct{}{}
			continue
		}
		if d := w.header(i.Name, i.Quoted, false, from...); d != nil {
			return d
		}
	}
	return nil
}

// header follows a header included by name in a file in the directories from. It follows the first file
// that the search finds, or with next all of them, as which one is next depends on how the file was found.
func (w *walk) header(name string, quoted, next bool, from ...*dir) *Doubt {
	return w.mapped(name, true, func(name string) *Doubt { return w.searched(name, quoted, next, from...) })
}

// mapped calls look with a header's name and with the names that header maps turn it into. It records the files that the
// maps name; with text it also follows them.
func (w *walk) mapped(name string, text bool, look func(name string) *Doubt) *Doubt {
	before := w.finds
	d := w.throughMaps(name, text, look)
	if d == nil {
		w.lacks[name] = w.finds == before && w.lackedSoFar(name)
	}
	return d
}

// lackedSoFar reports whether a header's name has led to no file wherever it has been looked for.
func (w *walk) lackedSoFar(name string) bool {
	lacks, known := w.lacks[name]
	return lacks || !known
}

// throughMaps does the work of mapped.
func (w *walk) throughMaps(name string, text bool, look func(name string) *Doubt) *Doubt {
	if len(w.search.maps) == 0 {
		return look(name)
	}
	files, names := sources.Mapped(w.search.maps, name)
	if len(files) > 0 {
		w.tried(kindMapped)
	}
	for _, file := range files {
		e, d := w.at(file)
		if d != nil {
			return d
		}
		if e != nil {
			if d := w.hit(e, text); d != nil {
				return d
			}
		}
	}
	for _, name := range names {
		if d := look(name); d != nil {
			return d
		}
	}
	return nil
}

// searched does the work of header for a name that no header map translates.
func (w *walk) searched(name string, quoted, next bool, from ...*dir) *Doubt {
	if name[0] == '/' {
		w.tried(kindAbsolute)
		return w.first(nil, name)
	}
	if next {
		w.tried(kindNext)
		return w.each(name, true, true, from...)
	}
	way := kindAngle
	if quoted {
		way = kindQuoted
		found := len(from) > 0
		for _, dir := range from {
			e, d := w.find(dir, name)
			if d != nil {
				return d
			}
			if e == nil {
				found = false
			} else if d := w.hit(e, true); d != nil {
				return d
			}
		}
		if found {
			w.tried(kindBeside)
			return nil
		}
		for _, dir := range w.search.quote {
			e, d := w.find(dir, name)
			if d != nil {
				return d
			}
			if e != nil {
				w.tried(kindQuoted)
				return w.hit(e, true)
			}
		}
	}
	for _, dir := range w.search.angle {
		e, d := w.find(dir, name)
		if d != nil {
			return d
		}
		if e != nil {
			w.tried(way)
			return w.hit(e, true)
		}
	}
	w.tried(kindNowhere)
	return nil
}

// first follows the file name below from, or an absolute name if from is nil, if it exists.
func (w *walk) first(from *dir, name string) *Doubt {
	var e *entry
	var d *Doubt
	if from == nil {
		e, d = w.at(name)
	} else {
		e, d = w.find(from, name)
	}
	if d != nil || e == nil {
		return d
	}
	return w.hit(e, true)
}

// every records all files that a header's name may mean; with text it also follows them.
func (w *walk) every(name string, quoted, text bool, from ...*dir) *Doubt {
	return w.mapped(name, text, func(name string) *Doubt { return w.each(name, quoted, text, from...) })
}

// each does the work of every for a name of which header maps make nothing else.
func (w *walk) each(name string, quoted, text bool, from ...*dir) *Doubt {
	if name[0] == '/' {
		e, d := w.at(name)
		if d != nil || e == nil {
			return d
		}
		return w.hit(e, text)
	}
	lists := [][]*dir{from, w.search.quote, w.search.angle}
	if !quoted {
		lists = lists[2:]
	}
	for _, list := range lists {
		for _, dir := range list {
			e, d := w.find(dir, name)
			if d != nil {
				return d
			}
			if e != nil {
				if d := w.hit(e, text); d != nil {
					return d
				}
			}
		}
	}
	return nil
}

// precompiled is a doubt if a precompiled header exists for a header. gcc looks for it in each directory of
// the search before it looks for the header there, and stops where it finds the header.
func (w *walk) precompiled(from *dir, name string, quoted bool) *Doubt {
	dirs := w.search.angle
	switch {
	case name[0] == '/':
		dirs = []*dir{nil}
	case quoted:
		dirs = slices.Concat([]*dir{from}, w.search.quote, dirs)
	}
	for _, in := range dirs {
		for _, suffix := range [...]string{".gch", ".pch"} {
			if w.q.GCC && suffix == ".pch" {
				continue
			}
			e, doubt := w.lookUp(in, name+suffix)
			switch {
			case doubt != nil:
				return doubt
			case e == nil || e.kind == isAbsent:
			case w.q.Images && e.kind == isFile && !e.isLink():
				if !slices.Contains(w.images, e) {
					w.images = append(w.images, e)
				}
			default:
				// gcc tries all files of a directory, in no certain order.
				w.noticed(DoubtPCH, name+suffix)
				return nil
			}
		}
		if in == nil {
			return nil
		}
		if e, doubt := w.find(in, name); doubt != nil || e != nil {
			return doubt
		}
	}
	return nil
}
