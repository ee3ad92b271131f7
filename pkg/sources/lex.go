package sources

import "bytes"

// place is what a compiler takes a place in a text for.
type place uint8

const (
	inCode place = iota
	inComment
	inString
)

// placeOf reads text up to at as C or C++, and says where that is. It is slow, and
// for the few places that would keep a compile here.
func placeOf(text []byte, at int) place {
	for i := 0; i < at; {
		c := text[i]
		switch {
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			if i = lineEnd(text, i); at < i {
				return inComment
			}
		case c == '/' && i+1 < len(text) && text[i+1] == '*':
			n := bytes.Index(text[i+2:], []byte("*/"))
			if n < 0 || at < i+2+n+2 {
				return inComment
			}
			i += 2 + n + 2
		case c == '"' || c == '\'':
			end := literalEnd(text, i)
			if at < end {
				return inString
			}
			i = end
		default:
			i++
		}
	}
	return inCode
}

// lineEnd is where the line of i ends, with all that continue it.
func lineEnd(text []byte, i int) int {
	for {
		n := bytes.IndexByte(text[i:], '\n')
		if n < 0 {
			return len(text)
		}
		if i += n; !continued(text, i) {
			return i
		}
		i++
	}
}

// continued reports whether the newline at i is behind a backslash.
func continued(text []byte, i int) bool {
	return i > 0 && (text[i-1] == '\\' || i > 1 && text[i-1] == '\r' && text[i-2] == '\\')
}

// lineStart is where the line of i starts, with all that it continues.
func lineStart(text []byte, i int) int {
	for {
		n := bytes.LastIndexByte(text[:i], '\n')
		if n < 0 {
			return 0
		}
		if !continued(text, n) {
			return n + 1
		}
		i = n
	}
}

// literalEnd is the end of the string or character at i. One that is not closed ends
// with its line, as in the text of an #error.
func literalEnd(text []byte, i int) int {
	quote := text[i]
	if quote == '\'' && i > 0 && isWord(text[i-1]) && text[i-1] != 'L' && text[i-1] != 'u' && text[i-1] != 'U' && text[i-1] != '8' {
		return i + 1 // in a number, between its digits
	}
	if quote == '"' && i > 0 && text[i-1] == 'R' && (i == 1 || !isWord(text[i-2]) || bytes.IndexByte([]byte("LuU8"), text[i-2]) >= 0) {
		if open := bytes.IndexByte(text[i:min(len(text), i+18)], '('); open > 0 {
			delim := append(append([]byte{')'}, text[i+1:i+open]...), '"')
			if n := bytes.Index(text[i+open:], delim); n >= 0 {
				return i + open + n + len(delim)
			}
		}
	}
	for i++; i < len(text); i++ {
		switch text[i] {
		case quote:
			return i + 1
		case '\\':
			if i++; i < len(text) && text[i] == '\r' {
				i++
			}
		case '\n':
			return i
		}
	}
	return len(text)
}

func isWord(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c >= 0x80
}

// skipBlank skips what separates words of a directive: blanks, continued lines,
// comments of the old kind.
func skipBlank(text []byte) []byte {
	for len(text) > 0 {
		switch {
		case text[0] == ' ' || text[0] == '\t':
			text = text[1:]
		case bytes.HasPrefix(text, []byte("\\\n")):
			text = text[2:]
		case bytes.HasPrefix(text, []byte("\\\r\n")):
			text = text[3:]
		case bytes.HasPrefix(text, []byte("/*")):
			n := bytes.Index(text[2:], []byte("*/"))
			if n < 0 {
				return nil
			}
			text = text[2+n+2:]
		default:
			return text
		}
	}
	return nil
}

// directive returns the name of the directive whose line holds at, and what is behind
// that name; name is empty where the line is none.
func directive(text []byte, at int) (name, rest []byte) {
	line := skipBlank(text[lineStart(text, at):])
	if len(line) == 0 || line[0] != '#' {
		return nil, nil
	}
	return cutWord(skipBlank(line[1:]))
}

// cutWord takes an identifier off text.
func cutWord(text []byte) (word, rest []byte) {
	n := 0
	for n < len(text) && isWord(text[n]) {
		n++
	}
	return text[:n], text[n:]
}
