package sources

import (
	"bytes"
	"slices"
)

// mayDirect reports whether the sign that ends at at may be the first of a directive: unless something stands
// before it in its line, or it certainly is in a comment. Where compilers, or their standards, differ in
// what they take for a comment, it may.
func mayDirect(text []byte, at int) bool {
	before, ok := lineBefore(text, at)
	if ok {
		before = bytes.TrimRight(before, "%?") // of the sign
		// What stands before the end of a comment may be in it. What stands behind the last end is code, or
		// another comment, in which the sign is as well.
		if i := bytes.LastIndex(before, []byte("*/")); i >= 0 {
			before = before[i+2:]
		}
		for _, c := range before {
			if c > ' ' && c < 0x80 && c != '\\' {
				return false
			}
		}
	}
	return !inPlainComment(text, at)
}

// lineBefore returns what stands before at in its line, with the lines that this one continues. It is not ok
// where these are continued in a way that not all compilers, or not all standards, take for one.
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

// inPlainComment reports whether at is in a comment of the old kind, in each way to read the text before it. What makes
// that unclear ends the look: raw strings, which not all standards have; trigraphs; lines that
// end with a return alone; quotes that are not closed in their line, or are in the name of a header, and a comment's sign behind them.
func inPlainComment(text []byte, at int) bool {
	text = text[:at]
	if bytes.Contains(text, []byte("??/")) || bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n")) {
		return false
	}
	line := 0 // where the line of i starts
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			if !continued(text, i) {
				line = i + 1
			}
		case c == '\\':
			if cut(text[i:]) && text[i+1] != '\n' && text[i+1] != '\r' {
				return false
			}
		case c == '*' && bytes.HasPrefix(text[i+1:], []byte("/")):
			return false // the end of a comment that was not seen
		case c == '/' && cut(text[i+1:]):
			return false
		case c == '/' && bytes.HasPrefix(text[i+1:], []byte("/")):
			end := lineEnd(text, i)
			if unclear(text[i:min(len(text), end+1)]) {
				return false
			}
			i = end - 1
		case c == '/' && bytes.HasPrefix(text[i+1:], []byte("*")):
			if opensName(text[line:i]) {
				return false
			}
			n := bytes.Index(text[i+2:], []byte("*/"))
			body := text[i+2:]
			if n >= 0 {
				body = body[:n]
			}
			for rest := body; ; {
				k := bytes.Index(rest, []byte("*\\"))
				if k < 0 {
					break
				}
				if rest = rest[k+1:]; cut(rest) {
					return false // and the sign of its end may go on in the next line
				}
			}
			if n < 0 {
				return true
			}
			i += 2 + n + 1
		case c == '"' || c == '\'':
			if i > 0 && (text[i-1] == 'R' || text[i-1] == '\n' && continued(text, i-1)) {
				return false
			}
			rest := text[i:lineEnd(text, i)]
			end := literalEnd(text, i)
			odd := end <= i+1 || end > i+len(rest) || text[end-1] != c || end == i+1 ||
				c == '\'' && i > 0 && isWord(text[i-1]) || opensName(text[line:i]) ||
				isDirective(text[line:]) && bytes.IndexByte(text[i:end], '\\') >= 0
			if odd && bytes.Contains(rest, []byte("/*")) || unclear(text[i:min(len(text), i+len(rest)+1)]) {
				return false
			}
			if odd {
				end = i + len(rest)
			}
			i = end - 1
		}
	}
	return false
}

// unclear reports whether a comment of one line, or a string, has what could be read in another way.
func unclear(s []byte) bool {
	for rest := s; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			break
		}
		if rest = rest[i:]; cut(rest) && rest[1] != '\n' && rest[1] != '\r' || len(rest) > 2 && rest[1] == '\\' && cut(rest[1:]) {
			return true
		}
		rest = rest[1:]
	}
	return bytes.Contains(s, []byte("*/"))
}

// isDirective reports whether a line is one.
func isDirective(line []byte) bool {
	line = skipSpace(line)
	return bytes.HasPrefix(line, []byte("#")) || bytes.HasPrefix(line, []byte("%:"))
}

// opensName reports whether a line may be in the midst of a header's name.
func opensName(line []byte) bool {
	i := bytes.LastIndexByte(line, '<')
	return i >= 0 && bytes.IndexByte(line[i:], '>') < 0 && isDirective(line)
}
