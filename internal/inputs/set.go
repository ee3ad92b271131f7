package inputs

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Set holds what one compile may read. It does not change.
type Set struct {
	Files []*Input // the source first, then sorted by name; each name once
	Dirs  []string // must exist, even if no file of Files is in them; absolute
	Links []unit.Link
	Len   uint64 // of all contents, in bytes
	// Unsure means that a message may quote a file that is not in the Set.
	Unsure bool
	Memo   bool // the compiler was asked at some time
	// Images are precompiled headers that the compile may use in place of files, absolute, without links. They are not
	// among Files, and their content is not known.
	Images []string
	// Lacking are names of headers that a compile may look for and cannot find, as its texts and words have them, sorted. It is
	// known only of what no compiler has listed.
	Lacking []string
	// Timed means that what the compile writes may depend on when it runs, or on the times of its files.
	Timed bool
	Kinds Kinds // how the texts name files
	// Relative means that no line directive in the texts names a file absolutely. Otherwise one may.
	Relative bool

	base   *Set   // the set on whose list this one's is based, or nil
	delta         // from base
	linked []bool // files other than the source that share an inode with another one; nil: none

	listOnce sync.Once
	listID   unit.ContentID
	listLen  int

	changed []string // see Changed
	changes int

	sumOnce sync.Once
	sum     [sha256.Size]byte
	below   atomic.Pointer[sumBelow] // the last one

	spare     Unread // files that only the preprocessor reads, or does not; nil: none
	blurred   bool   // it is not certain which headers a compiler counts as the system's
	spareOnce sync.Once
	spareSum  [sha256.Size]byte
}

// Base returns the Set whose list is the base of this one's, or nil. Such a Set has no Base itself.
func (s *Set) Base() *Set { return s.base }

// List returns the list of all files except the source, with Dirs and Links: its content ID, and its length
// in bytes. A recipient needs that of Base as well.
func (s *Set) List() (id unit.ContentID, n int) {
	s.listOnce.Do(func() {
		b := s.AppendList(nil)
		s.listID, s.listLen = sha256.Sum256(b), len(b)
	})
	return s.listID, s.listLen
}

// AppendList appends that list to b (job.List).
func (s *Set) AppendList(b []byte) []byte { return s.list().Append(b) }

// AppendAbridged appends that list as it is for hosts that have the system's headers themselves, and
// returns for how many of them the content is left out.
func (s *Set) AppendAbridged(b []byte) ([]byte, int) {
	l := s.list()
	n := l.Abridge()
	return l.Append(b), n
}

// Changed returns how s differs from the command's previous Set: names of files that have changed, appeared or gone.
// names has some of them, n is their number; it is 0 if no other Set of the command is known.
func (s *Set) Changed() (names []string, n int) { return s.changed, s.changes }

// mostChanged is how many names Changed returns at most.
const mostChanged = 3

// compare finds out in what s differs from old.
func (s *Set) compare(old *Set) {
	note := func(name string) {
		if s.changes++; len(s.changed) < mostChanged {
			s.changed = append(s.changed, name)
		}
	}
	now, then := s.Files, old.Files
	if now[0].ID != then[0].ID || now[0].Name != then[0].Name {
		note(now[0].Name)
	}
	for now, then = now[1:], then[1:]; len(now)+len(then) > 0; {
		switch {
		case len(then) == 0 || len(now) > 0 && now[0].Name < then[0].Name:
			note(now[0].Name)
			now = now[1:]
		case len(now) == 0 || then[0].Name < now[0].Name:
			note(then[0].Name)
			then = then[1:]
		default:
			if now[0] != then[0] && (now[0].ID != then[0].ID || now[0].Exec != then[0].Exec) {
				note(now[0].Name)
			}
			now, then = now[1:], then[1:]
		}
	}
}

// Sum returns the sum over everything in the Set that a compile can see (resultcache.Inputs). If Timed is set, a
// compile may depend on more.
func (s *Set) Sum() [sha256.Size]byte {
	s.sumOnce.Do(func() { s.sum = s.sumOf(func(name string) string { return name }, func(int) bool { return false }) })
	return s.sum
}

// SumBelow returns the same sum for a Set whose names are what hide returns for them. hide must be injective, and the same for
// each base.
func (s *Set) SumBelow(base string, hide func(name string) string) [sha256.Size]byte {
	if last := s.below.Load(); last != nil && last.base == base {
		return last.sum
	}
	sum := s.sumOf(hide, func(int) bool { return false })
	s.below.Store(&sumBelow{base, sum})
	return sum
}

// sumBelow is a sum by SumBelow.
type sumBelow struct {
	base string
	sum  [sha256.Size]byte
}

// sumOf returns the sum of s with the names that hide returns for its own, and without the contents of the files with
// the indices that skip returns true for.
func (s *Set) sumOf(hide func(string) string, skip func(i int) bool) [sha256.Size]byte {
	v := resultcache.Inputs{Files: make([]resultcache.Input, len(s.Files)), Dirs: make([]string, len(s.Dirs)), Links: make([]unit.Link, len(s.Links))}
	for i, f := range s.Files {
		v.Files[i] = f.shown()
		v.Files[i].Name, v.Files[i].Unread = hide(f.Name), skip(i)
	}
	for i, d := range s.Dirs {
		v.Dirs[i] = hide(d)
	}
	for i, l := range s.Links {
		v.Links[i] = unit.Link{Name: hide(l.Name), Target: hide(l.Target)}
	}
	return v.Sum()
}

func (s *Set) list() *job.List {
	l := job.List{Dirs: s.Dirs, Links: s.Links}
	files := s.Files[1:]
	if s.base != nil {
		l.Base, _ = s.base.List()
		l.Without, files = s.without, s.more
	}
	l.Files = make([]job.ListedFile, len(files))
	first := make(map[inode]uint32, len(files))
	for i, f := range files {
		at := inode{f.st.Dev, f.st.Ino}
		l.Files[i] = job.ListedFile{Name: f.Name, MTime: f.MTime, Exec: f.Exec, Same: first[at]}
		if first[at] == 0 {
			first[at] = uint32(i + 1)
			l.Files[i].Len, l.Files[i].Content = f.Len, f.ID
		}
	}
	return &l
}

// Input is a file of a Set. It does not change.
type Input struct {
	Name  string // absolute, without links
	Len   uint64
	MTime int64 // nanoseconds since 1970
	Exec  bool
	// System marks one of the system's headers, which hosts may have themselves (job.IsSystemFile).
	System bool
	ID     unit.ContentID
	bare   unit.ContentID // of the content without a byte order mark
	st     stamp.Stamp
	text   []byte // the content, of a Set by Listed; else nil
}

// shown returns i as it counts for a sum.
func (i *Input) shown() resultcache.Input {
	return resultcache.Input{Name: i.Name, ID: i.ID, Bare: i.bare, MTime: i.MTime, Exec: i.Exec, Inode: resultcache.Inode{Dev: i.st.Dev, Ino: i.st.Ino}}
}

// Append appends the content to buf. It returns ErrChanged if the file is no longer the one of the Set.
func (i *Input) Append(buf []byte) ([]byte, error) {
	if i.text != nil {
		return append(buf, i.text...), nil
	}
	return readFile(i.Name, &i.st, buf)
}

// finish makes the set of what was found.
func (w *walk) finish() *Set {
	s := &Set{Files: make([]*Input, 0, len(w.hits)), Unsure: w.unsure, Timed: w.timed, Kinds: w.kinds | w.wholeKinds(),
		Relative: w.whole && !w.told && len(w.q.Only) == 0 && !w.unsure && !w.absolute}
	if !w.told {
		for name, lacks := range w.lacks {
			if lacks {
				s.Lacking = append(s.Lacking, name)
			}
		}
		slices.Sort(s.Lacking)
	}
	links := make(map[string]bool)
	dirs := make(map[string]bool)
	way := func(d *dir) {
		for _, l := range d.way.links {
			if !sources.SystemLink(l.Name) && !links[l.Name] {
				links[l.Name] = true
				s.Links = append(s.Links, l.Link)
			}
		}
		if !d.way.plain && !dirs[d.path] {
			dirs[d.path] = true
			s.Dirs = append(s.Dirs, d.path)
		}
	}
	way(w.t.dirAt(w.q.Cwd))
	named := make(map[string]bool, len(w.hits))
	held := make([]bool, len(w.search.own)) // which of the compiler's directories have a file of the set
	for _, e := range w.hits {
		if w.only != nil {
			if _, listed := w.only[e.real()]; !listed {
				continue
			}
		}
		way(e.dir)
		real := e.dir.way.real + "/" + e.base
		if e.isLink() {
			if !links[real] {
				links[real] = true
				s.Links = append(s.Links, unit.Link{Name: real, Target: e.leads.real})
			}
			real = e.leads.real
		}
		if named[real] {
			continue
		}
		named[real] = true
		for i, d := range w.search.own {
			held[i] = held[i] || strings.HasPrefix(real, d.way.real+"/")
		}
		if e.input == nil || e.input.Name != real {
			w.t.takes += inputTakes + int64(len(real))
			e.input = &Input{Name: real, Len: uint64(e.target().Size), MTime: e.target().MTime, Exec: e.target().Mode&0o111 != 0, System: unit.IsSystemFile(real), ID: e.file.id, bare: e.file.bare, st: *e.target()}
		}
		s.Files = append(s.Files, e.input)
		s.Len += e.input.Len
	}
	slices.SortFunc(s.Files[1:], func(a, b *Input) int { return cmp.Compare(a.Name, b.Name) })
	user := w.search.user
	switch own := slices.Contains(held, true); {
	case w.q.GCC && len(user) == 0 && !own:
		// gcc says "no include path in which to search" if none of its directories exists.
		user = w.search.own
	case !w.q.GCC && own:
		// Clang's driver searches no directory of a C++ library of which another one does not exist.
		user = slices.Clone(user)
		for i, d := range w.search.own {
			if !held[i] {
				user = append(user, d)
			}
		}
	}
	if w.q.Module {
		user = slices.Concat(user, w.search.own)
		s.Timed = true
	}
	for _, d := range user {
		for _, l := range d.way.links {
			if !sources.SystemLink(l.Name) && !links[l.Name] {
				links[l.Name] = true
				s.Links = append(s.Links, l.Link)
			}
		}
		if !dirs[d.path] {
			dirs[d.path] = true
			s.Dirs = append(s.Dirs, d.path)
		}
	}
	s.spare, s.blurred = w.spared(s), w.blurred
	for _, e := range w.images {
		way(e.dir)
		s.Images = append(s.Images, e.real())
	}
	w.t.relate(s)
	return s
}
