package inputs

import (
	"crypto/sha256"
	"path"
	"strings"

	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// The names that a watched compiler looked up show whether a walk searches as the compiler does. A name that exists here
// must be in the Set or belong to the compiler, or a host would not find it. A name that does not exist must be one whose
// appearance the Table notices.

// Parts are the files and directories that belong to a compiler, with which it is shown everywhere: absolute names.
type Parts struct {
	Files, Dirs []string
	Prefix      []string // directories in which there is nothing but compilers: what is missing there is part of their identity
	Programs    []string // directories in which it looks for programs (PATH), the same for those
	Tested      []string // names that it only tests: TMPDIR and the like
	Libraries   []string // directories of libraries (LD_LIBRARY_PATH, LIBRARY_PATH), the same for what the loader and a link look for
}

// Sought is a name that a compiler has looked up, and that the Table has not thought of.
type Sought struct {
	Name string
	// There is set if it exists, so that a compile of the Set may behave differently. Otherwise, that may be so once the
	// name comes into being.
	There bool
}

// Unthought returns the first of names, absolute and as the compiler of q spelt them, that the Table did not consider when
// it made s, or nil. ok is false if s is no longer what a compile of q may read.
func (t *Table) Unthought(q *Query, s *Set, names []string, p *Parts) (unthought *Sought, ok bool) {
	t.join(t.begun.Load())
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { _ = t.settle() }() // a check may have read files again
	t.begin()
	u := t.units[sha256.Sum256([]byte(q.Key))]
	if u == nil || u.set != s || !t.holds(u) {
		return nil, false
	}
	v := newView(q.Cwd, q.Own, p)
	v.set(t, q, u)
	for _, name := range names {
		if at, found := v.sees(name); !found {
			return at, true
		}
	}
	return nil, true
}

// Unlisted returns the first of names, absolute and as the compiler of a command in the directory cwd spelt them, that is a file here and
// neither among files nor the compiler's, or "". Directories do not count: if one matters, so does a file in it.
func Unlisted(cwd string, files []unit.File, links []unit.Link, names []string, p *Parts) string {
	v := newView(cwd, nil, p)
	for i := range files {
		name := files[i].Name
		if !path.IsAbs(name) {
			name = cwd + "/" + name
		}
		if real := sources.RealPath(name); real != "" {
			v.file(real)
		}
	}
	for _, l := range links {
		v.link[l.Name] = struct{}{}
	}
	for _, name := range names {
		at, found := v.sees(name)
		if found || !at.There || strings.Contains(name, ".gch") || strings.HasSuffix(name, ".pch") { // whether these matter is known
			continue
		}
		if real, kind := walkTo(name, nil); kind == isFile {
			return real
		}
	}
	return ""
}
