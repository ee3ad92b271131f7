package job

import (
	"slices"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// List lists files that jobs see, named by their contents. It is a content itself, which the host keeps
// like any other and which jobs name in Body.Lists. So what a thousand jobs read is described only once.
// Names, Dirs and Links are as in a Body; a relative name is seen from the working directory of the job
// that names the list.
type List struct {
	// Base is the content of another List, whose files belong to this one as well, except those in
	// Without: what two sources read usually differs little. That List has no Base itself, and its Dirs
	// and Links do not count here. Zero means none.
	Base    unit.ContentID
	Without []uint32 // indices of Base's files, ascending
	Files   []ListedFile
	Dirs    []string
	Links   []unit.Link
}

// ListedFile is a file of a List.
type ListedFile struct {
	Name    string
	Len     uint64 // bytes of Content
	MTime   int64  // nanoseconds since 1970
	Same    uint32 // 0, or 1 + the index of an earlier one of Files with the same inode; then Len is 0, and Content zero
	Exec    bool
	Content unit.ContentID
}

// Append appends the encoding of l to dst. One of more than MaxBodyLen bytes cannot be used.
func (l *List) Append(dst []byte) []byte {
	dst = append(dst, l.Base[:]...)
	dst = wire.AppendUint32(dst, uint32(len(l.Without)))
	for _, i := range l.Without {
		dst = wire.AppendUint32(dst, i)
	}
	dst = wire.AppendUint32(dst, uint32(len(l.Files)))
	for i := range l.Files {
		f := &l.Files[i]
		dst = wire.AppendString(dst, f.Name)
		dst = wire.AppendUint64(dst, f.Len)
		dst = wire.AppendUint64(dst, uint64(f.MTime))
		dst = wire.AppendBool(wire.AppendUint32(dst, f.Same), f.Exec)
		dst = append(dst, f.Content[:]...)
	}
	dst = wire.AppendStrings(dst, l.Dirs)
	return appendLinks(dst, l.Links)
}

// Abridge removes the Content of the system's files, and returns how many there are. An all-zero content
// stands for one that the host has to find.
func (l *List) Abridge() (n int) {
	for i := range l.Files {
		if f := &l.Files[i]; f.Len > 0 && unit.IsSystemFile(f.Name) {
			f.Content = unit.ContentID{}
			n++
		}
	}
	return n
}

// ParseList decodes the whole of b, and keeps no part of it. The result is bounded as in ParseBody. The
// error is an ErrMalformed.
func ParseList(b []byte) (*List, error) {
	if len(b) == 0 || len(b) > MaxBodyLen {
		return nil, malformed("list length")
	}
	r := newBodyReader(b)
	v := List{Base: r.contentID()}
	if n := r.Count(4); n > 0 {
		v.Without = make([]uint32, n)
	}
	for i := range v.Without {
		v.Without[i] = r.Uint32()
		if i > 0 && v.Without[i] <= v.Without[i-1] {
			r.Fail("files left out of a base are in no order")
		}
	}
	if v.Base == (unit.ContentID{}) && len(v.Without) > 0 {
		r.Fail("files left out of no base")
	}
	var sum lengths
	if n := r.Count(4 + 8 + 8 + 4 + 1 + len(unit.ContentID{})); n > 0 {
		v.Files = make([]ListedFile, n)
	}
	for i := range v.Files {
		f := &v.Files[i]
		f.Name = r.clean()
		f.Len = r.Uint64()
		f.MTime = int64(r.Uint64())
		f.Same = r.Uint32()
		f.Exec = r.Bool()
		f.Content = r.contentID()
		r.fits(&sum, i, f.Name, f.Len, f.Same)
		if f.Same != 0 && f.Content != (unit.ContentID{}) {
			r.Fail("file is the same as another, and has a content")
		}
	}
	v.Dirs = r.cleanList()
	v.Links = r.links()
	if r.Fault == "" && len(r.Rest) != 0 {
		r.Fail("bytes behind the end")
	}
	if r.Fault != "" {
		return nil, malformed(r.Fault)
	}
	return &v, nil
}

// On returns l, whose Base is the list base, as a list without a base; base's files come first. Its error
// is an ErrMalformed. Neither list is changed.
func (l *List) On(base *List) (*List, error) {
	if base.Base != (unit.ContentID{}) {
		return nil, malformed("the base of a list has a base itself")
	}
	if n := len(l.Without); n > 0 && l.Without[n-1] >= uint32(len(base.Files)) {
		return nil, malformed("left out of a base is a file that it has not")
	}
	v := &List{Files: make([]ListedFile, 0, len(base.Files)-len(l.Without)+len(l.Files)), Dirs: l.Dirs, Links: l.Links}
	without := l.Without
	var place []uint32 // for each of base's files, 1 + its index in v; 0: left out
	if slices.ContainsFunc(base.Files, func(f ListedFile) bool { return f.Same != 0 }) {
		place = make([]uint32, len(base.Files))
	}
	for i, f := range base.Files {
		if len(without) > 0 && without[0] == uint32(i) {
			without = without[1:]
			continue
		}
		if f.Same != 0 {
			if f.Same = place[f.Same-1]; f.Same == 0 {
				return nil, malformed("file is the same as one of a base that is left out")
			}
		}
		v.Files = append(v.Files, f)
		if place != nil {
			place[i] = uint32(len(v.Files))
		}
	}
	first := uint32(len(v.Files))
	for _, f := range l.Files {
		if f.Same != 0 {
			f.Same += first
		}
		v.Files = append(v.Files, f)
	}
	return v, nil
}
