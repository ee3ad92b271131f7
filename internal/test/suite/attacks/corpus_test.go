// Package attacks sends hostile jobs to a real rdistccd and judges what comes of them.
//
// The jobs lie in corpus/*.txt. One is
//
//	= ID CLASS VECTOR COMPILERS MUST
//	args WORD...
//	source
//		text, behind a tab
//
// CLASS is what the attacker wants: exec, read, write, net, dos or info. VECTOR is
// where it is hidden: arg, src, env, argv0, or body for what else a job can say.
// COMPILERS is a list with commas of gcc, g++, clang, clang++; "gcc*" and "clang*" are
// two each, "*" all. MUST is reject (a typed refusal is the only good answer, as code
// would run) or contain (it may compile, but no canary may fire).
//
// The other lines:
//
//	args, env WORD...       as the job has them; quoted with ' where there are spaces
//	leak TEXT...            must not be in what comes back, beside the tokens
//	oracle TEXT...          the same, where jobs have a root of their own: else the kernel tells everybody which files there are
//	on COMPILERS            args and leak that follow, up to source, are for these
//	lang, name, argv0, cwd  of the body; the defaults are what an honest client says
//	output KIND:NAME...     the body's outputs, or "none"
//	since FAMILY VERSION    compilers before that do not have what it needs; where one does, the control must be
//	                        breached by it. Without the version: all of the family have it
//	limit, cancel DURATION  that the job asks for; when it is taken back
//	repeat N, sink N        so many at once on one connection; bytes for the result
//	with tenant             another client's job runs meanwhile
//	toolchain, encoded X    see wire
//	form sources            with file, bring, same, link, dir, front, compiler: see sources.txt
//	source, sourcefile F, nosource
//
// In each line {NAME} is a place of the judge's (see plant) or of the compiler's (see
// site.about), %N|text| is N times text; a line of a source that begins with %N% is N lines,
// %i in it the line's number.
package attacks

import (
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

//go:embed corpus/*.txt
var corpusFiles embed.FS

// compilers are the names that a corpus knows compilers by.
var compilers = []string{"gcc", "g++", "clang", "clang++"}

// attack is one entry of the corpus.
type attack struct {
	id, class, vector, must string
	compilers               []string
	args, leaks             map[string][]string // by compiler
	oracles                 []string
	since                   map[string]int // by family
	env                     []string
	lang, name, argv0, cwd  *string
	outputs                 []string
	limit, cancel           time.Duration
	repeat, sink            int
	tenant                  bool
	toolchain               string
	encoded                 *string
	source                  string
	sourcefile              string
	nosource                bool

	sources  bool
	files    []file
	links    [][2]string
	dirs     []string
	front    int
	compiler string
}

// file is one that a job of the sources form brings.
type file struct {
	name, text string
	bring      string // a file of the judge's that it is a copy of
	same       int    // 1 + the index of another one
}

// trial is an attack by one compiler.
type trial struct {
	*attack
	cc string
}

func (t trial) String() string { return t.id + "/" + t.cc }

func compilerList(s string) []string {
	var list []string
	for _, w := range strings.Split(s, ",") {
		switch w {
		case "*":
			list = append(list, compilers...)
		case "gcc*":
			list = append(list, "gcc", "g++")
		case "clang*":
			list = append(list, "clang", "clang++")
		default:
			list = append(list, w)
		}
	}
	return list
}

// corpus reads all attacks.
func corpus(t testing.TB) []*attack {
	t.Helper()
	var all []*attack
	entries, err := corpusFiles.ReadDir("corpus")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := corpusFiles.ReadFile("corpus/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		list, err := parseCorpus(string(b))
		if err != nil {
			t.Fatalf("%s: %v", e.Name(), err)
		}
		all = append(all, list...)
	}
	return all
}

func parseCorpus(text string) ([]*attack, error) {
	var all []*attack
	var a *attack
	var on []string
	var into *string // lines behind a tab go there
	for i, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "\t"); ok {
			if into == nil {
				return nil, fmt.Errorf("line %d: text of nothing", i+1)
			}
			*into += rest + "\n"
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		switch {
		case word == "" || word == "#" || strings.HasPrefix(word, "#"):
			continue
		case word == "=":
			f := strings.Fields(rest)
			if len(f) != 5 {
				return nil, fmt.Errorf("line %d: %q", i+1, line)
			}
			a = &attack{id: f[0], class: f[1], vector: f[2], compilers: compilerList(f[3]), must: f[4], args: map[string][]string{}, leaks: map[string][]string{}, since: map[string]int{}, repeat: 1}
			all = append(all, a)
			on, into = a.compilers, nil
			continue
		case a == nil:
			return nil, fmt.Errorf("line %d: before the first attack", i+1)
		}
		if err := a.line(word, rest, &on, &into); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return all, nil
}

// line takes a line of an attack.
func (a *attack) line(word, rest string, on *[]string, into **string) error {
	*into = nil
	switch word {
	case "on":
		*on = slices.DeleteFunc(compilerList(rest), func(cc string) bool { return !slices.Contains(a.compilers, cc) })
	case "args", "leak":
		m := a.args
		if word == "leak" {
			m = a.leaks
		}
		w, err := splitWords(repeated(rest))
		if err != nil {
			return err
		}
		for _, cc := range *on {
			m[cc] = w
		}
	case "oracle":
		w, err := splitWords(rest)
		a.oracles = w
		return err
	case "env":
		w, err := splitWords(repeated(rest))
		a.env = w
		return err
	case "lang", "name", "argv0", "cwd", "encoded":
		w, err := splitWords(repeated(rest))
		if err != nil || len(w) > 1 {
			return fmt.Errorf("%s %s: one word", word, rest)
		}
		v := strings.ReplaceAll(strings.Join(w, ""), `\n`, "\n")
		*map[string]**string{"lang": &a.lang, "name": &a.name, "argv0": &a.argv0, "cwd": &a.cwd, "encoded": &a.encoded}[word] = &v
	case "output":
		a.outputs = strings.Fields(rest)
	case "since":
		family, version, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi("0" + version)
		if family != "gcc" && family != "clang" {
			err = fmt.Errorf("since %s: no such family", rest)
		}
		a.since[family] = n
		return err
	case "limit", "cancel":
		d, err := time.ParseDuration(rest)
		*map[string]*time.Duration{"limit": &a.limit, "cancel": &a.cancel}[word] = d
		return err
	case "repeat", "sink", "front":
		n, err := strconv.Atoi(rest)
		*map[string]*int{"repeat": &a.repeat, "sink": &a.sink, "front": &a.front}[word] = n
		return err
	case "with":
		a.tenant = true
	case "toolchain":
		a.toolchain = rest
	case "compiler":
		a.compiler = rest
	case "nosource":
		a.nosource = true
	case "sourcefile":
		a.sourcefile = rest
	case "source":
		*on, *into = a.compilers, &a.source
	case "form":
		a.sources = rest == "sources"
	default:
		return a.bodyLine(word, rest, into)
	}
	return nil
}

// bodyLine takes a line of the sources form.
func (a *attack) bodyLine(word, rest string, into **string) error {
	name, more, _ := strings.Cut(rest, " ")
	name = repeated(name)
	switch word {
	case "file":
		a.files = append(a.files, file{name: name})
		*into = &a.files[len(a.files)-1].text
	case "files": // so many
		n, err := strconv.Atoi(name)
		if err != nil {
			return err
		}
		for i := range n {
			a.files = append(a.files, file{name: repeated(strings.ReplaceAll(more, "%i", strconv.Itoa(i))), text: "int x;\n"})
		}
	case "bring":
		a.files = append(a.files, file{name: name, bring: more})
	case "same":
		n, err := strconv.Atoi(more)
		a.files = append(a.files, file{name: name, same: n})
		return err
	case "link":
		a.links = append(a.links, [2]string{name, repeated(more)})
	case "links":
		n, err := strconv.Atoi(name)
		for i := range n {
			w := strings.Fields(strings.NewReplacer("%i", strconv.Itoa(i), "%j", strconv.Itoa(i+1)).Replace(more))
			a.links = append(a.links, [2]string{w[0], w[1]})
		}
		return err
	case "dir":
		a.dirs = append(a.dirs, name)
	case "dirs":
		n, err := strconv.Atoi(name)
		for i := range n {
			a.dirs = append(a.dirs, repeated(strings.ReplaceAll(more, "%i", strconv.Itoa(i))))
		}
		return err
	default:
		return fmt.Errorf("no line begins with %q", word)
	}
	return nil
}

// splitWords splits at spaces; ' quotes, and ” is an empty word.
func splitWords(s string) ([]string, error) {
	var words []string
	var w strings.Builder
	quoted, some := false, false
	for _, c := range []byte(s) {
		switch {
		case c == '\'':
			quoted, some = !quoted, true
		case c == ' ' && !quoted:
			if some {
				words = append(words, w.String())
			}
			w.Reset()
			some = false
		default:
			w.WriteByte(c)
			some = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("%s: a quote is open", s)
	}
	if some {
		words = append(words, w.String())
	}
	return words, nil
}

var (
	inline = regexp.MustCompile(`%(\d+)\|([^|]*)\|`)
	whole  = regexp.MustCompile(`(?m)^%(\d+)% ?(.*)$`)
)

// repeated expands the repetitions of a text.
func repeated(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	s = whole.ReplaceAllStringFunc(s, func(m string) string {
		f := whole.FindStringSubmatch(m)
		n, _ := strconv.Atoi(f[1])
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(f[2], "%i", strconv.Itoa(i)))
			b.WriteByte('\n')
		}
		return b.String()
	})
	return inline.ReplaceAllStringFunc(s, func(m string) string {
		f := inline.FindStringSubmatch(m)
		n, _ := strconv.Atoi(f[1])
		return strings.Repeat(strings.ReplaceAll(f[2], `\0`, "\x00"), n)
	})
}

// works reports whether the control has to be breached by a trial with a compiler.
func (t trial) works(family string, major int) bool {
	since, ok := t.since[family]
	return ok && major >= since
}

// trials are the attacks, each by the compilers of have that it is for.
func trials(all []*attack, have map[string]bool) []trial {
	var list []trial
	for _, a := range all {
		for _, cc := range a.compilers {
			if have[cc] {
				list = append(list, trial{a, cc})
			}
		}
	}
	return list
}

// TestCorpus: the corpus is what its head says, and large enough.
func TestCorpus(t *testing.T) {
	all := corpus(t)
	ids, classes, vectors, forms := map[string]bool{}, map[string]int{}, map[string]int{}, map[bool]int{}
	for _, a := range all {
		if ids[a.id] {
			t.Errorf("two attacks are called %s", a.id)
		}
		ids[a.id] = true
		classes[a.class]++
		vectors[a.vector]++
		forms[a.sources]++
		if a.must != "reject" && a.must != "contain" {
			t.Errorf("%s must %s", a.id, a.must)
		}
		for _, cc := range a.compilers {
			if !slices.Contains(compilers, cc) {
				t.Errorf("%s is for %q", a.id, cc)
			}
		}
		for cc := range maps.Keys(a.args) {
			if !slices.Contains(a.compilers, cc) {
				t.Errorf("%s has arguments for %s, which it is not for", a.id, cc)
			}
		}
		if a.sources != (len(a.files) > 0) {
			t.Errorf("%s: files without the sources form, or the other way round", a.id)
		}
	}
	for _, c := range []string{"exec", "read", "write", "net", "dos", "info"} {
		if classes[c] < 10 {
			t.Errorf("%d attacks of class %s", classes[c], c)
		}
		delete(classes, c)
	}
	for _, v := range []string{"arg", "src", "env", "argv0", "body"} {
		if vectors[v] < 5 {
			t.Errorf("%d attacks with vector %s", vectors[v], v)
		}
		delete(vectors, v)
	}
	if len(classes)+len(vectors) > 0 {
		t.Errorf("classes %v, vectors %v", classes, vectors)
	}
	if len(all) < 200 || forms[true] < 40 {
		t.Errorf("%d attacks, %d of them with files", len(all), forms[true])
	}
	t.Logf("%d attacks, %d of them with files; %d jobs with all four compilers", len(all), forms[true], len(trials(all, map[string]bool{"gcc": true, "g++": true, "clang": true, "clang++": true})))
}
