package trial

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// include is a header that a unit includes itself.
type include struct {
	spelled string   // as in the unit, with its quotes; empty: by a macro
	file    string   // absolute
	reads   []string // what it reads first in this unit, itself among them: absolute names
	before  []string // macros that the unit defines or undefines before it
}

var (
	listedLine    = regexp.MustCompile(`^(\.+) (.+)$`)
	includeLine   = regexp.MustCompile(`^[ \t]*#[ \t]*include[ \t]*(<[^>]+>|"[^"]+")`)
	directiveLine = regexp.MustCompile(`^[ \t]*#[ \t]*(?:define|undef)[ \t]+([A-Za-z_][A-Za-z_0-9]*)`)
)

// includes lists what the unit includes, in its order, and what its command does in front of it.
func (c *command) includes(ctx context.Context, dir string) (forced, list []include, err error) {
	r, err := c.run(ctx, dir, append(c.unitWords(), "-H", "-E", "-o", os.DevNull, c.source)...)
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(c.source)
	if err != nil {
		return nil, nil, err
	}
	list = c.listed(r.err)
	for _, name := range c.forced {
		i := include{spelled: name, file: name} // found as by the command's options
		if _, err := os.Stat(c.absolute(name)); err == nil {
			i.file = c.absolute(name)
		}
		// gcc lists it, and clang does not.
		if len(list) > 0 && (list[0].file == i.file || strings.HasSuffix(list[0].file, "/"+name)) {
			i.file, i.reads, list = list[0].file, list[0].reads, list[1:]
		}
		forced = append(forced, i)
	}
	spell(list, string(text))
	return forced, list, nil
}

// unitWords has what is included in front of the unit.
func (c *command) unitWords() (words []string) {
	for _, f := range c.forced {
		words = append(words, "-include", f)
	}
	return words
}

// listed reads the list that -H prints: a dot for each level.
func (c *command) listed(text string) (list []include) {
	for line := range strings.Lines(text) {
		m := listedLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		file := m[2]
		if !filepath.IsAbs(file) {
			file = filepath.Join(c.dir, file)
		}
		file = filepath.Clean(file)
		if len(m[1]) == 1 {
			list = append(list, include{file: file})
		}
		if n := len(list); n > 0 {
			list[n-1].reads = append(list[n-1].reads, file)
		}
	}
	return list
}

// spell finds the lines of the unit's text by which headers are included.
func spell(list []include, text string) {
	var before []string
	at := 0 // in list: lines come in its order, but for those in conditions that do not hold
	for line := range strings.Lines(text) {
		if m := directiveLine.FindStringSubmatch(line); m != nil && !slices.Contains(before, m[1]) {
			before = append(before, m[1])
		}
		m := includeLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := filepath.Clean(m[1][1 : len(m[1])-1])
		for strings.HasPrefix(name, "../") {
			name = name[len("../"):]
		}
		for i := at; i < len(list); i++ {
			if file := list[i].file; list[i].spelled == "" && (file == name || strings.HasSuffix(file, "/"+strings.TrimPrefix(name, "/"))) {
				list[i].spelled, list[i].before, at = m[1], slices.Clone(before), i+1
				break
			}
		}
	}
}

// line returns the line that includes, from another directory, the header of a unit in the directory dir.
func (i *include) line(dir string) string {
	if i.spelled[0] == '"' && i.file == filepath.Join(dir, i.spelled[1:len(i.spelled)-1]) {
		return "#include \"" + i.file + "\"\n"
	}
	return "#include " + i.spelled + "\n" // which the same options find; with its full name it would not be of the system where it is
}

// uses returns those of the macros before the header that stand in what it reads.
func (i *include) uses() (names []string) {
	if len(i.before) == 0 {
		return nil
	}
	word := regexp.MustCompile(`\b(?:` + strings.Join(i.before, "|") + `)\b`)
	for _, file := range i.reads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, name := range word.FindAllString(string(text), -1) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// linesOf returns how often each line stands in preprocessed text, without those that only say where they come from.
func linesOf(text string) map[string]int {
	lines := make(map[string]int)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines[line]++
		}
	}
	return lines
}
