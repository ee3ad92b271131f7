package sources

import (
	"bytes"
	"strings"
)

// Macro is a macro as a directive defines it.
type Macro struct {
	Name   string
	Func   bool
	Params []string // as used in Body; those of a variadic macro include __VA_ARGS__
	Body   string   // in one line, without comments and without blanks at its ends
	// Odd means that the value depends on the compiler or its standard, or is unclear.
	Odd bool
}

// Macros calls tell with every macro that t defines, under whatever condition, and also with anything that
// looks like a definition. It reports whether there may be others, whose names cannot be read.
func Macros(t *Text, tell func(Macro)) (blurred bool) {
	r := reader{t: t, def: func(d Define) {
		if len(d.Name) == 0 {
			blurred = true
			return
		}
		line, odd := logicalLine(d.rest)
		m := Macro{Name: string(d.Name), Func: d.Func, Odd: odd}
		if m.Func {
			n := strings.IndexByte(line, ')')
			if n < 0 {
				m.Odd = true
				n = 0
			} else {
				for p := range strings.SplitSeq(line[1:n], ",") {
					switch p = strings.TrimSpace(p); {
					case p == "...":
						p = "__VA_ARGS__"
					case strings.HasSuffix(p, "..."):
						p = strings.TrimSpace(strings.TrimSuffix(p, "..."))
					}
					m.Params = append(m.Params, p)
				}
				n++
			}
			line = line[n:]
		}
		m.Body = strings.TrimSpace(line)
		tell(m)
	}}
	r.all()
	return blurred
}

// maxLine bounds a definition, in bytes.
const maxLine = 64 << 10

// logicalLine returns text up to the end of its line, including continuation lines, with comments as
// blanks. It is odd if it can be read in other ways.
func logicalLine(text []byte) (line string, odd bool) {
	if end := bytes.IndexByte(text, '\n'); end >= 0 && end <= maxLine && plainLine(text[:end]) {
		return string(text[:end]), false
	}
	var b []byte
	for i := 0; i < len(text) && text[i] != '\n'; {
		if len(b) > maxLine {
			return string(b), true
		}
		switch c := text[i]; {
		case cut(text[i:]):
			odd = odd || c == '?'
			i += bytes.IndexByte(text[i:], '\n') + 1
		case c == '/' && bytes.HasPrefix(text[i+1:], []byte("*")):
			n := bytes.Index(text[i+2:], []byte("*/"))
			if n < 0 {
				return string(b), true
			}
			odd = odd || bytes.Contains(text[i+2:i+2+n], []byte("*\\"))
			i += 2 + n + 2
			b = append(b, ' ')
		case c == '"' || c == '\'':
			end := literalEnd(text, i)
			s := text[i:end]
			odd = odd || len(s) < 3 || s[len(s)-1] != c || bytes.IndexByte(s, '\n') >= 0 || i > 0 && text[i-1] == 'R' || c == '\'' && i > 0 && isWord(text[i-1])
			odd = odd || bytes.Contains(s, []byte("??"))
			b = append(b, s...)
			i = end
		case c == '\t' || c == '\f' || c == '\v' || c == '\r':
			odd = odd || c == '\r' && (i+1 == len(text) || text[i+1] != '\n')
			b = append(b, ' ')
			i++
		default:
			odd = odd || c < ' ' || c >= 0x80 || c == '\\' || c == '$' || c == '`' || c == '@' ||
				c == '?' && bytes.HasPrefix(text[i:], []byte("??")) || c == '/' && i+1 < len(text) && (text[i+1] == '/' || cut(text[i+1:]))
			b = append(b, c)
			i++
		}
	}
	return string(b), odd
}

// plainLine reports whether a line has no comment and no string, and cannot be read in other ways.
func plainLine(line []byte) bool {
	for _, c := range line {
		if !plain[c] {
			return false
		}
	}
	return true
}

// plain has the characters of such a line.
var plain = func() (plain [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		plain[c] = !strings.ContainsRune("\"'/?\\$`@", c)
	}
	return plain
}()
