// Package driver finds out which programs a gcc driver command stands for, so
// that they can be run without it.
//
// A driver costs about 1 ms a run: it finds its parts, reads its specs, and
// starts cc1 and as. What it would start depends on the options alone, so one
// `gcc -###` for a set of options serves every later command with the same set.
//
// The package is pure and small, as it is linked into the wrapper, which runs once
// for each source file. Package recipes asks the driver and keeps the answers.
package driver

import (
	"errors"
	"strings"
)

// Placeholders stand for names in the words about which the driver is asked. They mean nothing to the
// driver except for their suffix, which it looks at.
const (
	Source = "@rdistcc-source@.x"
	Output = "@rdistcc-dir@/@rdistcc-output@.o"
	Target = "@rdistcc-target@.o" // of a dependency rule (-MT, -MQ)
	Deps   = "@rdistcc-deps@.d"   // of a dependency file (-MF)

	temp       = "@rdistcc-temp@.s" // the assembly between cc1 and as
	mark       = "@rdistcc-"        // in all of them
	sourceBase = "@rdistcc-source@"
	outputBase = "@rdistcc-output@"
	outputDir  = "@rdistcc-dir@/"
	sourceExt  = ".x"
)

// ErrNotPlain means that the command is not just cc1, or cc1 and as: run the driver itself.
var ErrNotPlain = errors.New("driver does more than cc1 and as")

// Recipe is what one driver command stands for. It is immutable.
type Recipe struct {
	steps [][]string // words of each program, the program's path first
}

// Names holds the names that replace the placeholders.
type Names struct {
	Source, Output, Target, Deps string
	Temp                         string // a file for the assembly
}

// Parse reads what `gcc -###` writes for words that name Source as the only input: a line that starts with a space
// is a program to be run, all others are remarks. If there is more than a compiler and an assembler, a pipe between
// them, or a message of the driver, the error is ErrNotPlain.
func Parse(text string) (*Recipe, error) {
	for line := range strings.Lines(text) {
		if Tells(line) {
			return nil, ErrNotPlain
		}
	}
	steps, err := Commands(text)
	if err != nil {
		return nil, err
	}
	r := &Recipe{steps: steps}
	if err := r.generalize(); err != nil {
		return nil, err
	}
	return r, nil
}

// Tells reports whether a line is a message of the driver's, such as about a word without effect, which
// would be lost if only the commands were run. Such a line begins with the driver's name, in every
// language.
func Tells(line string) bool {
	name, _, ok := strings.Cut(line, ": ")
	return ok && name != "Target" && name != "InstalledDir" && !strings.ContainsAny(name, " =\"")
}

// Commands returns the words of each program in what `gcc -###` or `clang -###` writes. A pipe between two is
// ErrNotPlain.
func Commands(text string) ([][]string, error) {
	var steps [][]string
	for _, line := range commandLines(text) {
		words, piped, err := split(line)
		if err != nil {
			return nil, err
		}
		if piped || len(words) == 0 { // only spaces: not a program
			return nil, ErrNotPlain
		}
		if len(words) == 1 && words[0] == "(in-process)" {
			continue // a remark of clang's
		}
		steps = append(steps, words)
	}
	return steps, nil
}

// commandLines cuts text at newlines outside of quotes and keeps the commands.
func commandLines(text string) []string {
	var lines []string
	start, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			if quoted {
				i++
			}
		case '"':
			// Remarks may contain a lone quote; only commands are quoted by rule.
			if start < len(text) && text[start] == ' ' {
				quoted = !quoted
			}
		case '\n':
			if quoted {
				continue
			}
			if line := text[start:i]; strings.HasPrefix(line, " ") {
				lines = append(lines, line)
			}
			start = i + 1
		}
	}
	return lines
}

// split undoes the driver's quoting: words with anything except letters, digits and _ / - . are in double
// quotes, with a backslash before " \ and $. piped says that the program's output goes to the next one.
func split(line string) (words []string, piped bool, err error) {
	for i := 0; i < len(line); {
		if line[i] == ' ' {
			i++
			continue
		}
		var w []byte
		if line[i] != '"' {
			for ; i < len(line) && line[i] != ' '; i++ {
				if line[i] == '|' {
					if w != nil || line[i:] != "|" {
						return nil, false, ErrNotPlain
					}
					return words, true, nil
				}
				w = append(w, line[i])
			}
		} else {
			for i++; ; i++ {
				if i >= len(line) {
					return nil, false, ErrNotPlain
				}
				if line[i] == '"' {
					i++
					break
				}
				if line[i] == '\\' && i+1 < len(line) {
					i++
				}
				w = append(w, line[i])
			}
		}
		words = append(words, string(w))
	}
	return words, false, nil
}

// generalize checks the programs and puts a placeholder where the driver chose a temporary file.
func (r *Recipe) generalize() error {
	if len(r.steps) == 0 {
		return ErrNotPlain
	}
	cc1 := r.steps[0]
	if name := program(cc1); name != "cc1" && name != "cc1plus" && name != "cc1obj" && name != "cc1objplus" {
		return ErrNotPlain
	}
	if !contains(cc1, Source) {
		return ErrNotPlain
	}
	if len(r.steps) == 1 {
		return nil
	}
	as := r.steps[1]
	n := len(cc1)
	if !runs(as, "as") || n < 3 || cc1[n-2] != "-o" || as[len(as)-1] != cc1[n-1] {
		return ErrNotPlain
	}
	cc1[n-1], as[len(as)-1] = temp, temp
	// With -gsplit-dwarf the debug information is extracted from the object.
	for _, words := range r.steps[2:] {
		if !runs(words, "objcopy") {
			return ErrNotPlain
		}
	}
	return nil
}

// program returns the base name of the program that words run.
func program(words []string) string { return base(words[0]) }

// runs reports whether words run a program of this name, which may have a target in front: Debian's gcc 15 runs x86_64-linux-gnu-as.
func runs(words []string, name string) bool {
	p := program(words)
	return p == name || strings.HasSuffix(p, "-"+name)
}

// base returns a name without its directory.
func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func contains(words []string, w string) bool {
	for _, x := range words {
		if x == w {
			return true
		}
	}
	return false
}

// Front returns the recipe of a command that begins with words, with these right after the source of its first program: that
// is where a driver puts the expansion of -march=native. The command's other words stay where they are, also if they are among
// words: of two that are the same, a driver passes on the last one only.
func (r *Recipe) Front(words, others []string) *Recipe {
	rest := append([]string(nil), r.steps[0]...)
	for _, w := range words {
		first, n := -1, 0
		for i := range rest {
			if rest[i] == w {
				if n++; n == 1 {
					first = i
				}
			}
		}
		if n > 1 || n == 1 && !contains(others, w) {
			rest = append(rest[:first], rest[first+1:]...)
		}
	}
	var first []string
	for i, w := range rest {
		first = append(first, w)
		if w == Source && rest[i-1] != "-dumpbase" {
			first = append(first, words...)
		}
	}
	return &Recipe{steps: append([][]string{first}, r.steps[1:]...)}
}

// Steps returns the number of programs: 1 if the driver only preprocesses or compiles to assembly, 2 if it
// also assembles, 4 if it extracts the debug information from the object.
func (r *Recipe) Steps() int { return len(r.steps) }

// Step returns the words of program i, its path first, with n's names. A path without a slash must be
// looked up on PATH, as the driver does. The driver would exit with status 1 for any failure of a program,
// and then remove n.Output.
func (r *Recipe) Step(i int, n Names) []string {
	all := r.steps[i]
	words := make([]string, 0, len(all))
	for k, w := range all {
		before := ""
		if k > 0 {
			before = all[k-1]
		}
		if w == "-dumpdir" && k+1 < len(all) && all[k+1] == outputDir && dir(n.Output) == "" || w == outputDir && dir(n.Output) == "" {
			continue // the driver passes it only if there is one
		}
		words = append(words, n.fill(w, before))
	}
	return words
}

// fill replaces a placeholder in a word that follows another. Words that contain one among other text are
// names that the driver derived, such as the base name of dumps.
func (n *Names) fill(w, before string) string {
	switch {
	case w == sourceExt && before == "-dumpbase-ext":
		return ext(n.Source)
	case !strings.Contains(w, mark):
		return w
	case w == Source && before != "-dumpbase":
		return n.Source
	case w == Output && n.Output != "":
		return n.Output
	case w == Target:
		return n.Target
	case w == Deps:
		return n.Deps
	case w == temp:
		return n.Temp
	}
	if s, ok := strings.CutSuffix(w, sourceExt); ok {
		w = s + ext(n.Source)
	}
	w = strings.ReplaceAll(w, outputDir, dir(n.Output))
	w = strings.ReplaceAll(w, sourceBase, stem(n.Source))
	return strings.ReplaceAll(w, outputBase, stem(n.Output))
}

// dir returns the part of a name up to its last slash.
func dir(name string) string { return name[:strings.LastIndexByte(name, '/')+1] }

// stem returns a name without its directory and its last extension.
func stem(name string) string { return strings.TrimSuffix(base(name), ext(name)) }

// ext returns the last extension of a name, with its dot.
func ext(name string) string {
	name = base(name)
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		return name[i:]
	}
	return ""
}

// Words returns the words of program i with their placeholders, to be replaced elsewhere by Fill.
func (r *Recipe) Words(i int) []string { return r.steps[i] }

// Fill replaces the placeholders in words that Words returned by n's names.
func Fill(words []string, n Names) []string {
	r := Recipe{steps: [][]string{words}}
	return r.Step(0, n)
}
