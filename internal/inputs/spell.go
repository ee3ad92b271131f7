package inputs

import (
	"slices"
	"strings"
)

// Strings that macros make of a path with macros in it: all possible values.

// makesString reports whether a macro, by any of its definitions, makes a string of its only argument and
// of nothing else. layers is how many pairs of parentheses may surround the argument.
func (t *macroTable) makesString(name string, depth int) (layers int, ok bool) {
	if depth > maxNested || !t.plain(name) || len(t.macros[name]) == 0 {
		return 0, false
	}
	for _, m := range t.macros[name] {
		if m.Odd || !m.Func || len(m.Params) != 1 || !t.step(1) {
			return 0, false
		}
		p := m.Params[0]
		if p != "" && (m.Body == "#"+p || m.Body == "# "+p) {
			continue
		}
		next, rest := cutWord(m.Body)
		rest = strings.ReplaceAll(rest, " ", "")
		more := 0
		switch {
		case next == "" || next == p || p == "":
			return 0, false
		case rest == "(("+p+"))":
			more = 1
		case rest == "##"+p && t.begins(next):
			return 0, false // the argument may make another macro of it
		case rest != "("+p+")" && rest != p && rest != "##"+p:
			return 0, false
		}
		n, ok := t.makesString(next, depth+1)
		if !ok {
			return 0, false
		}
		layers = max(layers, n+more)
	}
	return layers, true
}

// begins reports whether another macro's name begins with this one.
func (t *macroTable) begins(name string) bool {
	names := t.sorted()
	i, found := slices.BinarySearch(names, name)
	if found {
		i++
	}
	if i < len(names) && strings.HasPrefix(names[i], name) {
		return true
	}
	for word := range t.words {
		if strings.HasPrefix(word, name) {
			return true
		}
	}
	return false
}

// spell finds the strings that may be made of words, which may be macros.
func (t *macroTable) spell(words string, layers int) expansion {
	all, ok := t.spellings(words, 0)
	if !ok {
		return expansion{}
	}
	x := expansion{all: true}
	for range layers + 1 {
		for i, s := range all {
			if s != "" {
				x.headers = append(x.headers, value{header: s, quoted: true})
			}
			all[i] = "(" + s + ")"
		}
	}
	return x
}

// spellings finds what may become of the words of a path, any of which may be macros, or macros that join
// two of them.
func (t *macroTable) spellings(words string, depth int) (all []string, ok bool) {
	if depth > maxNested {
		return nil, false
	}
	all = []string{""}
	for words != "" {
		joined := strings.HasPrefix(strings.TrimLeft(words, " "), "##")
		if joined {
			words = strings.TrimLeft(strings.TrimLeft(words, " ")[2:], " ")
		}
		var values []string
		switch word, rest := cutWord(words); {
		case word == "":
			if words == "" || !strings.Contains("./+-", words[:1]) {
				return nil, false
			}
			values, words = []string{words[:1]}, words[1:]
		case strings.HasPrefix(rest, "("):
			if values, words, ok = t.joining(word, rest, depth); !ok {
				return nil, false
			}
		default:
			if values, ok = t.values(word, depth); !ok {
				return nil, false
			}
			words = rest
		}
		if all, ok = t.pairs(all, values, joined); !ok {
			return nil, false
		}
	}
	return all, true
}

// values finds what a word may stand for, including itself.
func (t *macroTable) values(word string, depth int) (values []string, ok bool) {
	values = []string{word}
	if word[0] <= '9' {
		return values, true
	}
	if !t.plain(word) {
		return nil, false
	}
	for _, m := range t.macros[word] {
		switch {
		case m.Odd || !t.step(1):
			return nil, false
		case m.Func: // without arguments here
			continue
		}
		more, ok := t.spellings(m.Body, depth+1)
		if !ok {
			return nil, false
		}
		for _, s := range more {
			if !slices.Contains(values, s) {
				values = append(values, s)
			}
		}
	}
	return values, true
}

// pairs returns each of b after each of a. joined means that they make one token, which must not be a macro.
func (t *macroTable) pairs(a, b []string, joined bool) (all []string, ok bool) {
	if len(a)*len(b) > maxSpellings || !t.step(len(a)*len(b)) {
		return nil, false
	}
	all = make([]string, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			if joined {
				last := x[len(strings.TrimRightFunc(x, func(r rune) bool { return isWord(byte(r)) })):]
				first, _ := cutWord(y)
				// Other characters are not joined: that is an error, and each stands alone.
				if x == "" || y == "" || last != "" && first != "" && (len(t.macros[last+first]) > 0 || !t.plain(last+first)) {
					return nil, false
				}
			}
			all = append(all, x+y)
		}
	}
	return all, true
}

// joining finds what may become of a macro, before rest, that joins its two arguments.
func (t *macroTable) joining(name, rest string, depth int) (values []string, after string, ok bool) {
	if !t.joins(name, 0) {
		return nil, "", false
	}
	comma, end, open := 0, 0, 0
	for i := 0; i < len(rest) && end == 0; i++ {
		switch c := rest[i]; {
		case c == '(':
			open++
		case c == ')':
			if open--; open == 0 {
				end = i
			}
		case c == ',' && open == 1:
			if comma > 0 {
				return nil, "", false
			}
			comma = i
		}
	}
	if comma == 0 || end == 0 {
		return nil, "", false
	}
	a, ok1 := t.spellings(strings.TrimSpace(rest[1:comma]), depth+1)
	b, ok2 := t.spellings(strings.TrimSpace(rest[comma+1:end]), depth+1)
	if !ok1 || !ok2 {
		return nil, "", false
	}
	values, ok = t.pairs(a, b, true)
	return values, rest[end+1:], ok
}

// joins reports whether a macro, by any of its definitions, joins its two arguments and does nothing else.
func (t *macroTable) joins(name string, depth int) bool {
	if depth > maxNested || !t.plain(name) || len(t.macros[name]) == 0 {
		return false
	}
	for _, m := range t.macros[name] {
		if m.Odd || !m.Func || len(m.Params) != 2 || m.Params[0] == m.Params[1] || !t.step(1) {
			return false
		}
		both := m.Params[0] + "," + m.Params[1]
		body := strings.ReplaceAll(m.Body, " ", "")
		next, rest := cutWord(body)
		switch {
		case body == m.Params[0]+"##"+m.Params[1]:
		case next == m.Params[0] || next == m.Params[1]:
			return false
		case rest == "("+both+")" && t.joins(next, depth+1):
		case rest == "(("+both+"))" && t.takesPair(next, depth):
		case rest == "(~,"+m.Params[0]+"##"+m.Params[1]+")" && t.givesSecond(next):
		default:
			return false
		}
	}
	return true
}

// takesPair reports whether a macro with an argument (a, b) joins the two.
func (t *macroTable) takesPair(name string, depth int) bool {
	for _, m := range t.macros[name] {
		next, rest := cutWord(m.Body)
		rest = strings.ReplaceAll(rest, " ", "")
		if m.Odd || !m.Func || len(m.Params) != 1 || next == m.Params[0] || rest != "##"+m.Params[0] && rest != m.Params[0] || !t.joins(next, depth+1) {
			return false
		}
	}
	return t.plain(name) && len(t.macros[name]) > 0
}

// givesSecond reports whether a macro expands to its second argument.
func (t *macroTable) givesSecond(name string) bool {
	for _, m := range t.macros[name] {
		if m.Odd || !m.Func || len(m.Params) != 2 || m.Params[0] == m.Params[1] || m.Body != m.Params[1] {
			return false
		}
	}
	return t.plain(name) && len(t.macros[name]) > 0
}
