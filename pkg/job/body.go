package job

import "strings"

// Append encodes b behind dst. It panics on more than MaxOutputs outputs; the
// caller refuses a result past MaxBodyLen.
func (b *Body) Append(dst []byte) []byte {
	dst = appendString(dst, b.Argv0)
	dst = appendStrings(dst, b.Args)
	dst = appendString(dst, b.Language)
	dst = appendString(dst, b.Name)
	dst = appendString(dst, b.Cwd)
	dst = appendStrings(dst, b.Env)
	dst = appendCount(dst, len(b.Outputs), MaxOutputs)
	for i := range b.Outputs {
		dst = append(dst, byte(b.Outputs[i].Kind))
		dst = appendString(dst, b.Outputs[i].Name)
	}
	return dst
}

// ParseBody decodes the whole of b and keeps no part of it. Strings hold no NUL,
// Name is a plain file name, every list is no longer than b can hold.
func ParseBody(b []byte) (*Body, error) {
	if len(b) == 0 || len(b) > MaxBodyLen {
		return nil, malformed("body length")
	}
	// One copy, of which all strings are parts: the slot is used again.
	r := bodyReader{s: string(b)}
	var v Body
	v.Argv0 = r.string()
	v.Args = r.strings()
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
		v.Outputs = append(v.Outputs, Output{Kind: k, Name: r.string()})
	}
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
	n := r.u32()
	if n == 0 {
		return nil
	}
	if uint64(n) > uint64(len(r.s)/4) { // each takes four bytes at least
		r.fail("list past the body's end")
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.string()
	}
	return list
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
