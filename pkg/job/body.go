package job

import (
	"slices"
	"strings"
)

// Append encodes b behind dst. It panics on more than MaxOutputs outputs; the
// caller refuses a result past MaxBodyLen.
func (b *Body) Append(dst []byte) []byte {
	dst = appendString(dst, b.Argv0)
	dst = appendString(dst, b.Compiler)
	dst = appendStrings(dst, b.Args)
	dst = le.AppendUint32(dst, b.Front)
	dst = appendString(dst, b.Language)
	dst = appendString(dst, b.Name)
	dst = appendString(dst, b.Cwd)
	dst = appendStrings(dst, b.Env)
	dst = appendCount(dst, len(b.Outputs), MaxOutputs)
	for i := range b.Outputs {
		o := &b.Outputs[i]
		dst = appendBool(append(dst, byte(o.Kind)), o.Optional)
		dst = appendString(dst, o.Name)
	}
	dst = le.AppendUint32(dst, uint32(len(b.Files)))
	for i := range b.Files {
		f := &b.Files[i]
		dst = appendString(dst, f.Name)
		dst = le.AppendUint64(dst, f.Len)
		dst = le.AppendUint64(dst, uint64(f.MTime))
		dst = appendBool(le.AppendUint32(dst, f.Same), f.Exec)
	}
	dst = appendStrings(dst, b.Dirs)
	dst = appendLinks(dst, b.Links)
	dst = le.AppendUint32(dst, uint32(len(b.Blobs)))
	for i := range b.Blobs {
		dst = append(dst, b.Blobs[i].ID[:]...)
		dst = appendBool(le.AppendUint64(dst, b.Blobs[i].Len), b.Blobs[i].Abridged)
	}
	dst = le.AppendUint32(dst, uint32(len(b.Lists)))
	for i := range b.Lists {
		dst = append(dst, b.Lists[i][:]...)
	}
	return dst
}

// ParseBody decodes the whole of b and keeps no part of it. Strings hold no NUL,
// Name is a plain file name, every list is no longer than b can hold. Of files and blobs,
// the sum of lengths does not wrap; of files, Same names an earlier one.
func ParseBody(b []byte) (*Body, error) {
	if len(b) == 0 || len(b) > MaxBodyLen {
		return nil, malformed("body length")
	}
	// One copy, of which all strings are parts: the slot is used again.
	r := bodyReader{s: string(b)}
	var v Body
	v.Argv0 = r.string()
	v.Compiler = r.string()
	v.Args = r.strings()
	if v.Front = r.u32(); int64(v.Front) > int64(len(v.Args)) {
		r.fail("more words in front than there are")
	}
	v.Language = r.string()
	v.Name = r.string()
	v.Cwd = r.string()
	v.Env = r.strings()
	n := int(r.byte())
	if n > MaxOutputs {
		r.fail("list too long")
		n = 0
	}
	for range n {
		k := OutputKind(r.byte())
		if k >= numOutputKinds {
			r.fail("unknown kind of output")
		}
		o := Output{Kind: k, Optional: r.bool()}
		o.Name = r.string()
		v.Outputs = append(v.Outputs, o)
	}
	r.files(&v)
	if r.what == "" && len(r.s) != 0 {
		r.fail("bytes behind the end")
	}
	if r.what == "" && !plainName(v.Name) {
		r.fail("source name is not a plain file name")
	}
	if r.what != "" {
		return nil, malformed(r.what)
	}
	return &v, nil
}

// files reads what the sources form has.
func (r *bodyReader) files(v *Body) {
	var sum lengths
	if n := r.count(4 + 8 + 8 + 4 + 1); n > 0 {
		v.Files = make([]SourceFile, n)
	}
	for i := range v.Files {
		f := &v.Files[i]
		f.Name = r.string()
		f.Len = r.u64()
		f.MTime = int64(r.u64())
		f.Same = r.u32()
		f.Exec = r.bool()
		r.fits(&sum, i, f.Name, f.Len, f.Same)
	}
	v.Dirs = r.strings()
	v.Links = r.links()
	if n := r.count(len(ContentID{}) + 8 + 1); n > 0 {
		v.Blobs = make([]Blob, n)
	}
	for i := range v.Blobs {
		b := &v.Blobs[i]
		b.ID, b.Len, b.Abridged = r.contentID(), r.u64(), r.bool()
		if b.Len == 0 {
			r.fail("empty blob")
		}
		r.add(&sum, b.Len)
	}
	n := r.count(len(ContentID{}))
	if n > MaxLists {
		r.fail("too many lists of files")
		n = 0
	}
	for range n {
		v.Lists = append(v.Lists, r.contentID())
	}
	for i, id := range v.Lists {
		if slices.Contains(v.Lists[:i], id) {
			r.fail("list of files that is named twice")
		}
	}
	if !v.HasFiles() && len(v.Dirs)+len(v.Links)+len(v.Blobs) > 0 {
		r.fail("directories, links or blobs without files")
	}
}

// lengths is a sum of bytes.
type lengths uint64

// add counts n bytes more.
func (r *bodyReader) add(sum *lengths, n uint64) {
	if *sum += lengths(n); *sum < lengths(n) {
		r.fail("lengths wrap")
	}
}

// fits looks at what a Body's files and a List's have: i is the index among them.
func (r *bodyReader) fits(sum *lengths, i int, name string, n uint64, same uint32) {
	r.add(sum, n)
	if int64(same) > int64(i) || same != 0 && n != 0 {
		r.fail("file is the same as none before it")
	}
	if name == "" {
		r.fail("file without a name")
	}
}

func (r *bodyReader) links() []Link {
	n := r.count(4 + 4)
	if n == 0 {
		return nil
	}
	list := make([]Link, n)
	for i := range list {
		l := &list[i]
		l.Name, l.Target = r.string(), r.string()
		if !strings.HasPrefix(l.Name, "/") || !strings.HasPrefix(l.Target, "/") {
			r.fail("link is not absolute")
		}
	}
	return list
}

func (r *bodyReader) contentID() (id ContentID) {
	copy(id[:], r.take(len(id)))
	return id
}

// plainName says that s can name a file in a directory of ours.
func plainName(s string) bool {
	return s != "" && len(s) <= 255 && s != "." && s != ".." && strings.IndexByte(s, '/') < 0
}

// bodyReader is reader over a string, with 32-bit lengths.
type bodyReader struct {
	s    string
	what string
}

func (r *bodyReader) fail(what string) {
	if r.what == "" {
		r.what = what
	}
	r.s = ""
}

func (r *bodyReader) take(n int) string {
	if n > len(r.s) {
		r.fail("body cut short")
		return ""
	}
	s := r.s[:n]
	r.s = r.s[n:]
	return s
}

func (r *bodyReader) byte() byte {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0
}

func (r *bodyReader) u32() uint32 {
	s := r.take(4)
	if s == "" {
		return 0
	}
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func (r *bodyReader) u64() uint64 {
	lo := r.u32()
	return uint64(lo) | uint64(r.u32())<<32
}

func (r *bodyReader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail("neither true nor false")
	}
	return v == 1
}

// count reads the length of a list whose entries take least bytes or more each.
func (r *bodyReader) count(least int) int {
	n := r.u32()
	if uint64(n) > uint64(len(r.s)/least) {
		r.fail("list past the body's end")
		return 0
	}
	return int(n)
}

func (r *bodyReader) string() string {
	n := r.u32()
	if uint64(n) > uint64(len(r.s)) {
		r.fail("body cut short")
		return ""
	}
	s := r.take(int(n))
	if strings.IndexByte(s, 0) >= 0 {
		r.fail("NUL in a string")
		return ""
	}
	return s
}

func (r *bodyReader) strings() []string {
	n := r.count(4)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.string()
	}
	return list
}

func appendLinks(dst []byte, list []Link) []byte {
	dst = le.AppendUint32(dst, uint32(len(list)))
	for i := range list {
		dst = appendString(dst, list[i].Name)
		dst = appendString(dst, list[i].Target)
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	return append(le.AppendUint32(dst, uint32(len(s))), s...)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = le.AppendUint32(dst, uint32(len(list)))
	for _, s := range list {
		dst = appendString(dst, s)
	}
	return dst
}
