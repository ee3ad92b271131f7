package job

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Append appends the encoding of b to dst. It panics on more than MaxOutputs outputs; the caller must
// refuse a result longer than MaxBodyLen.
func (b *Body) Append(dst []byte) []byte {
	dst = wire.AppendString(dst, b.Argv0)
	dst = wire.AppendString(dst, b.Compiler)
	dst = wire.AppendStrings(dst, b.Args)
	dst = wire.AppendUint32(dst, b.Front)
	dst = wire.AppendString(dst, b.Language)
	dst = wire.AppendString(dst, b.Name)
	dst = wire.AppendString(dst, b.Cwd)
	dst = wire.AppendStrings(dst, b.Env)
	dst = appendCount(dst, len(b.Outputs), MaxOutputs)
	for i := range b.Outputs {
		o := &b.Outputs[i]
		dst = wire.AppendBool(append(dst, byte(o.Kind)), o.Optional)
		dst = wire.AppendString(dst, o.Name)
	}
	dst = wire.AppendUint32(dst, uint32(len(b.Files)))
	for i := range b.Files {
		f := &b.Files[i]
		dst = wire.AppendString(dst, f.Name)
		dst = wire.AppendUint64(dst, f.Len)
		dst = wire.AppendUint64(dst, uint64(f.MTime))
		dst = wire.AppendBool(wire.AppendUint32(dst, f.Same), f.Exec)
	}
	dst = wire.AppendStrings(dst, b.Dirs)
	dst = appendLinks(dst, b.Links)
	dst = wire.AppendUint32(dst, uint32(len(b.Blobs)))
	for i := range b.Blobs {
		dst = append(dst, b.Blobs[i].ID[:]...)
		dst = wire.AppendBool(wire.AppendUint64(dst, b.Blobs[i].Len), b.Blobs[i].Abridged)
	}
	dst = wire.AppendUint32(dst, uint32(len(b.Lists)))
	for i := range b.Lists {
		dst = append(dst, b.Lists[i][:]...)
	}
	dst = appendCount(dst, len(b.Images), MaxImages)
	for i := range b.Images {
		dst = wire.AppendString(dst, string(b.Images[i].Append(nil)))
	}
	return dst
}

// ParseBody decodes the whole of b and keeps no part of it. In the result, strings hold no NUL, Name
// is a plain file name, and every list is no longer than b can hold. The sum of the lengths of files
// and blobs does not wrap, and each Same of a file refers to an earlier one.
func ParseBody(b []byte) (*Body, error) {
	if len(b) == 0 || len(b) > MaxBodyLen {
		return nil, malformed("body length")
	}
	// One copy, of which all strings are parts, as the slot is reused.
	r := newBodyReader(b)
	v := r.body()
	r.images(v)
	if r.End() == "" && !plainName(v.Name) {
		r.Fail("source name is not a plain file name")
	}
	if r.Fault != "" {
		return nil, malformed(r.Fault)
	}
	return v, nil
}

// images reads the Images of v, which have none themselves.
func (r *bodyReader) images(v *Body) {
	n := int(r.Uint8())
	if n > MaxImages || n > 0 && !v.HasFiles() {
		r.Fail("too many precompiled headers")
		return
	}
	for range n {
		in := bodyReader{wire.Reader[string]{Rest: r.Text()}}
		x := in.body()
		switch {
		case in.Uint8() != 0, len(x.Files)+len(x.Dirs)+len(x.Links)+len(x.Blobs) > 0, len(x.Lists) != 1, len(x.Outputs) == 0:
			in.Fail("precompiled header that is not made of one list")
		case in.End() == "" && !plainName(x.Name):
			in.Fail("source name is not a plain file name")
		}
		if in.Fault != "" {
			r.Fail(in.Fault)
			return
		}
		v.Images = append(v.Images, *x)
	}
}

// body reads everything but Images.
func (r *bodyReader) body() *Body {
	var v Body
	v.Argv0 = r.clean()
	v.Compiler = r.clean()
	v.Args = r.cleanList()
	if v.Front = r.Uint32(); int64(v.Front) > int64(len(v.Args)) {
		r.Fail("more words in front than there are")
	}
	v.Language = r.clean()
	v.Name = r.clean()
	v.Cwd = r.clean()
	v.Env = r.cleanList()
	n := int(r.Uint8())
	if n > MaxOutputs {
		r.Fail("list too long")
		n = 0
	}
	for range n {
		k := unit.OutputKind(r.Uint8())
		if !k.Known() {
			r.Fail("unknown kind of output")
		}
		o := unit.Output{Kind: k, Optional: r.Bool()}
		o.Name = r.clean()
		v.Outputs = append(v.Outputs, o)
	}
	r.files(&v)
	return &v
}

// files reads the fields of the sources form.
func (r *bodyReader) files(v *Body) {
	var sum lengths
	if n := r.Count(4 + 8 + 8 + 4 + 1); n > 0 {
		v.Files = make([]unit.File, n)
	}
	for i := range v.Files {
		f := &v.Files[i]
		f.Name = r.clean()
		f.Len = r.Uint64()
		f.MTime = int64(r.Uint64())
		f.Same = r.Uint32()
		f.Exec = r.Bool()
		r.fits(&sum, i, f.Name, f.Len, f.Same)
	}
	v.Dirs = r.cleanList()
	v.Links = r.links()
	if n := r.Count(len(unit.ContentID{}) + 8 + 1); n > 0 {
		v.Blobs = make([]Blob, n)
	}
	for i := range v.Blobs {
		b := &v.Blobs[i]
		b.ID, b.Len, b.Abridged = r.contentID(), r.Uint64(), r.Bool()
		if b.Len == 0 {
			r.Fail("empty blob")
		}
		r.add(&sum, b.Len)
	}
	n := r.Count(len(unit.ContentID{}))
	if n > MaxLists {
		r.Fail("too many lists of files")
		n = 0
	}
	for range n {
		v.Lists = append(v.Lists, r.contentID())
	}
	for i, id := range v.Lists {
		if slices.Contains(v.Lists[:i], id) {
			r.Fail("list of files that is named twice")
		}
	}
	if !v.HasFiles() && len(v.Dirs)+len(v.Links)+len(v.Blobs) > 0 {
		r.Fail("directories, links or blobs without files")
	}
}

// lengths is a sum of bytes.
type lengths uint64

// add adds n bytes to a sum.
func (r *bodyReader) add(sum *lengths, n uint64) {
	if *sum += lengths(n); *sum < lengths(n) {
		r.Fail("lengths wrap")
	}
}

// fits checks the fields that files of a Body and of a List share. i is the file's index.
func (r *bodyReader) fits(sum *lengths, i int, name string, n uint64, same uint32) {
	r.add(sum, n)
	if int64(same) > int64(i) || same != 0 && n != 0 {
		r.Fail("file is the same as none before it")
	}
	if name == "" {
		r.Fail("file without a name")
	}
}

func (r *bodyReader) links() []unit.Link {
	n := r.Count(4 + 4)
	if n == 0 {
		return nil
	}
	list := make([]unit.Link, n)
	for i := range list {
		l := &list[i]
		l.Name, l.Target = r.clean(), r.clean()
		if !strings.HasPrefix(l.Name, "/") || !strings.HasPrefix(l.Target, "/") {
			r.Fail("link is not absolute")
		}
	}
	return list
}

func (r *bodyReader) contentID() (id unit.ContentID) {
	copy(id[:], r.Take(len(id)))
	return id
}

// plainName reports whether s can name a file in a directory of ours.
func plainName(s string) bool {
	return s != "" && len(s) <= 255 && s != "." && s != ".." && strings.IndexByte(s, '/') < 0
}

// bodyReader reads from one string, of which all results are parts.
type bodyReader struct{ wire.Reader[string] }

func newBodyReader(b []byte) *bodyReader { return &bodyReader{wire.Reader[string]{Rest: string(b)}} }

// clean reads a string without NUL.
func (r *bodyReader) clean() string {
	s := r.Text()
	if strings.IndexByte(s, 0) >= 0 {
		r.Fail("NUL in a string")
		return ""
	}
	return s
}

func (r *bodyReader) cleanList() []string {
	n := r.Count(4)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.clean()
	}
	return list
}

func appendLinks(dst []byte, list []unit.Link) []byte {
	dst = wire.AppendUint32(dst, uint32(len(list)))
	for i := range list {
		dst = wire.AppendString(dst, list[i].Name)
		dst = wire.AppendString(dst, list[i].Target)
	}
	return dst
}
