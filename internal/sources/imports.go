package sources

import "bytes"

// Imports calls hit with every directive of a text that may import a header as a C++ module, wherever it stands: clang takes the
// word for one behind other code, too. A superfluous header does no harm. What is imported by a name may be a macro that
// stands for a header; such words are reported as Computed, with the word as Macro. It reports whether there may be directives that
// it cannot read.
func Imports(b []byte, hit func(Include)) (unsure bool) {
	word := []byte("import")
	for from := 0; ; {
		i := bytes.Index(b[from:], word)
		if i < 0 {
			return unsure
		}
		at := from + i
		from = at + len(word)
		if at > 0 && isWord(b[at-1]) || from < len(b) && isWord(b[from]) {
			continue
		}
		line := lineOf(b[:at])
		if len(line) == 1 && line[0] == '#' || len(line) > 0 && line[len(line)-1] == '@' {
			continue // #import, which is an include, and @import, which names no header
		}
		directive := len(line) > 0 && (line[0] == '#' || line[0] == '%' || line[0] == '?')
		rest := afterBlanks(b[from:])
		switch name, quoted, ok := headerAt(rest); {
		case ok:
			hit(Include{Name: name, Quoted: quoted})
		case directive: // a macro, so that what is imported is elsewhere
			unsure = true
		default:
			unsure = words(rest, hit) || unsure
		}
	}
}

// lineOf returns the end of a text from where its last line begins, without blanks at both ends. The line before a line
// continuation is a part of it.
func lineOf(b []byte) []byte {
	from := len(b)
	for from > 0 && (b[from-1] != '\n' || bytes.HasSuffix(bytes.TrimSuffix(b[:from-1], []byte("\r")), []byte("\\"))) {
		from--
	}
	return bytes.TrimSpace(b[from:])
}

// afterBlanks returns b without the white space, comments and line continuations that it begins with.
func afterBlanks(b []byte) []byte {
	for {
		b = bytes.TrimLeft(b, " \t\r\n\f\v")
		switch {
		case bytes.HasPrefix(b, []byte("\\\n")), bytes.HasPrefix(b, []byte("\\\r\n")):
			b = b[2:]
		case bytes.HasPrefix(b, []byte("/*")):
			i := bytes.Index(b[2:], []byte("*/"))
			if i < 0 {
				return nil
			}
			b = b[i+4:]
		case bytes.HasPrefix(b, []byte("//")):
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				return nil
			}
			b = b[i:]
		default:
			return b
		}
	}
}

// headerAt reads the name of a header that b begins with.
func headerAt(b []byte) (name string, quoted, ok bool) {
	if len(b) == 0 || b[0] != '"' && b[0] != '<' {
		return "", false, false
	}
	end := byte('>')
	if b[0] == '"' {
		end = '"'
	}
	n := bytes.IndexAny(b[1:], string(end)+"\n")
	if n <= 0 || b[1+n] != end || bytes.IndexByte(b[1:1+n], 0) >= 0 {
		return "", false, false
	}
	return string(b[1 : 1+n]), end == '"', true
}

// words reports the words of a module's name that b begins with. It reports whether there may be others.
func words(b []byte, hit func(Include)) (unsure bool) {
	for len(b) > 0 {
		n := 0
		for n < len(b) && isWord(b[n]) {
			n++
		}
		if n > 0 {
			hit(Include{Computed: true, Macro: string(b[:n])})
			b = afterBlanks(b[n:])
			if len(b) > 0 && b[0] == '(' {
				return true
			}
		}
		if len(b) == 0 || b[0] != '.' && b[0] != ':' {
			break
		}
		b = afterBlanks(b[1:])
	}
	return len(b) > 0 && (b[0] == '\\' || b[0] == '$')
}
