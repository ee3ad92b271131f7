package sources

import (
	"bytes"
	"strconv"
	"strings"
)

// lines examines the directives that name files for messages or for data:
//
//	#line 7 "x.y"    # 7 "x.y"    #embed <x>
func (t *Text) lines(n Notes) {
	for _, sign := range [...]string{"%:", "??="} { // the other spellings of #
		for from := 0; ; {
			i := bytes.Index(t.b[from:], []byte(sign))
			if i < 0 {
				break
			}
			from += i + len(sign)
			t.marked(from, n)
		}
	}
	for from := 0; ; {
		i := bytes.IndexByte(t.b[from:], '#')
		if i < 0 || from+i+8 > len(t.b) {
			return
		}
		at := from + i
		from = at + 1
		c := t.b[from]
		for k := from; c == ' ' || c == '\t'; {
			if k++; k >= len(t.b) {
				return
			}
			c, from = t.b[k], k
		}
		switch {
		case c == 'i' || c == 'd' || c == 'p' || c == 'u': // nearly all others
		case c != 'l' && c != 'e' && (c < '0' || c > '9') || !opensLine(t.b, at):
			t.marked(at+1, n)
		case c != 'l' && c != 'e':
			line(t.b[from:], n)
		case c == 'l' && bytes.HasPrefix(t.b[from:], []byte("line")) && from+4 < len(t.b) && !isWord(t.b[from+4]):
			line(skipBlank(t.b[from+4:]), n)
		case c == 'e' && bytes.HasPrefix(t.b[from:], []byte("embed")):
			// The compilers seen so far list it.
			if name, quoted, ok := headerName(skipBlank(t.b[from+5:])); ok && n.Header(t, name, quoted, true) != nil {
				n.Unsure()
			}
		default:
			t.marked(at+1, n)
		}
	}
}

// marked says that there may be further files if the sign that ends at at is that of a line directive, or of one for
// data, that is not written as compilers themselves write it: with comments, line continuations or other blanks.
func (t *Text) marked(at int, n Notes) {
	const most = len("embed")
	word := make([]byte, 0, most)
	for rest := skipSpace(t.b[at:]); len(rest) > 0 && len(word) < most; rest = rest[1:] {
		for cut(rest) {
			rest = rest[bytes.IndexByte(rest, '\n')+1:]
		}
		if len(rest) == 0 || !isWord(rest[0]) {
			break
		}
		word = append(word, rest[0])
	}
	if len(word) > 0 && (word[0] >= '0' && word[0] <= '9' || string(word) == "line" || string(word) == "embed") && t.mayDirect(at-1) {
		n.Unsure()
	}
}

// opensLine reports whether only blanks precede at in its line.
func opensLine(b []byte, at int) bool {
	for at--; at >= 0 && (b[at] == ' ' || b[at] == '\t'); at-- {
	}
	return at < 0 || b[at] == '\n'
}

// line reports the file that a line directive names; rest is what follows its word.
func line(rest []byte, notes Notes) {
	n := 0
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	rest = skipBlank(rest[n:])
	if n > 0 && (len(rest) == 0 || rest[0] == '\n' || rest[0] == '\r' || rest[0] == '/') {
		return // a number alone
	}
	name, quoted, ok := headerName(rest)
	if n == 0 || !ok || !quoted {
		if len(rest) > 0 && (isWord(rest[0]) || strings.IndexByte("\"'\\?\f\v\r\x00", rest[0]) >= 0) {
			notes.Unsure() // perhaps a macro, or other blanks
		}
		return
	}
	if strings.IndexByte(name, '\\') >= 0 {
		var err error
		if name, err = strconv.Unquote(`"` + name + `"`); err != nil || name == "" {
			notes.Unsure()
			return
		}
	}
	if name[0] != '<' {
		notes.Line(name)
	}
}
