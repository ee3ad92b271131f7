// Package honest has argument lists as real builds give them to compilers: a
// daemon must accept them, and a wrapper must not keep them without need.
//
// packages.txt is from builds of Debian's packages, recorded by the program in
// harvest; styles.txt is written by hand, in the style of projects and distributions.
// A line is one list: the compiler and its words. In a word \xHH stands for a byte;
// blanks, backslashes and $ are written that way. The words of the one response
// file that a list may name follow <<. The source file and its directories have other names
// than in the build, and the directory of the build is Root with the package's name.
//
// Two kinds of lines are not lists: "package NAME VERSION" says where the lists below
// are from, and "let N WORDS" makes $N stand for these words down to the next package.
package honest

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed packages.txt styles.txt
var files embed.FS

// Root precedes the names of files in a build's own directory.
const Root = "/home/user/"

// List is one command.
type List struct {
	Package  string   // Debian's source package; "": written by hand
	Words    []string // the compiler and its words
	Response []string // words in the file that "@NAME" among Words stands for; nil: no such word
}

// String returns the list as a line of the files, without "let".
func (l List) String() string {
	line := Line(l.Words)
	if l.Response != nil {
		line += " << " + Line(l.Response)
	}
	return line
}

// Expanded returns the words with the response file replaced by its words.
func (l List) Expanded() (words []string) {
	for _, w := range l.Words {
		if l.Response != nil && strings.HasPrefix(w, "@") {
			words = append(words, l.Response...)
		} else {
			words = append(words, w)
		}
	}
	return words
}

// All returns the lists of both files.
func All() (lists []List, err error) {
	for _, name := range []string{"packages.txt", "styles.txt"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		some, err := Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		lists = append(lists, some...)
	}
	return lists, nil
}

// Parse parses a file. The error names the invalid line.
func Parse(text string) (lists []List, err error) {
	pkg, lets := "", map[string][]string{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		switch fields[0] {
		case "package":
			if len(fields) != 3 {
				return nil, fmt.Errorf("line %q", line)
			}
			pkg, lets = fields[1], map[string][]string{}
			continue
		case "let":
			if len(fields) < 3 {
				return nil, fmt.Errorf("line %q", line)
			}
			lets["$"+fields[1]] = fields[2:]
			continue
		}
		l := List{Package: pkg}
		to := &l.Words
		for _, f := range fields {
			if f == "<<" {
				l.Response = []string{}
				to = &l.Response
				continue
			}
			some := []string{f}
			if strings.HasPrefix(f, "$") {
				if some = lets[f]; some == nil {
					return nil, fmt.Errorf("%s is not there: %q", f, line)
				}
			}
			for _, w := range some {
				*to = append(*to, unescape(w))
			}
		}
		lists = append(lists, l)
	}
	return lists, nil
}

// Line formats words as they appear in a line; none of them is empty.
func Line(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		for _, c := range []byte(w) {
			if c <= ' ' || c == '\\' || c == '$' || c >= 0x7f {
				fmt.Fprintf(&b, `\x%02x`, c)
			} else {
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}

func unescape(w string) string {
	if !strings.Contains(w, `\x`) {
		return w
	}
	var b strings.Builder
	for i := 0; i < len(w); i++ {
		if strings.HasPrefix(w[i:], `\x`) && i+4 <= len(w) {
			if n, err := strconv.ParseUint(w[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(w[i])
	}
	return b.String()
}

// AtHome returns the reasons of docs/sandbox.md for which a command runs locally on
// purpose.
func AtHome(page string) map[string]bool {
	reasons := map[string]bool{}
	_, section, _ := strings.Cut(page, "\n### What always runs locally\n")
	section, _, _ = strings.Cut(section, "\n##")
	for line := range strings.Lines(section) {
		if reason, ok := strings.CutPrefix(line, "| `"); ok {
			reason, _, _ = strings.Cut(reason, "`")
			reasons[reason] = true
		}
	}
	return reasons
}
