package sources

import "bytes"

// lineEnd returns the end of the line of i, including its continuation lines.
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

// continued reports whether the newline at i follows a backslash.
func continued(text []byte, i int) bool {
	return i > 0 && (text[i-1] == '\\' || i > 1 && text[i-1] == '\r' && text[i-2] == '\\')
}

// joinCut returns text without line continuations within words, as gcc reads them (blanks may follow the
// backslash), and their positions in the result, in order. If there are none it returns nothing.
func joinCut(text []byte) (whole []byte, cuts []int) {
	last := 0
	for i := 0; ; {
		n := bytes.IndexByte(text[i:], '\\')
		if n < 0 {
			break
		}
		from := i + n
		for i = from + 1; i < len(text) && bytes.IndexByte([]byte(" \t\f\v\r"), text[i]) >= 0; i++ {
		}
		if from == 0 || i+1 >= len(text) || text[i] != '\n' || !inWord(text[from-1]) && (from != last || len(cuts) == 0) || !inWord(text[i+1]) && text[i+1] != '\\' {
			continue
		}
		i++
		whole = append(whole, text[last:from]...)
		cuts = append(cuts, len(whole))
		last = i
	}
	if len(cuts) == 0 {
		return nil, nil
	}
	return append(whole, text[last:]...), cuts
}

// inWord reports whether c may be in one of the words that a scan looks for.
func inWord(c byte) bool { return isWord(c) || c == '.' || c == '#' }

// lineStart returns the start of the line of i, including the lines that it continues.
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

// literalEnd returns the end of the string or character constant at i. An unterminated one ends with its
// line, as in the text of an #error.
func literalEnd(text []byte, i int) int {
	quote := text[i]
	if quote == '\'' && i > 0 && isWord(text[i-1]) && text[i-1] != 'L' && text[i-1] != 'u' && text[i-1] != 'U' && text[i-1] != '8' {
		return i + 1 // a digit separator in a number
	}
	if end, ok := rawEnd(text, i); ok {
		return end
	}
	end, _ := plainEnd(text, i)
	return end
}

// isRaw reports whether the quote at i may open a raw string.
func isRaw(text []byte, i int) bool {
	return text[i] == '"' && i > 0 && text[i-1] == 'R' && (i == 1 || !isWord(text[i-2]) || bytes.IndexByte([]byte("LuU8"), text[i-2]) >= 0)
}

// rawEnd returns the end of the raw string whose quote is at i. ok is false if it is not one, or is not terminated.
func rawEnd(text []byte, i int) (end int, ok bool) {
	if !isRaw(text, i) {
		return 0, false
	}
	open := bytes.IndexByte(text[i:min(len(text), i+18)], '(')
	if open < 0 || bytes.ContainsAny(text[i+1:i+open], " )\\\t\v\f\r\n\"") {
		return 0, false
	}
	delim := append(append([]byte{')'}, text[i+1:i+open]...), '"')
	n := bytes.Index(text[i+open:], delim)
	return i + open + n + len(delim), n >= 0
}

// plainEnd returns the end of the string or character constant at i, which is not raw; if it is not closed,
// the end of its line.
func plainEnd(text []byte, i int) (end int, closed bool) {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch text[i] {
		case quote:
			return i + 1, true
		case '\\':
			if i++; i < len(text) && text[i] == '\r' {
				i++
			}
		case '\n':
			return i, false
		}
	}
	return len(text), false
}

func isWord(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c >= 0x80
}

// skipBlank skips what separates words of a directive: blanks, line continuations, and /* */ comments.
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

// directive returns the name of the directive whose line contains at, and what follows that name; name is
// empty if the line is not a directive.
func directive(text []byte, at int) (name, rest []byte) {
	start := lineStart(text, at)
	line := cutSign(text[start:])
	if line == nil {
		// It may be in a comment that ends in this line.
		i := bytes.Index(text[start:at], []byte("*/"))
		if i < 0 {
			return nil, nil
		}
		line = cutSign(text[start+i+2:])
	}
	return cutWord(skipBlank(line))
}

// cutSign removes the sign of a directive from a line; nil: it has none.
func cutSign(line []byte) []byte {
	line = skipBlank(line)
	for _, sign := range [...]string{"#", "%:", "??="} {
		if rest, ok := bytes.CutPrefix(line, []byte(sign)); ok {
			return rest
		}
	}
	return nil
}

// cutWord removes an identifier from the start of text.
func cutWord(text []byte) (word, rest []byte) {
	n := 0
	for n < len(text) && isWord(text[n]) {
		n++
	}
	return text[:n], text[n:]
}
