package inputs

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// A Set has more files than its compile reads, for example those behind conditions that do not hold. The contents
// of such a file cannot affect the result. Its existence can, and so can everything that a compiler sees of a
// file without reading it.
//
// Which files were not read is known afterwards, if the compile has written rules for make: they name all
// that the preprocessor reads. They do not name what others read: the assembler (.incbin), messages that
// quote a file (#line), the compiler where an option names a file. And gcc does not name a header that it
// took for another one with the same content (#pragma once). So only files count as unread that
//
//   - nothing but directives of the preprocessor name: #include and its like, and __has_include;
//   - no other file of the Set is a twin of;
//   - are neither in the directories of system headers nor below them.
//
// The last ones may be left out of rules for make (-MMD), and they change seldom.

// Unread says of which files of a Set the content was not read: a bit for each of Files, the lowest of the
// first byte first.
type Unread []byte

// Has reports whether it includes Files[i].
func (u Unread) Has(i int) bool { return u[i/8]&(1<<(i%8)) != 0 }

func (u Unread) set(i int, on bool) {
	if on {
		u[i/8] |= 1 << (i % 8)
	} else {
		u[i/8] &^= 1 << (i % 8)
	}
}

// empty reports whether it includes no file.
func (u Unread) empty() bool {
	for _, b := range u {
		if b != 0 {
			return false
		}
	}
	return true
}

// directives marks what is found until the returned function is called as named by directives
// in e, which the preprocessor reads.
func (w *walk) directives(e *entry) (end func()) {
	w.directive, w.reader = true, nil
	if w.system(e) {
		w.reader = e.dir
	}
	return func() { w.directive, w.reader = false, nil }
}

// found notes how e was found.
func (w *walk) found(e *entry) {
	if !w.directive {
		w.fixed[e] = struct{}{}
	}
	// What a system header includes counts as one, wherever it is.
	if w.reader != nil && w.reader != e.dir && !w.blurred && !w.system(e) {
		w.blurred = true
	}
}

// system reports whether e is in a directory of system headers, or below one.
func (w *walk) system(e *entry) bool {
	d := e.dir
	if d.way.headers {
		return true
	}
	for _, list := range w.search.system {
		if below(d.path, list.path) || below(d.way.real, list.way.real) {
			return true
		}
	}
	return false
}

// below reports whether the directory name is dir, or below it.
func below(name, dir string) bool {
	return strings.HasPrefix(name, dir) && (len(name) == len(dir) || name[len(dir)] == '/')
}

// spared returns which files of s, whose hits are w's, the preprocessor alone may read; nil: none.
func (w *walk) spared(s *Set) Unread {
	if w.told || s.Unsure || s.Timed {
		return nil
	}
	fixed := make(map[string]bool, len(w.fixed))
	for _, e := range w.hits {
		_, is := w.fixed[e]
		if is || w.system(e) {
			fixed[e.real()] = true
		}
	}
	u := make(Unread, (len(s.Files)+7)/8)
	for i, f := range s.Files {
		if i > 0 && !f.System && !fixed[f.Name] {
			u.set(i, true)
		}
	}
	if u.empty() {
		return nil
	}
	return u
}

// Spare reports whether there may be files in s that its compile does not read.
func (s *Set) Spare() bool { return s.spare != nil }

// Unread returns which files a compile of s in the directory cwd has not read, by the rules for make that it
// has written. all is set if these name system headers as well.
//
// ok is false if there are no such files, or if it is not certain which.
func (s *Set) Unread(cwd string, rules []byte, all bool) (u Unread, ok bool) {
	if s.spare == nil || s.blurred && !all {
		return nil, false
	}
	names, err := sources.ParseRules(rules)
	if err != nil || len(names) == 0 {
		return nil, false
	}
	index := make(map[string]int, len(s.Files))
	for i, f := range s.Files {
		if strings.ContainsAny(f.Name, "\n\\") {
			return nil, false // a rule cannot name it
		}
		index[f.Name] = i
	}
	links := make(map[string]string, len(s.Links))
	for _, l := range s.Links {
		links[l.Name] = l.Target
	}
	u = append(Unread(nil), s.spare...)
	for k, name := range names {
		i, known := index[resolve(cwd, name, links)]
		if !known || k == 0 && i != 0 {
			return nil, false
		}
		u.set(i, false)
	}
	alike := s.twins()
	for i, f := range s.Files {
		if u.Has(i) && alike[f.bare] > 1 {
			u.set(i, false)
		}
	}
	return u, !u.empty()
}

// twins counts the files by their content, as gcc compares it.
func (s *Set) twins() map[unit.ContentID]int {
	n := make(map[unit.ContentID]int, len(s.Files))
	for _, f := range s.Files {
		n[f.bare]++
	}
	return n
}

// resolve returns what a name leads to, seen from cwd, where there are no other symbolic links than links.
func resolve(cwd, name string, links map[string]string) string {
	if name, _ = unit.Shared(name); !strings.HasPrefix(name, "/") {
		name = cwd + "/" + name
	}
	at := ""
	for word := range strings.SplitSeq(name, "/") {
		switch word {
		case "", ".":
			continue
		case "..":
			at = at[:max(0, strings.LastIndexByte(at, '/'))]
			continue
		}
		at += "/" + word
		if target, is := links[at]; is {
			at = target
		}
	}
	return at
}

// SumSpare returns a sum for which all compiles are equal whose Sets differ in nothing but the contents of
// files that they may not have read. It leaves out more: no content counts except the source's.
func (s *Set) SumSpare() [32]byte {
	s.spareOnce.Do(func() {
		s.spareSum = s.sumOf(func(name string) string { return name }, func(i int) bool { return i > 0 })
	})
	return s.spareSum
}

// SumRead returns the sum of s without the contents of the files in u, which a compile of another Set with
// the same SumSpare has not read. ok is false if u is not of such a Set, or the compile of s could read one
// of these files nevertheless.
//
// Equal sums mean equal results. A compile that sees the same names, and has read the same contents up to
// some moment, does the same next. So it reads none of the files in u either, unless it compares the
// content of a file with that of others: then twins count, and u has none.
func (s *Set) SumRead(u Unread) (sum [32]byte, ok bool) {
	if len(u) != (len(s.Files)+7)/8 || len(s.spare) != len(u) {
		return sum, false
	}
	alike := s.twins()
	for i := range len(u) * 8 {
		if u.Has(i) && (i >= len(s.Files) || !s.spare.Has(i) || alike[s.Files[i].bare] > 1) {
			return sum, false
		}
	}
	return s.sumOf(func(name string) string { return name }, u.Has), true
}
