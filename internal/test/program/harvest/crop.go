package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/test/kit/honest"
)

// crop is the yield of one package.
type crop struct {
	name, version              string
	commands, distinct, shapes int
	lists                      []honest.List // distinct, in the order of the builds; after choose, those chosen

	seen map[string]bool
}

// add takes a recorded command of a build in dir.
func (c *crop) add(r recorded, dir string) {
	if !isCompile(r.Words) || !slices.ContainsFunc(r.Words[1:], honest.IsSource) && r.Response == nil {
		return
	}
	c.commands++
	l := honest.List{Package: c.name, Words: c.renamed(r.Words, dir)}
	if r.Response != nil {
		l.Response = c.renamed(r.Response, dir)
	}
	if slices.Contains(l.Words, "") || slices.Contains(l.Response, "") {
		return
	}
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	if line := l.String(); !c.seen[line] {
		c.seen[line] = true
		c.distinct++
		c.lists = append(c.lists, l)
	}
}

// renamed gives the files of a command names that are the same in all commands. The directory is kept as
// far as it may matter.
func (c *crop) renamed(words []string, dir string) []string {
	words = slices.Clone(words)
	for i, w := range words {
		if i > 0 {
			words[i] = strings.ReplaceAll(w, dir, honest.Root+c.name)
		}
	}
	sources := 0
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case slices.Contains([]string{"-o", "-MF", "-MT", "-MQ"}, w) && i+1 < len(words):
			i++
			words[i] = renamed(words[i], "out")
		case slices.Contains([]string{"-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-I", "-D", "-U", "-x"}, w):
			i++
		case strings.HasPrefix(w, "-Wp,-MD,"), strings.HasPrefix(w, "-Wp,-MMD,"):
			if parts := strings.Split(w, ","); len(parts) == 3 {
				words[i] = parts[0] + "," + parts[1] + "," + renamed(parts[2], "out")
			}
		case strings.HasPrefix(w, "@"):
			words[i] = "@" + renamed(w[1:], "out")
		case honest.IsSource(w):
			words[i] = renamed(w, "src")
			if sources++; sources > 1 { // others have other names
				words[i] = strings.TrimSuffix(words[i], path.Ext(w)) + fmt.Sprint(sources) + path.Ext(w)
			}
		}
	}
	return words
}

// renamed returns a file's new name: "a" with its suffixes and any leading dot, in a directory reduced to what may
// matter: whether it is the build's own or above it, and the directories of libtool and automake.
func renamed(name, sub string) string {
	dir, base := path.Split(name)
	ext := ""
	for e := path.Ext(base); e != "" && e != base && len(e) <= 5 && strings.Trim(e, ".0123456789") != ""; e = path.Ext(base) {
		base, ext = strings.TrimSuffix(base, e), e+ext
	}
	stem := "a"
	if strings.HasPrefix(base, ".") {
		stem = ".a"
	}
	front := ""
	for _, f := range []string{"./", "/"} {
		if strings.HasPrefix(dir, f) {
			front = f
		}
	}
	if rest, ok := strings.CutPrefix(dir, honest.Root); ok {
		pkg, _, _ := strings.Cut(rest, "/")
		front = honest.Root + pkg + "/"
	}
	for strings.HasPrefix(dir[len(front):], "../") {
		front += "../"
	}
	for _, d := range []string{".libs/", ".deps/"} {
		if strings.HasSuffix(dir, d) {
			return front + d + stem + ext
		}
	}
	if dir == front {
		return front + stem + ext
	}
	return front + sub + "/" + stem + ext
}

// choose keeps at most each lists of one shape and most in all: first one of each shape, evenly over the builds.
func (c *crop) choose(each, most int) {
	shapes := map[string]int{}
	rounds := make([][]honest.List, each)
	for _, l := range c.lists {
		s := l.Shape()
		if n := shapes[s]; n < each {
			rounds[n] = append(rounds[n], l)
		}
		shapes[s]++
	}
	c.shapes = len(shapes)
	c.lists = nil
	for _, round := range rounds {
		room := most - len(c.lists)
		if len(round) > room {
			var some []honest.List
			for i := range room {
				some = append(some, round[i*len(round)/room])
			}
			round = some
		}
		c.lists = append(c.lists, round...)
	}
	slices.SortFunc(c.lists, func(a, b honest.List) int { return strings.Compare(a.String(), b.String()) })
}

const head = `# Argument lists of builds of Debian's packages: doc.go says how to read them. Made by
#
#	go run ./internal/test/program/harvest -out internal/test/kit/honest/packages.txt
#
# which builds each package by its own build system in ten ways (recipes.go): as it comes, with the flags of Debian and
# in the manner of other distributions and of developers, with gcc and clang. Of lists of one shape a few are kept.
`

// text returns the file: what was chosen, and from an old file the packages that are not among that. No
// list occurs twice: if two packages have the same, the old one's is kept, or the first one's.
func text(all []crop, old string) (string, error) {
	sections := map[string]string{} // by package
	name := ""
	for line := range strings.Lines(old) {
		if rest, ok := strings.CutPrefix(line, "package "); ok {
			name, _, _ = strings.Cut(rest, " ")
		}
		if name != "" {
			sections[name] += line
		}
	}
	lists, err := honest.Parse(old)
	if err != nil {
		return "", err
	}
	seen := map[string]bool{}
	for _, l := range lists {
		if !slices.ContainsFunc(all, func(c crop) bool { return c.name == l.Package }) {
			seen[l.String()] = true
		}
	}
	for _, c := range all {
		c.lists = slices.DeleteFunc(c.lists, func(l honest.List) bool {
			was := seen[l.String()]
			seen[l.String()] = true
			return was
		})
		sections[c.name] = c.text()
	}
	var b strings.Builder
	b.WriteString(head)
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		b.WriteString(sections[name])
	}
	return b.String(), nil
}

// text returns the package's part of the file.
func (c *crop) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s %s\n", c.name, c.version)
	lines := make([][]string, len(c.lists))
	for i, l := range c.lists {
		lines[i] = strings.Fields(l.String())
	}
	for n := 1; n <= 40; n++ {
		run := longest(lines)
		if len(run) == 0 {
			break
		}
		name := fmt.Sprint(n)
		fmt.Fprintf(&b, "let %s %s\n", name, strings.Join(run, " "))
		for i := range lines {
			lines[i] = replaced(lines[i], run, "$"+name)
		}
	}
	for _, l := range lines {
		fmt.Fprintln(&b, strings.Join(l, " "))
	}
	return b.String()
}

// longest returns the run of words that saves most if it is written only once.
func longest(lines [][]string) []string {
	type found struct{ n, last int }
	runs := map[string]*found{}
	for i, l := range lines {
		for from := 1; from < len(l); from++ {
			size := 0
			for to := from; to < len(l) && to < from+60; to++ {
				if strings.HasPrefix(l[to], "$") || l[to] == "<<" {
					break
				}
				size += len(l[to]) + 1
				if size < 24 {
					continue
				}
				key := strings.Join(l[from:to+1], " ")
				if r := runs[key]; r == nil {
					runs[key] = &found{n: 1, last: i}
				} else if r.last != i {
					r.n++
					r.last = i
				}
			}
		}
	}
	best, gain := "", 150
	for _, key := range slices.Sorted(maps.Keys(runs)) {
		if g := (runs[key].n - 1) * (len(key) - 4); g > gain {
			best, gain = key, g
		}
	}
	return strings.Fields(best)
}

func replaced(line, run []string, by string) (out []string) {
	for i := 0; i < len(line); {
		if i+len(run) <= len(line) && slices.Equal(line[i:i+len(run)], run) {
			out = append(out, by)
			i += len(run)
			continue
		}
		out = append(out, line[i])
		i++
	}
	return out
}
