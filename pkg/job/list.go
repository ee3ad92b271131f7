package job

// List is files that jobs see, named by the content that they have: a content itself, kept by
// the host like any other, and named by jobs in Body.Lists. So what a thousand jobs read is
// told once. Names, Dirs and Links are as in a Body; a relative name is seen from the working
// directory of the job that names the list.
type List struct {
	Files []ListedFile
	Dirs  []string
	Links []Link
}

// ListedFile is a file of a List.
type ListedFile struct {
	Name    string
	Len     uint64 // bytes of Content
	MTime   int64  // nanoseconds since 1970
	Same    uint32 // 0, or 1 + index of an earlier file of the list that is the same inode; then Len is 0, and Content zero
	Exec    bool
	Content ContentID
}

// Append encodes l behind dst. Of no use is one of more than MaxBodyLen bytes.
func (l *List) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, uint32(len(l.Files)))
	for i := range l.Files {
		f := &l.Files[i]
		dst = appendString(dst, f.Name)
		dst = le.AppendUint64(dst, f.Len)
		dst = le.AppendUint64(dst, uint64(f.MTime))
		dst = appendBool(le.AppendUint32(dst, f.Same), f.Exec)
		dst = append(dst, f.Content[:]...)
	}
	dst = appendStrings(dst, l.Dirs)
	return appendLinks(dst, l.Links)
}

// ParseList decodes the whole of b, and keeps no part of it. What it holds is bounded as in
// ParseBody. Its error is an ErrMalformed.
func ParseList(b []byte) (*List, error) {
	if len(b) == 0 || len(b) > MaxBodyLen {
		return nil, malformed("list length")
	}
	r := bodyReader{s: string(b)}
	var v List
	var sum lengths
	if n := r.count(4 + 8 + 8 + 4 + 1 + len(ContentID{})); n > 0 {
		v.Files = make([]ListedFile, n)
	}
	for i := range v.Files {
		f := &v.Files[i]
		f.Name = r.string()
		f.Len = r.u64()
		f.MTime = int64(r.u64())
		f.Same = r.u32()
		f.Exec = r.bool()
		f.Content = r.contentID()
		r.fits(&sum, i, f.Name, f.Len, f.Same)
		if f.Same != 0 && f.Content != (ContentID{}) {
			r.fail("file is the same as another, and has a content")
		}
	}
	v.Dirs = r.strings()
	v.Links = r.links()
	if r.what == "" && len(r.s) != 0 {
		r.fail("bytes behind the end")
	}
	if r.what != "" {
		return nil, malformed(r.what)
	}
	return &v, nil
}
