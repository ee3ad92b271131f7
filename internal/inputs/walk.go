package inputs

import (
	"strings"

	"golang.org/x/sys/unix"
)

// walk finds everything that one compile may read. Guarded by Table.mu.
type walk struct {
	t *Table
	q *Query

	search  search
	hits    []*entry              // in the order of discovery
	seen    map[*entry]struct{}   // the entries in hits
	read    map[string]struct{}   // real names of files that were followed, with what they include
	queue   []*entry              // still to be followed
	odd     []*entry              // files in the place of header directories
	images  []*entry              // precompiled headers that may be used
	texts   []*text               // texts of the files in read
	readers []*entry              // entry of each of texts
	named   []macro               // includes by a macro
	aliases []alias               // macros that stand for __has_include
	modules map[string]struct{}   // words after the word import
	values  map[followed]struct{} // the part of named that has been followed
	table   *macroTable           // covers texts, or the first of them; nil: not needed yet
	before  *macroTable           // of the previous turn
	bounded bool                  // to be stopped once it has read a lot
	fresh   int                   // how much it has read, as maxTurn counts
	marks   int
	// What is known of how files are read (unread.go).
	directive bool                // what is found now is named by a directive for the preprocessor, which reads it or not
	reader    *dir                // directory of the file with that directive, if headers there are the system's; else nil
	fixed     map[*entry]struct{} // files that may be read otherwise
	blurred   bool                // what is the system's is not certain
	unsure    bool
	absolute  bool // a line directive names a file absolutely
	timed     bool
	finds     int                 // how often a name has led to a file
	lacks     map[string]bool     // names of headers that were looked for, and whether none has led to a file
	doubt     *Doubt              // the first one
	whole     bool                // the walk reached its end, with or without a doubt
	told      bool                // the compiler has been asked: doubts do not count
	only      map[string]struct{} // with told: real names of the files that it has listed
	nested    bool                // what is found now is named by another file than the source
	kinds     Kinds
	besides   map[string]struct{} // directories in which Query.Beside has been looked for, as spelt
}

func newWalk(t *Table, q *Query) *walk {
	return &walk{t: t, q: q, seen: make(map[*entry]struct{}), fixed: make(map[*entry]struct{}), lacks: make(map[string]bool), read: make(map[string]struct{}), values: make(map[followed]struct{})}
}

// spent reports whether the walk must stop rather than read or expand more.
func (w *walk) spent() bool { return w.bounded && w.fresh > w.t.turn }

// over reports whether the walk must stop. If not, it counts the reading of e, whose content is not known.
func (w *walk) over(e *entry) bool {
	if w.spent() {
		return true
	}
	w.fresh += int(e.target().Size) + fileCosts
	return false
}

// abs returns a name as seen from the working directory. It is not simplified.
func (w *walk) abs(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return w.q.Cwd + "/" + name
}

// noticed records the first doubt. The walk goes on, so that everything it would examine becomes known.
func (w *walk) noticed(why, name string) {
	if w.doubt == nil {
		w.doubt = &Doubt{Why: why, Name: name}
	}
}

// all walks from the source. It returns the first doubt.
func (w *walk) all() *Doubt {
	if len(w.q.Only) > 0 {
		return w.onlyThese()
	}
	if d := w.lists(); d != nil {
		return d
	}
	if d := w.roots(); d != nil {
		return d
	}
	if d := w.follow(); d != nil {
		return d
	}
	w.whole = true
	if w.told {
		return nil
	}
	return w.doubt
}

// onlyThese records the files of Query.Only.
func (w *walk) onlyThese() *Doubt {
	for _, name := range w.q.Dirs {
		d := w.t.dirAt(trimSlash(w.abs(name)))
		if doubt := w.t.check(d); doubt != nil || !d.there {
			return &Doubt{Why: DoubtChanged, Name: name}
		}
		w.search.user = append(w.search.user, d)
	}
	for _, name := range w.q.Only {
		e, d := w.at(name)
		if d == nil && e == nil {
			d = &Doubt{Why: DoubtChanged, Name: name}
		}
		if d == nil {
			d = w.hit(e, false)
		}
		if d != nil {
			return d
		}
	}
	w.whole, w.unsure, w.timed = true, w.q.Unsure, w.q.Timed
	if d := w.t.settle(); d != nil {
		return d
	}
	return w.doubt
}

// roots records what is read before any directive says so.
func (w *walk) roots() *Doubt {
	q := w.q
	source, d := w.at(q.Source)
	if d != nil {
		return d
	}
	if source == nil {
		return &Doubt{Why: DoubtFile, Name: q.Source}
	}
	if d := w.hit(source, true); d != nil {
		return d
	}
	cwd := w.t.dirAt(q.Cwd)
	if d := w.t.check(cwd); d != nil || !cwd.there {
		return &Doubt{Why: DoubtFile, Name: q.Cwd}
	}
	for _, name := range q.Forced {
		if d := w.precompiled(cwd, name, true); d != nil {
			return d
		}
		// For a forced file the working directory replaces that of the source.
		if d := w.header(name, true, false, cwd); d != nil {
			return d
		}
	}
	for _, i := range q.Imported {
		if d := w.header(i.Name, i.Quoted, false, source.dir); d != nil {
			return d
		}
	}
	for _, name := range q.Given {
		if d := w.header(name, true, false, cwd); d != nil {
			return d
		}
	}
	// gcc includes it by itself.
	if d := w.header("stdc-predef.h", false, false); d != nil {
		return d
	}
	for _, e := range w.odd {
		if d := w.hit(e, false); d != nil {
			return d
		}
	}
	for _, name := range q.More {
		e, d := w.at(name)
		if d != nil {
			return d
		}
		if e != nil {
			if d := w.hit(e, false); d != nil {
				return d
			}
		}
	}
	return nil
}

// follow follows the includes of the files in the queue, until it is empty.
func (w *walk) follow() *Doubt {
	for {
		for len(w.queue) > 0 {
			e := w.queue[len(w.queue)-1]
			w.queue = w.queue[:len(w.queue)-1]
			if d := w.include(e); d != nil {
				return d
			}
		}
		if d := w.macros(); d != nil {
			return d
		}
		if d := w.ask(); d != nil {
			return d
		}
		if len(w.queue) == 0 {
			return w.t.settle() // including files that are not text
		}
	}
}

// include follows everything that the text of e names.
func (w *walk) include(e *entry) *Doubt {
	if d := w.t.loaded(e.file); d != nil {
		return d
	}
	x := e.file.text
	if x == nil {
		w.noticed(DoubtSize, e.path())
		w.timed = true
		return nil
	}
	if x.doubt != "" {
		w.noticed(x.doubt, e.path())
	}
	if x.escaped && !w.q.GCC {
		w.noticed(DoubtSpelling, e.path()) // with -fms-extensions clang takes it for a slash
	}
	w.timed = w.timed || x.timed
	w.blurred = w.blurred || x.system || x.unsure || len(x.lines) > 0
	for c, used := range x.clocks {
		if used && !w.q.Clock[c] {
			w.noticed(DoubtClock, e.path())
			w.timed = true
		}
	}
	w.unsure = w.unsure || x.unsure
	from := w.from(e)
	for _, name := range x.aliases {
		w.alias(name)
	}
	w.texts, w.readers = append(w.texts, x), append(w.readers, e)
	for _, i := range x.macros {
		w.named = append(w.named, macro{i, from, e})
	}
	source := len(w.hits) > 0 && e == w.hits[0]
	w.nested = !source
	defer w.directives(e)()
	for _, i := range x.includes {
		if source && w.q.GCC {
			if d := w.precompiled(e.dir, i.Name, i.Quoted); d != nil {
				return d
			}
		}
		if d := w.header(i.Name, i.Quoted, i.Next, from...); d != nil {
			return d
		}
	}
	if w.q.Units {
		if d := w.imports(x, e, from); d != nil {
			return d
		}
	}
	if d := w.probes(from, x.asked); d != nil {
		return d
	}
	w.directive = false
	for _, a := range x.assembly {
		w.tried(kindAssembly)
		if d := w.assembly(a); d != nil {
			return d
		}
	}
	for _, name := range x.lines {
		w.tried(kindLine)
		w.absolute = w.absolute || strings.HasPrefix(name, "/")
		if d := w.line(name); d != nil {
			return d
		}
	}
	return nil
}

// from returns the directories that a header included by e may be beside. A header that is a link is in two; which one
// counts depends on the compiler.
func (w *walk) from(e *entry) []*dir {
	dirs := []*dir{e.dir}
	if e.isLink() {
		if d := w.t.dirAt(e.leads.real[:max(1, strings.LastIndexByte(e.leads.real, '/'))]); d != e.dir {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// maxMarks bounds the files that are included for the sake of messages alone.
const maxMarks = 64

// line records a file that messages may quote.
func (w *walk) line(name string) *Doubt {
	e, d := w.at(name)
	if d != nil || e == nil {
		return nil // it is not read, whatever it is
	}
	if _, known := w.seen[e]; known {
		w.found(e)
		return nil
	}
	if w.marks++; w.marks > maxMarks || e.target().Size > w.t.o.MaxFile {
		w.unsure = true
		return nil
	}
	return w.hit(e, false)
}

// assembly records what the assembler reads, wherever it may find it.
func (w *walk) assembly(a assembly) *Doubt {
	dirs := append([]*dir{w.t.dirAt(w.q.Cwd)}, w.search.user...)
	for _, name := range w.q.AsmDirs {
		dirs = append(dirs, w.t.dirAt(trimSlash(w.abs(name))))
	}
	if a.name[0] == '/' {
		return w.first(nil, a.name)
	}
	for _, dir := range dirs {
		if d := w.first(dir, a.name); d != nil {
			return d
		}
	}
	return nil
}

// at returns the file name, as seen from the working directory, or nil if it does not exist.
func (w *walk) at(name string) (*entry, *Doubt) { return readable(w.lookUp(nil, w.abs(name))) }

// find returns the file name, as seen from a directory, or nil if it does not exist.
func (w *walk) find(from *dir, name string) (*entry, *Doubt) { return readable(w.lookUp(from, name)) }

// readable returns e if a compiler would read it, else nil.
func readable(e *entry, d *Doubt) (*entry, *Doubt) {
	switch {
	case d != nil || e == nil || e.kind == isAbsent || e.kind == isDir:
		return nil, d
	case e.kind == isOther && e.target().Is(unix.S_IFIFO):
		return nil, &Doubt{Why: DoubtPipe, Name: e.path()}
	case e.kind == isOther:
		return nil, &Doubt{Why: DoubtFile, Name: e.path()}
	}
	return e, nil
}

// maxName bounds a name, in bytes: longer ones are up to the kernel.
const maxName = 4000

// lookUp returns the entry for name in at, or for an absolute name if at is nil. It returns nil if the
// name's directory does not exist.
func (w *walk) lookUp(at *dir, name string) (*entry, *Doubt) {
	t := w.t
	if len(name) > maxName {
		return nil, &Doubt{Why: DoubtFile, Name: name[:64] + "..."}
	}
	if at == nil && !sameForAll(name) {
		return nil, &Doubt{Why: DoubtPaths, Name: name} // this process would find another file
	}
	if at == nil {
		i := strings.LastIndexByte(name, '/')
		at, name = t.dirAt(trimSlash(name[:i])), name[i+1:]
	}
	for {
		i := strings.IndexByte(name, '/')
		if i < 0 {
			break
		}
		switch part := name[:i]; part {
		case "", ".", "..": // leave that to the kernel
			k := strings.LastIndexByte(name, '/')
			at, name = t.dirAt(at.path+"/"+name[:k]), name[k+1:]
		default:
			if d := t.check(at); d != nil || !at.there {
				return nil, d
			}
			if e := t.entry(at, part); e.kind == isAbsent || e.kind == isFile {
				return nil, nil // it needs no record
			}
			at, name = t.sub(at, part), name[i+1:]
		}
	}
	if name == "" || name == "." || name == ".." {
		return nil, nil // a directory
	}
	if d := t.check(at); d != nil {
		return nil, d
	}
	if !at.there {
		return nil, nil
	}
	return t.entry(at, name), nil
}

// hit adds a file to the set; with text it is followed.
func (w *walk) hit(e *entry, text bool) *Doubt {
	w.finds++
	w.found(e)
	if _, known := w.seen[e]; !known {
		if e.dir.way.system {
			if w.told { // the answer does not cover a different location
				return &Doubt{Why: DoubtPaths, Name: e.path()}
			}
			w.noticed(DoubtPaths, e.path())
		}
		if (e.file == nil || e.file.void) && w.over(e) {
			return again
		}
		if d := w.t.load(e); d != nil {
			return d
		}
		w.seen[e] = struct{}{}
		w.hits = append(w.hits, e)
		if len(w.hits) > w.t.o.MaxFiles {
			return &Doubt{Why: DoubtMany, Name: w.q.Source}
		}
		if w.q.Beside != "" && e.base != w.q.Beside {
			if d := w.beside(e); d != nil {
				return d
			}
		}
	}
	if !text {
		return nil
	}
	real := e.dir.way.real + "/" + e.base
	if _, known := w.read[real]; known {
		return nil // under another spelling it includes the same files
	}
	w.read[real] = struct{}{}
	w.queue = append(w.queue, e)
	return nil
}
