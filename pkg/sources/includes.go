package sources

import "bytes"

// Include is a directive that reads a header.
type Include struct {
	Name   string
	Quoted bool // "x", not <x>
	Next   bool // #include_next
	// Computed: a macro says which header. There is no name.
	Computed bool
}

// Includes calls hit with every directive of t that reads a header, under whatever
// condition it stands, and also with what only looks like one, as in a string: a
// header too many does no harm. Of those that are computed it tells once. It reports whether there may be directives that it
// cannot read, as they are written by trigraphs or with a name that goes on in the next line.
func Includes(t *Text, hit func(Include)) (doubt bool) {
	b, computed := t.b, false
	once := func(inc Include) {
		if !inc.Computed || !computed {
			hit(inc)
		}
		computed = computed || inc.Computed
	}
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '#')
		if i < 0 {
			break
		}
		at := from + i
		from = at + 1
		// The first letter is enough for nearly all others.
		if c := at + 1; c < len(b) {
			for c < len(b) && (b[c] == ' ' || b[c] == '\t') {
				c++
			}
			if c < len(b) && b[c] != 'i' && b[c] != '/' && b[c] != '\\' && b[c] != '?' && (b[c] >= ' ' || b[c] == '\n') {
				continue
			}
		}
		doubt = include(t, at, b[from:], computed, once) || doubt
	}
	// The other ways to write the sign, which hardly anybody uses.
	for _, sign := range [...]string{"%:", "??="} {
		for rest := b; ; {
			i := bytes.Index(rest, []byte(sign))
			if i < 0 {
				break
			}
			rest = rest[i+len(sign):]
			doubt = include(t, len(b)-len(rest)-1, rest, computed, once) || doubt
		}
	}
	return doubt || bytes.Contains(b, []byte("include_alias"))
}

// include reads the directive whose sign ends before rest and stands at at. It reports
// whether it could be one that cannot be read. computed: such a one was met before.
func include(t *Text, at int, rest []byte, computed bool, hit func(Include)) (doubt bool) {
	rest = skipSpace(rest)
	n := 0
	for n < len(rest) && n < len("include_next")+1 && isWord(rest[n]) {
		n++
	}
	word := string(rest[:n])
	rest = rest[n:]
	inc := Include{}
	switch word {
	case "include", "import":
		if cut(rest) {
			return true // _next may follow
		}
	case "include_next":
		inc.Next = true
	default:
		// The line goes on in the midst of the word, or of the sign of a comment.
		return (cut(rest) || len(rest) > 1 && rest[0] == '/' && cut(rest[1:])) && (hasPrefix("include_next", word) || hasPrefix("import", word)) && t.place(at) != inComment
	}
	rest = skipSpace(rest)
	name, quoted, ok := headerName(rest)
	switch {
	case ok && (bytes.Contains([]byte(name), []byte("??")) || name[len(name)-1] == '\\'):
		return true
	case ok:
		inc.Name, inc.Quoted = name, quoted
	case computed || t.place(at) != inCode:
		return false // words of a comment or a string
	case len(rest) > 0 && (rest[0] == '\n' || rest[0] == '\r'):
		return false // an error where it counts
	default:
		inc.Computed = true
	}
	hit(inc)
	return false
}

// skipSpace skips all that compilers take for nothing between the words of a directive.
func skipSpace(text []byte) []byte {
	for len(text) > 0 {
		switch c := text[0]; {
		case c == ' ' || c == '\t' || c == '\f' || c == '\v' || c == '\r' || c == 0:
			text = text[1:]
		case bytes.HasPrefix(text, []byte("/*")):
			n := bytes.Index(text[2:], []byte("*/"))
			if n < 0 {
				return nil
			}
			text = text[2+n+2:]
		case cut(text):
			text = text[bytes.IndexByte(text, '\n')+1:]
		default:
			return text
		}
	}
	return nil
}

// cut reports whether a line ends in front of text with a sign that continues it, in
// any of the ways that compilers take for one.
func cut(text []byte) bool {
	switch {
	case len(text) > 0 && text[0] == '\\':
		text = text[1:]
	case bytes.HasPrefix(text, []byte("??/")):
		text = text[3:]
	default:
		return false
	}
	text = bytes.TrimLeft(text, " \t\f\v\r")
	return len(text) > 0 && text[0] == '\n'
}

func hasPrefix(s, prefix string) bool { return len(prefix) <= len(s) && s[:len(prefix)] == prefix }
