// Package parcel describes a toolchain by content: every file that running it needs, under the name that it has at home.
// With that, a host that lacks a compiler can be given exactly this one, whatever else is installed there.
//
//	Make    describes a toolchain of this machine
//	Parcel  is the description; its ID stands for all names and contents
//	Root    is a directory in which a parcel is laid out, to be shown as the root of a private tree
//
// A parcel comes from a peer and is not trusted: Parse accepts names that lead nowhere but below the Root, and files are
// known by their SHA-256 alone.
package parcel

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Parcel describes a toolchain. It does not change.
type Parcel struct {
	// Toolchain is what jobs know of it. Its ID is that of the parcel, not the one by which machines that have the
	// toolchain installed compare it: that says nothing of files that are never looked at on them.
	toolchain.Toolchain
	Entries []Entry // by ascending name; each name once

	Needs Needs // known of what Make has described; not part of the encoding
}

// Entry is one file, or a symbolic link. Directories are those that lead to an entry.
type Entry struct {
	Name   string            // absolute
	Target string            // of a link, as it is; empty: it is a file
	Exec   bool              // a file may be executed
	Len    uint64            // bytes of a file
	Sum    [sha256.Size]byte // SHA-256 of its content
}

// Link reports whether e is a symbolic link.
func (e *Entry) Link() bool { return e.Target != "" }

// Bounds of a parcel. A clang with its libraries has 250 MB in 40 files, and a few hundred catalogues and conversions.
const (
	// MaxEncoded is the largest encoding that Parse reads, in bytes.
	MaxEncoded = 8 << 20
	// MaxFile is the largest file, in bytes.
	MaxFile    = 1 << 30
	maxLen     = 4 << 30 // of all files, in bytes
	maxEntries = 1 << 15
	maxName    = 1 << 10 // bytes of a name or target
	maxPart    = 255     // bytes of a part of a name, as file systems have it
	maxWord    = 64      // bytes of a version or target
)

// ErrMalformed is wrapped by the errors of Parse.
var ErrMalformed = errors.New("malformed parcel")

// version is the first thing in the encoding of a parcel. It changes with it.
const version = "rdistcc parcel 1"

// Append appends the encoding of p to b.
func (p *Parcel) Append(b []byte) []byte {
	b = wire.AppendString(b, version)
	for _, s := range []string{p.Exec, p.Path, p.Family, p.Version, p.Target} {
		b = wire.AppendString(b, s)
	}
	b = wire.AppendUint32(b, uint32(p.Major))
	b = wire.AppendStrings(b, p.Files)
	b = wire.AppendStrings(b, p.Dirs)
	b = wire.AppendUint32(b, uint32(len(p.Entries)))
	for i := range p.Entries {
		e := &p.Entries[i]
		b = wire.AppendString(b, e.Name)
		b = wire.AppendString(b, e.Target)
		if !e.Link() {
			b = wire.AppendBool(b, e.Exec)
			b = wire.AppendUint64(b, e.Len)
			b = append(b, e.Sum[:]...)
		}
	}
	return b
}

// identify sets p's ID.
func (p *Parcel) identify(encoded []byte) {
	sum := sha256.Sum256(encoded)
	p.ID = unit.ToolchainID(sum[:len(p.ID)])
}

// Parse reads the encoding of a parcel. Its errors wrap ErrMalformed and say what is wrong.
func Parse(b []byte) (*Parcel, error) {
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	r := wire.Reader[[]byte]{Rest: b}
	p := &Parcel{}
	if v := r.Text(); v != version {
		return nil, fmt.Errorf("%w: it is of another version", ErrMalformed)
	}
	p.Exec, p.Path, p.Family, p.Version, p.Target = r.Text(), r.Text(), r.Text(), r.Text(), r.Text()
	p.Major = int(r.Uint32())
	p.Files, p.Dirs = r.Texts(), r.Texts()
	p.Entries = make([]Entry, 0, r.Count(8))
	for range cap(p.Entries) {
		e := Entry{Name: r.Text(), Target: r.Text()}
		if !e.Link() {
			e.Exec, e.Len = r.Bool(), r.Uint64()
			copy(e.Sum[:], r.Take(len(e.Sum)))
		}
		p.Entries = append(p.Entries, e)
	}
	what := r.End()
	if what == "" {
		what = p.fault()
	}
	if what != "" {
		return nil, fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	p.identify(b)
	return p, nil
}

// fault returns what is wrong with p, or "".
func (p *Parcel) fault() string {
	switch {
	case p.Family != "gcc" && p.Family != "clang" && p.Family != toolchain.Tidy:
		return "neither gcc nor clang nor clang-tidy"
	case !word(p.Version) || !word(p.Target) || p.Major <= 0 || p.Major > 1000:
		return "a version or target that no compiler has"
	case len(p.Entries) == 0 || len(p.Entries) > maxEntries:
		return fmt.Sprintf("%d entries", len(p.Entries))
	}
	n := uint64(0)
	for i := range p.Entries {
		e := &p.Entries[i]
		switch {
		case !allowed(e.Name):
			return fmt.Sprintf("the name %.80q", e.Name)
		case i > 0 && e.Name <= p.Entries[i-1].Name:
			return fmt.Sprintf("%.80q is not in order", e.Name)
		case len(e.Target) > maxName || strings.ContainsRune(e.Target, 0):
			return fmt.Sprintf("the link %.80q", e.Name)
		case e.Len > MaxFile:
			return fmt.Sprintf("%.80q has %d bytes", e.Name, e.Len)
		}
		n += e.Len
	}
	if n > maxLen {
		return fmt.Sprintf("%d bytes", n)
	}
	t, dirs := p.tree(), map[string]bool{}
	for i := range p.Entries {
		for dir := path.Dir(p.Entries[i].Name); dir != "/" && !dirs[dir]; dir = path.Dir(dir) {
			if t[dir] != nil {
				return fmt.Sprintf("%.80q is a file or link, and a directory", dir)
			}
			dirs[dir] = true
		}
	}
	if !slices.IsSorted(p.Files) || !slices.IsSorted(p.Dirs) {
		return "the names to show are not in order"
	}
	for _, name := range append([]string{p.Exec, p.Path}, p.Files...) {
		if e := t.find(name); e == nil {
			return fmt.Sprintf("%.80q is no file of it", name)
		}
	}
	for _, name := range p.Dirs {
		// It is shown as it is laid out, so it must be one of those that entries are in, wherever links lead.
		if at, _, err := t.follow(name); !allowed(name) || err != nil || !dirs[at] {
			return fmt.Sprintf("the directory %.80q", name)
		}
	}
	return ""
}

func word(s string) bool {
	ok := func(c rune) bool {
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("._-+", c)
	}
	return s != "" && len(s) <= maxWord && strings.IndexFunc(s, func(c rune) bool { return !ok(c) }) < 0
}

// reserved lists the directories that every private tree has of its own.
var reserved = []string{"dev", "proc", "sys", "tmp", "run", ".host"}

// allowed reports whether a parcel may have a file of this name.
func allowed(name string) bool {
	if len(name) > maxName || len(name) < 2 || name[0] != '/' || path.Clean(name) != name || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return false
	}
	parts := strings.Split(name[1:], "/")
	return !slices.Contains(reserved, parts[0]) && !slices.ContainsFunc(parts, func(c string) bool { return len(c) > maxPart })
}

// tree has the entries by name.
type tree map[string]*Entry

func (p *Parcel) tree() tree {
	t := make(tree, len(p.Entries))
	for i := range p.Entries {
		t[p.Entries[i].Name] = &p.Entries[i]
	}
	return t
}

// look returns what is at a canonical name.
func (t tree) look(at string) (target string, file bool, err error) {
	e := t[at]
	if e == nil {
		return "", false, nil // a directory, if anything
	}
	return e.Target, !e.Link(), nil
}

// find returns the file that a name leads to, through links of the parcel; nil: none.
func (t tree) find(name string) *Entry {
	if at, file, err := t.follow(name); err == nil && file {
		return t[at]
	}
	return nil
}

func (t tree) follow(name string) (at string, file bool, err error) {
	if !path.IsAbs(name) || len(name) > maxName {
		return "", false, syscall.EINVAL
	}
	return follow(name, t.look)
}

// Contents returns the files of p that differ in content: one Entry for each sum, by ascending sum. n is how many bytes
// they have together.
func (p *Parcel) Contents() (list []*Entry, n uint64) {
	for i := range p.Entries {
		if e := &p.Entries[i]; !e.Link() {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(x, y *Entry) int { return slices.Compare(x.Sum[:], y.Sum[:]) })
	list = slices.CompactFunc(list, func(x, y *Entry) bool { return x.Sum == y.Sum })
	for _, e := range list {
		n += e.Len
	}
	return list, n
}

// Each entry of a parcel costs a host entryCost bytes beside the contents, for its name on the disk and in memory, and a part of its
// content: a file has 65000 names at most on ext4, and another copy is made then.
const (
	entryCost  = 4 << 10
	shareParts = 1 << 14
)

// Room returns how many bytes p takes of what a host has for toolchains: those of its contents, and what its names cost beside them.
func (p *Parcel) Room() (contents, names uint64) {
	_, contents = p.Contents()
	for i := range p.Entries {
		names += entryCost + p.Entries[i].Len/shareParts
	}
	return contents, names
}
