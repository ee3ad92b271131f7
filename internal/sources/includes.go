package sources

import (
	"bytes"
	"slices"
	"strings"
)

// Include is a directive that includes a header.
type Include struct {
	Name   string
	Quoted bool // "x", not <x>
	Next   bool // #include_next
	// Computed means that a macro says which header. There is no Name then.
	Computed bool
	// Macro is the macro's name if the directive has nothing else; otherwise Line is what it has, in
	// one line without comments. Both are empty where that cannot be read reliably.
	Macro, Line string
}

// Define is a directive that defines a macro.
type Define struct {
	Name []byte // valid during the call; empty: a name that cannot be read
	Func bool   // it has parameters
	// Header and Quoted are the value if it is a header's name and nothing else; otherwise Header is "".
	Header string
	Quoted bool

	rest []byte // the text after the name
}

// Includes calls hit with every directive of t that includes a header, under whatever condition, and also
// with anything that looks like one, as in a string: a superfluous header does no harm. Computed includes
// are reported once for each macro, and for each Line. In the same way it calls def with directives that
// define macros. It reports whether there may be directives that it cannot read, because they are written
// with trigraphs or have a name that continues in the next line.
func Includes(t *Text, hit func(Include), def func(Define)) (doubt bool) {
	r := reader{t: t, hit: hit, def: def}
	return r.all()
}

// reader reports the directives of a text.
type reader struct {
	t      *Text
	hit    func(Include) // nil: report definitions only
	def    func(Define)
	macros []string // macros, and lines, already reported as saying which header
	looks  int      // how often a place of the text was examined, which is slow
}

// all reports all directives.
func (r *reader) all() (doubt bool) {
	b := r.t.b
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '#')
		if i < 0 {
			break
		}
		at := from + i
		from = at + 1
		// The first letter rules out nearly all others.
		if c := at + 1; c < len(b) {
			for c < len(b) && (b[c] == ' ' || b[c] == '\t') {
				c++
			}
			if c < len(b) && b[c] == 'd' && bytes.HasPrefix(b[c:], []byte("define")) {
				r.define(b[c+len("define"):])
				continue
			}
			if c < len(b) && b[c] != 'i' && b[c] != 'd' && b[c] != '/' && b[c] != '\\' && b[c] != '?' && (b[c] >= ' ' || b[c] == '\n') {
				continue
			}
		}
		doubt = r.directive(at, b[from:]) || doubt
	}
	// The other spellings of the sign, which are hardly ever used.
	for _, sign := range [...]string{"%:", "??="} {
		for rest := b; ; {
			i := bytes.Index(rest, []byte(sign))
			if i < 0 {
				break
			}
			rest = rest[i+len(sign):]
			doubt = r.directive(len(b)-len(rest)-1, rest) || doubt
		}
	}
	return doubt
}

// maxLooks bounds how often the position of a computed include in its text is examined. Beyond it, all count as code.
const maxLooks = 64

// directive reads the directive whose sign ends before rest and is at at. It reports whether it could be an
// include that cannot be read.
func (r *reader) directive(at int, rest []byte) (doubt bool) {
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
	case "define":
		r.define(rest)
		return false
	default:
		if cut(rest) && hasPrefix("define", word) {
			r.def(Define{})
		}
		// The line continues within the word, or within the sign of a comment.
		return (cut(rest) || len(rest) > 1 && rest[0] == '/' && cut(rest[1:])) && (hasPrefix("include_next", word) || hasPrefix("import", word)) && (r.t.asm || r.t.mayDirect(at))
	}
	if r.hit == nil {
		return false
	}
	rest = skipSpace(rest)
	name, quoted, ok := headerName(rest)
	switch {
	case ok && (bytes.Contains([]byte(name), []byte("??")) || name[len(name)-1] == '\\'):
		return true
	case ok:
		inc.Name, inc.Quoted = name, quoted
	default:
		inc.Computed, inc.Macro = true, macroAlone(rest)
		if inc.Macro == "" {
			if line, odd := logicalLine(rest); !odd {
				inc.Line = strings.TrimSpace(line)
			}
		}
		key := inc.Macro + inc.Line
		if slices.Contains(r.macros, key) {
			return false
		}
		if r.looks++; r.looks <= maxLooks && !r.t.asm && !r.t.mayDirect(at) {
			return false // words of a comment
		}
		if len(rest) > 0 && (rest[0] == '\n' || rest[0] == '\r') {
			return false // an error if it is compiled
		}
		r.macros = append(r.macros, key)
	}
	r.hit(inc)
	return false
}

// macroAlone returns the name that is the whole rest of a directive, or "" if there is more, or the name
// could be spelled in another way.
func macroAlone(rest []byte) string {
	word, rest := cutWord(rest)
	if len(word) == 0 || word[0] <= '9' || !endsLine(rest) || slices.ContainsFunc(word, func(c byte) bool { return c >= 0x80 }) {
		return ""
	}
	return string(word)
}

// endsWord reports whether a word before rest, which continues in the next line, ends there, or at the
// beginning of that line.
func endsWord(rest []byte) bool {
	for cut(rest) {
		rest = rest[bytes.IndexByte(rest, '\n')+1:]
	}
	return len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0
}

// endsLine reports whether only blanks and comments follow in a directive.
func endsLine(rest []byte) bool {
	if cut(rest) {
		return false // the continuation may belong to the word before
	}
	rest = skipSpace(rest)
	return len(rest) == 0 || rest[0] == '\n' || bytes.HasPrefix(rest, []byte("//"))
}

// define reads what follows the word define.
func (r *reader) define(rest []byte) {
	if len(rest) > 0 && isWord(rest[0]) {
		return
	}
	name, rest := cutWord(skipSpace(rest))
	switch {
	case len(name) == 0:
		return // an include could not name it with such letters
	case cut(rest) && !endsWord(rest):
		r.def(Define{}) // the name may continue
		return
	case len(rest) > 0 && (rest[0] == '$' || rest[0] == '\\' && !cut(rest)):
		return // its name is another one
	}
	d := Define{Name: name, rest: rest}
	if d.Func = len(rest) > 0 && rest[0] == '('; d.Func {
		r.def(d)
		return
	}
	rest = skipSpace(rest)
	if header, quoted, ok := headerName(rest); ok && plainName(header) && endsLine(rest[len(header)+2:]) {
		d.Header, d.Quoted = header, quoted
	}
	r.def(d)
}

// plainName reports whether a header's name means the same whether it is one token or several.
func plainName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c >= 0x80 || !isWord(c) && c != '.' && c != '/' && c != '+' && c != '-' || c == '/' && i > 0 && name[i-1] == '/' {
			return false
		}
	}
	return true
}

// skipSpace skips everything that compilers ignore between the words of a directive.
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

// cut reports whether text begins with a line continuation, in any form that some compiler accepts.
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

// HeaderName reads s as a header's name, <name> or "name". ok is false unless the name consists of
// characters that a macro's value can have whether it is one token or several.
func HeaderName(s string) (name string, quoted, ok bool) {
	name, quoted, ok = headerName([]byte(s))
	return name, quoted, ok && plainName(name) && len(name)+2 == len(s)
}
