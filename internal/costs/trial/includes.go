package trial

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// includes lists what the unit includes, in its order.
func (c *command) includes(ctx context.Context, dir string) ([]include, error) {
	r, err := c.run(ctx, dir, "-H", "-E", "-o", os.DevNull, c.source)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.source)
	if err != nil {
		return nil, err
	}
	list := c.listed(r.err)
	spell(list, string(text))
	return list, nil
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

// line returns the line that includes the header from another directory.
func (i *include) line() string {
	if i.spelled[0] == '<' {
		return "#include " + i.spelled + "\n"
	}
	return "#include " + strconv.Quote(i.file) + "\n" // which is what the directory of the unit makes of the name
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
