// Package sources finds what one compile reads and packs it: the files that the
// compiler's dependency run lists, and those that such a list cannot know.
//
//	ParseRule(what -M wrote) ─▶ names ─▶ Pack ─┬─ contents, one behind the other in the slot
//	                                           ├─ their manifest, for the job's body
//	                                           └─ or the reason to compile here
//
// What is packed is always a part of what this machine has: under the same names,
// with the same contents. So a superfluous file does no harm, and a doubt about whether
// the compiler looks at one is resolved by packing it.
//
// The package is linked into the wrapper, which runs once for each source file.
package sources

import (
	"bytes"
	"errors"
	"strings"
)

// ErrRule means that a list of files is ambiguous or cannot be read.
var ErrRule = errors.New("list of files is not clear")

// ParseRule reads the one rule for make that a compiler's -M writes. It returns the names after its colon,
// the source first, each once, as the compiler spelled them. gcc and clang quote in the same way, as far as
// make supports quoting:
//
//   - a space (gcc: or a tab) in a name has a backslash before it, and so does each backslash
//     of the name right before that space;
//   - # has a backslash, $ is doubled; other backslashes stand for themselves;
//   - a backslash at the end of a line continues it.
//
// Anything else, say a newline in a name, is an ErrRule.
func ParseRule(text []byte) ([]string, error) {
	// All names are parts of one string: without quoting nothing needs to be copied.
	s := string(text)
	if !strings.HasSuffix(s, "\n") || strings.IndexByte(s, 0) >= 0 {
		return nil, ErrRule
	}
	s = s[:len(s)-1]
	names := make([]string, 0, 1+len(s)/24)
	seen := make(map[string]struct{}, cap(names))
	target := true
	for {
		word, rest, err := nextWord(s)
		if err != nil {
			return nil, err
		}
		if s = rest; word == "" {
			break
		}
		if target {
			// A target may contain a colon; the one after it ends the word.
			target = word[len(word)-1] != ':'
			continue
		}
		if _, twice := seen[word]; !twice {
			seen[word] = struct{}{}
			names = append(names, word)
		}
	}
	if target || len(names) == 0 {
		return nil, ErrRule
	}
	return names, nil
}

// ParseRules reads the rules for make that a compile has written beside its output. It returns the names as
// ParseRule does. Further rules may follow that have no names after their colon (-MP).
func ParseRules(text []byte) ([]string, error) {
	end := 0
	for {
		i := bytes.IndexByte(text[end:], '\n')
		if i < 0 {
			return nil, ErrRule
		}
		if end += i + 1; end < 2 || text[end-2] != '\\' {
			break
		}
	}
	// What follows a name with a newline in it does not look like such a rule.
	for line := range bytes.Lines(text[end:]) {
		line, whole := bytes.CutSuffix(line, []byte("\n"))
		if !whole || len(line) > 0 && line[len(line)-1] != ':' {
			return nil, ErrRule
		}
	}
	return ParseRule(text[:end])
}

// nextWord removes the first name from s; word is empty at the end.
func nextWord(s string) (word, rest string, err error) {
	for {
		s = strings.TrimLeft(s, " \t")
		if !strings.HasPrefix(s, "\\\n") {
			break
		}
		s = s[2:]
	}
	i := strings.IndexAny(s, " \t\n\\$#")
	if i < 0 {
		return s, "", nil
	}
	if s[i] == ' ' || s[i] == '\t' {
		return s[:i], s[i:], nil
	}
	b := append(make([]byte, 0, 128), s[:i]...)
	for i < len(s) {
		switch c := s[i]; c {
		case ' ', '\t':
			return string(b), s[i:], nil
		case '\n', '#':
			return "", "", ErrRule
		case '$':
			if i+1 >= len(s) || s[i+1] != '$' {
				return "", "", ErrRule
			}
			b = append(b, '$')
			i += 2
		case '\\':
			n := 1
			for i+n < len(s) && s[i+n] == '\\' {
				n++
			}
			i += n
			switch {
			case i == len(s):
			case s[i] == '\n':
				return "", "", ErrRule // no space before it: it may belong to the name
			case s[i] == '#':
				n--
				i++
				b = appendBackslashes(b, n)
				b = append(b, '#')
				continue
			case s[i] == ' ' || s[i] == '\t':
				b = appendBackslashes(b, n/2)
				if n%2 == 1 {
					b = append(b, s[i])
					i++
				}
				continue
			}
			b = appendBackslashes(b, n)
		default:
			b = append(b, c)
			i++
		}
	}
	return string(b), "", nil
}

func appendBackslashes(b []byte, n int) []byte {
	for range n {
		b = append(b, '\\')
	}
	return b
}
