package move

import (
	"bytes"
	"strings"
)

// style is how a compiler breaks the lines of its rules for make.
type style struct {
	columns int    // a line ends before a name that would reach beyond
	after   string // the new line's beginning
	start   int    // column behind that
	extra   int    // what a name needs beyond its own length
}

// styles are gcc's and clang's.
var styles = [...]style{
	{columns: 72, after: " \\\n ", start: 1, extra: 0},
	{columns: 75, after: " \\\n  ", start: 3, extra: 3},
}

// Rules returns rules for make with names below b as the compiler would have written them if they were below to.
// ok is false if it is not known how: then no compiler would have broken the lines of these rules as they are.
func (b Base) Rules(rules []byte, to Base) (moved []byte, ok bool) {
	if len(rules) == 0 {
		return rules, true
	}
	targets, deps, rest, ok := parseRule(rules)
	if !ok {
		return nil, false
	}
	for _, s := range styles {
		if string(s.write(targets, deps))+rest != string(rules) {
			continue
		}
		change := func(words []string) []string {
			out := make([]string, len(words))
			for i, w := range words {
				out[i] = b.replace(w, string(to))
			}
			return out
		}
		return append(s.write(change(targets), change(deps)), b.replace(rest, string(to))...), true
	}
	return nil, false
}

// parseRule parts the first rule into its targets and its dependencies, as they are written, and returns what
// follows it.
func parseRule(rules []byte) (targets, deps []string, rest string, ok bool) {
	end := 0
	for {
		i := bytes.IndexByte(rules[end:], '\n')
		if i < 0 {
			return nil, nil, "", false
		}
		end += i + 1
		if end < 2 || rules[end-2] != '\\' {
			break
		}
	}
	words := split(strings.ReplaceAll(string(rules[:end-1]), "\\\n", " "))
	for i, w := range words {
		if name, is := strings.CutSuffix(w, ":"); is && name != "" && !strings.HasSuffix(name, "\\") {
			return append(words[:i:i], name), words[i+1:], string(rules[end:]), true
		}
	}
	return nil, nil, "", false
}

// split splits at spaces that no backslash protects.
func split(s string) (words []string) {
	from := -1
	for i := 0; i <= len(s); i++ {
		space := i == len(s) || s[i] == ' ' && (i == 0 || s[i-1] != '\\')
		switch {
		case space && from >= 0:
			words, from = append(words, s[from:i]), -1
		case !space && from < 0:
			from = i
		}
	}
	return words
}

// write writes a rule.
func (s *style) write(targets, deps []string) []byte {
	var out []byte
	column := 0
	name := func(w string) {
		if column > 0 {
			if column+len(w)+s.extra > s.columns {
				out = append(out, s.after...)
				column = s.start
			} else {
				out = append(out, ' ')
				column++
			}
		}
		out = append(out, w...)
		column += len(w)
	}
	for _, w := range targets {
		name(w)
	}
	out = append(out, ':')
	column++
	for _, w := range deps {
		name(w)
	}
	return append(out, '\n')
}
