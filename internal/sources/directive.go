package sources

import (
	"bytes"
	"slices"
)

// mayDirect reports whether the sign that ends at at may be the first of a directive: unless something precedes
// it in its line, or it certainly is in a comment.
func (t *Text) mayDirect(at int) bool {
	before, ok := lineBefore(t.b, at)
	if ok {
		before = bytes.TrimRight(before, "%?") // including the sign
		// What precedes the end of a comment may be in it. What follows the last end is code, or another comment,
		// which the sign is in as well.
		if i := bytes.LastIndex(before, []byte("*/")); i >= 0 {
			before = before[i+2:]
		}
		for _, c := range before {
			if c > ' ' && c < 0x80 && c != '\\' {
				return false
			}
		}
	}
	return t.place(at) != inComment
}

// lineBefore returns what precedes at in its line, including the lines that this one continues. ok is false if
// they are continued in a way that not all compilers, or not all standards, accept.
func lineBefore(text []byte, at int) (before []byte, ok bool) {
	for {
		start := bytes.LastIndexAny(text[:at], "\n\r") + 1
		before = append(slices.Clip(text[start:at]), before...)
		if !spliced(text, start) {
			return before, true
		}
		at = len(bytes.TrimSuffix(bytes.TrimSuffix(text[:start], []byte("\n")), []byte("\r")))
		if at == start || text[start-1] != '\n' || text[at-1] != '\\' {
			return nil, false
		}
		at--
	}
}

// spliced reports whether the line that starts at start continues another one, however that is written.
func spliced(text []byte, start int) bool {
	before := bytes.TrimRight(text[:start], " \t\f\v\r\n")
	return len(before) < start && bytes.Count(text[len(before):start], []byte("\n")) < 2 && (bytes.HasSuffix(before, []byte(`\`)) || bytes.HasSuffix(before, []byte("??/")))
}
