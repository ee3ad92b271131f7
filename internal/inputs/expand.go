package inputs

import (
	"iter"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// An include whose macros have parameters, or consist of others, is not expanded: which definitions apply
// is not known. But its expansion must begin with a string, or with <. So all tokens that can take part in
// its expansion, by any definition, are gathered: those of the directive, of the macros among them, and so
// on; where tokens are joined by ##, those of every macro whose name can be made of such tokens. All
// strings and names in <> among the tokens are followed. Anything that could make a string or < out of
// other tokens is a doubt, with one exception: strings made of words that macros stand for
// (BOOST_PP_STRINGIZE(boost/mpl/HEADER)) are taken with all values of these macros.

// macroTable holds all macros of the texts that a walk has read.
type macroTable struct {
	texts  []*text // the texts that it covers
	macros map[string][]*sources.Macro
	names  []string            // of the macros, sorted, except the last ones, which are in order of arrival
	inLine int                 // how many are sorted
	words  map[string]struct{} // from the command: possible macros with unknown values
	sure   bool                // all names are known
	steps  int                 // taken so far for expanding
	known  map[string]expansion
}

// expansion is the set of headers that an include by macros may read. all means that there are no others.
type expansion struct {
	headers []value
	all     bool
}

// maxSteps bounds the work of a walk's expansions, and maxSpellings the values of one string.
const (
	maxSteps     = 1e6 // examinations of a macro, or of whether a word is known
	maxSpellings = 4096
	maxNested    = 8
)

// step reports whether n more steps may be taken.
func (t *macroTable) step(n int) bool {
	t.steps += n
	return t.steps <= maxSteps
}

// expand finds everything that line, of a directive, may expand to.
func (w *walk) expand(line string) (expansion, *Doubt) {
	if d := w.tabulate(); d != nil {
		return expansion{}, d
	}
	t := w.table
	if !t.sure || line == "" {
		return expansion{}, nil
	}
	x, known := t.known[line]
	if !known {
		if w.spent() {
			return expansion{}, again
		}
		before := t.steps
		x = t.expand(line, 0)
		t.known[line] = x
		w.fresh += (t.steps - before) * stepCosts
	}
	return x, nil
}

// tabulate makes the table cover all texts.
func (w *walk) tabulate() *Doubt {
	t := w.table
	if t == nil && w.before.isOf(w.texts) {
		t = w.before // including the steps that it took
		w.table = t
	}
	if t == nil {
		t = &macroTable{macros: make(map[string][]*sources.Macro), words: make(map[string]struct{}), sure: true, known: make(map[string]expansion)}
		w.table = t
		for _, s := range w.q.Words {
			if strings.Contains(s, "traditional") || strings.Contains(s, "\\") {
				t.sure = false
			}
			for name := range commandMacros(s) {
				t.words[name] = struct{}{}
			}
		}
	}
	for t.sure && len(t.texts) < len(w.texts) {
		x, e := w.texts[len(t.texts)], w.readers[len(t.texts)]
		if !x.tabled && w.over(e) {
			return again
		}
		if d := w.t.tabulate(x, e); d != nil {
			return d
		}
		t.sure = !x.blurred
		t.texts = append(t.texts, x)
		clear(t.known)
		for k := range x.table {
			m := &x.table[k]
			all := t.macros[m.Name]
			if all == nil {
				t.names = append(t.names, m.Name)
			}
			t.macros[m.Name] = append(all, m)
		}
	}
	return nil
}

// isOf reports whether t covers texts, or its first ones, or more than these.
func (t *macroTable) isOf(texts []*text) bool {
	if t == nil {
		return false
	}
	n := min(len(t.texts), len(texts))
	return slices.Equal(t.texts[:n], texts[:n])
}

// sorted returns the names of all macros, sorted.
func (t *macroTable) sorted() []string {
	if t.inLine == len(t.names) {
		return t.names
	}
	before, added := t.names[:t.inLine], t.names[t.inLine:]
	slices.Sort(added)
	all := make([]string, 0, len(t.names))
	for _, name := range added {
		n, _ := slices.BinarySearch(before, name)
		all = append(append(all, before[:n]...), name)
		before = before[n:]
	}
	t.names = append(all, before...)
	t.inLine = len(t.names)
	return t.names
}

// tabulate reads the macros of the text of e.
func (t *Table) tabulate(x *text, e *entry) *Doubt {
	if x.tabled {
		return nil
	}
	b, d := t.reread(e)
	if d != nil {
		return d
	}
	sources.Macros(sources.NewText("", b, false), func(m sources.Macro) { x.table = append(x.table, m) })
	x.table, x.tabled = slices.Clip(x.table), true
	t.readers[0].keep(b)
	return nil
}

func (t *macroTable) expand(line string, depth int) expansion {
	if depth > maxNested {
		return expansion{}
	}
	if header, quoted, ok := sources.HeaderName(line); ok {
		return expansion{[]value{{header: header, quoted: quoted}}, quoted || t.literal(header, nil)}
	}
	word, rest := cutWord(line)
	if word == "" || line[0] <= '9' {
		return t.gather(line)
	}
	if rest == "" {
		// The macro is the whole rest of the line.
		if !t.plain(word) {
			return expansion{}
		}
		x := expansion{all: true}
		for _, m := range t.macros[word] {
			if m.Odd || !t.step(1) {
				return expansion{}
			}
			if m.Func || m.Body == "" {
				continue // nothing that could be included
			}
			more := t.expand(m.Body, depth+1)
			x.headers, x.all = append(x.headers, more.headers...), x.all && more.all
		}
		return x
	}
	if rest[0] == '(' && rest[len(rest)-1] == ')' {
		if layers, ok := t.makesString(word, 0); ok {
			return t.spell(strings.TrimSpace(rest[1:len(rest)-1]), layers)
		}
	}
	return t.gather(line)
}

// plain reports whether a word is a macro of the texts at most, and not one of the compiler or the command.
func (t *macroTable) plain(word string) bool {
	_, odd := t.words[word]
	return !odd && plainMacro(word) && !slices.Contains(predefined[:], word)
}

// literal reports whether a name in <> contains no macros or parameters, which would be replaced.
func (t *macroTable) literal(header string, params []string) bool {
	for word := range strings.FieldsFuncSeq(header, func(r rune) bool { return strings.ContainsRune("./+-", r) }) {
		if !t.plain(word) || slices.Contains(params, word) {
			return false
		}
		for _, m := range t.macros[word] {
			if m.Odd || !m.Func {
				return false
			}
		}
	}
	return true
}

// gathering holds the tokens that may take part in an expansion.
type gathering struct {
	*macroTable
	expansion
	words map[string]struct{}
	queue []string // words whose macros are still to be examined
	joins bool     // tokens are joined by ##
}

func (t *macroTable) gather(line string) expansion {
	g := &gathering{macroTable: t, expansion: expansion{all: true}, words: make(map[string]struct{})}
	g.take(line, nil, false)
	for g.all {
		for len(g.queue) > 0 && g.all {
			word := g.queue[len(g.queue)-1]
			g.queue = g.queue[:len(g.queue)-1]
			for _, m := range t.macros[word] {
				g.all = g.all && !m.Odd && g.step(len(m.Body)+1)
				g.take(m.Body, m.Params, m.Func)
			}
		}
		if !g.joins || !g.join() {
			break
		}
	}
	return g.expansion
}

// take gathers the tokens of a macro's body, or of a directive.
func (g *gathering) take(body string, params []string, function bool) {
	joins := strings.Contains(body, "##") || strings.Contains(body, "%:%:") || strings.Contains(body, "#%:") || strings.Contains(body, "%:#")
	g.joins = g.joins || joins
	for i := 0; i < len(body) && g.all; {
		switch c := body[i]; {
		case isWord(c):
			word, _ := cutWord(body[i:])
			// What may follow __VA_OPT__ is gathered as it is.
			if (!slices.Contains(params, word) || i > 0 && body[i-1] == '.') && (!function || word != "__VA_OPT__") {
				g.word(word)
			}
			i += len(word)
		case c == '"':
			n := strings.IndexByte(body[i+1:], '"')
			if n < 0 || strings.IndexByte(body[i:i+1+n], '\\') >= 0 {
				g.all = false
				return
			}
			if n > 0 {
				g.headers = append(g.headers, value{header: body[i+1 : i+1+n], quoted: true})
			}
			i += n + 2
		case c == '\'':
			n := strings.IndexByte(body[i+1:], '\'')
			if n < 0 || strings.IndexByte(body[i:i+1+n], '\\') >= 0 {
				g.all = false
				return
			}
			i += n + 2
		case c == '<':
			n := strings.IndexByte(body[i:], '>')
			if n < 0 || joins {
				g.all = false
				return
			}
			header, _, ok := sources.HeaderName(body[i : i+n+1])
			if !ok || !g.literal(header, params) {
				g.all = false
				return
			}
			g.headers = append(g.headers, value{header: header})
			i += n + 1
		case c == '#' || c == '%' && strings.HasPrefix(body[i+1:], ":"):
			sign := 1
			if c == '%' {
				sign = 2
			}
			if rest := body[i+sign:]; strings.HasPrefix(rest, "#") {
				sign++
			} else if strings.HasPrefix(rest, "%:") {
				sign += 2
			} else if function {
				g.all = false // it makes a string of anything
			}
			i += sign
		default:
			i++
		}
	}
}

func (g *gathering) word(word string) {
	if _, known := g.words[word]; known {
		return
	}
	if !g.plain(word) || slices.Contains(contextual[:], word) {
		g.all = false
		return
	}
	g.words[word] = struct{}{}
	g.queue = append(g.queue, word)
}

// join gathers the macros whose names can be made of the words, and reports whether there are more than before.
func (g *gathering) join() (more bool) {
	if _, ok := g.words["_"]; ok {
		g.all = false // a compiler's own macros begin with that
		return false
	}
	// For each first letter, the lengths of the words.
	var lengths [256][]int
	for word := range g.words {
		if l := &lengths[word[0]]; !slices.Contains(*l, len(word)) {
			*l = append(*l, len(word))
		}
	}
	var at []bool // name[:i] can be made
	made := func(name string) bool {
		at = append(at[:0], make([]bool, len(name)+1)...)
		at[0] = true
		for i := range name {
			if !at[i] {
				continue
			}
			for _, n := range lengths[name[i]] {
				if k := i + n; k <= len(name) && !at[k] && g.step(1) {
					_, at[k] = g.words[name[i:k]]
				}
			}
		}
		return at[len(name)]
	}
	for _, name := range predefined {
		if made(name) {
			g.all = false
			return false
		}
	}
	for name := range g.macroTable.words {
		if made(name) {
			g.all = false
			return false
		}
	}
	before := len(g.words)
	var names []string
	all := g.sorted()
	for word := range g.words {
		i, _ := slices.BinarySearch(all, word)
		for ; i < len(all) && strings.HasPrefix(all[i], word); i++ {
			if _, known := g.words[all[i]]; !known && made(all[i]) {
				names = append(names, all[i])
			}
		}
	}
	for _, name := range names {
		g.word(name)
	}
	g.all = g.all && g.step(len(g.words))
	return len(g.words) > before
}

// commandMacros yields the names of macros that a word of a command may define.
func commandMacros(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for piece := range strings.SplitSeq(s, ",") {
			for _, before := range [...]string{"", "-D", "--define-macro", "--define-macro="} {
				_, rest, ok := strings.Cut(piece, before)
				name, rest := cutWord(rest)
				if ok && name != "" && name[0] > '9' && (rest == "" || rest[0] == '=' || rest[0] == '(') && !yield(name) {
					return
				}
			}
		}
	}
}

func isWord(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// cutWord removes an identifier, or a number, from the start of s.
func cutWord(s string) (word, rest string) {
	n := 0
	for n < len(s) && isWord(s[n]) {
		n++
	}
	return s[:n], s[n:]
}
