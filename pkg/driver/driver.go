// Package driver finds out which programs a gcc driver command stands for, so
// that they can be run without it.
//
// A driver costs about 1 ms a run: it finds its parts, reads its specs, and
// starts cc1 and as. What it would start depends on the options alone, so one
// `gcc -###` for a set of options serves every later command with the same set.
//
// The package is pure and small, as the wrapper that runs once a source file
// links it; package recipes asks the driver and keeps the answers.
package driver

import (
	"errors"
	"strings"
)

// Placeholders stand for names in the words that the driver is asked about. They have no
// meaning to the driver, and an ending, as the driver looks at endings.
const (
	Source = "@rdistcc-source@.x"
	Output = "@rdistcc-output@.o"
	Target = "@rdistcc-target@.o" // of a dependency rule (-MT, -MQ)
	Deps   = "@rdistcc-deps@.d"   // of a dependency file (-MF)

	temp       = "@rdistcc-temp@.s" // the assembly between cc1 and as
	sourceBase = "@rdistcc-source@"
	outputBase = "@rdistcc-output@"
)

// ErrNotPlain says that the command is not just cc1, or cc1 and as: run the
// driver itself.
var ErrNotPlain = errors.New("driver does more than cc1 and as")

// Recipe is what one driver command stands for. It is immutable.
type Recipe struct {
	steps [][]string // words of each program, the program's path first
}

// Names are put in the place of the placeholders.
type Names struct {
	Source, Output, Target, Deps string
	Temp                         string // a file for the assembly
}

// Parse reads what `gcc -###` writes for words that name Source as the only
// input: a line that starts with a space is a program to
// be run, all others are remarks. More than a compiler and an assembler, or a
// pipe between them, is ErrNotPlain.
func Parse(text string) (*Recipe, error) {
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

// Commands reads the words of each program in what `gcc -###` or `clang -###`
// writes. A pipe between two is ErrNotPlain.
func Commands(text string) ([][]string, error) {
	var steps [][]string
	for _, line := range commandLines(text) {
		words, err := split(line)
		if err != nil {
			return nil, err
		}
		if len(words) == 0 { // of spaces only: no program
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
			// Remarks may hold a lone quote; only commands are quoted by rule.
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

// split undoes the driver's quoting: words with anything but letters, digits
// and _ / - . stand in double quotes, with a backslash before " \ and $.
func split(line string) ([]string, error) {
	var words []string
	for i := 0; i < len(line); {
		if line[i] == ' ' {
			i++
			continue
		}
		var w []byte
		if line[i] != '"' {
			for ; i < len(line) && line[i] != ' '; i++ {
				if line[i] == '|' {
					return nil, ErrNotPlain
				}
				w = append(w, line[i])
			}
		} else {
			for i++; ; i++ {
				if i >= len(line) {
					return nil, ErrNotPlain
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
	return words, nil
}

// generalize checks the programs and puts a placeholder where the driver chose
// a temporary file.
func (r *Recipe) generalize() error {
	if len(r.steps) == 0 || len(r.steps) > 2 {
		return ErrNotPlain
	}
	cc1 := r.steps[0]
	if base := cc1[0][strings.LastIndexByte(cc1[0], '/')+1:]; base != "cc1" && base != "cc1plus" {
		return ErrNotPlain
	}
	if !contains(cc1, Source) {
		return ErrNotPlain
	}
	if len(r.steps) == 1 {
		return nil
	}
	as := r.steps[1]
	if base := as[0][strings.LastIndexByte(as[0], '/')+1:]; base != "as" {
		return ErrNotPlain
	}
	if n := len(cc1); n < 3 || cc1[n-2] != "-o" || as[len(as)-1] != cc1[n-1] {
		return ErrNotPlain
	}
	cc1[len(cc1)-1], as[len(as)-1] = temp, temp
	return nil
}

func contains(words []string, w string) bool {
	for _, x := range words {
		if x == w {
			return true
		}
	}
	return false
}

// Steps returns the number of programs: 1 when the driver only preprocesses or
// compiles to assembly, 2 when it also assembles.
func (r *Recipe) Steps() int { return len(r.steps) }

// Step returns the words of program i, its path first, with n's names. A path
// without a slash is to be looked up on PATH, as the driver does.
func (r *Recipe) Step(i int, n Names) []string {
	words := make([]string, len(r.steps[i]))
	for k, w := range r.steps[i] {
		words[k] = n.fill(w)
	}
	return words
}

// fill replaces a placeholder. Words that hold one among other text are names
// that the driver derived, say the base name of dumps.
func (n *Names) fill(w string) string {
	switch w {
	case Source:
		return n.Source
	case Output:
		return n.Output
	case Target:
		return n.Target
	case Deps:
		return n.Deps
	case temp:
		return n.Temp
	}
	if !strings.Contains(w, "@rdistcc-") {
		return w
	}
	w = strings.ReplaceAll(w, sourceBase, stem(n.Source))
	return strings.ReplaceAll(w, outputBase, stem(n.Output))
}

// stem is a name without its directory and last ending.
func stem(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		name = name[:i]
	}
	return name
}

// Words returns the recipe as it is, placeholders included, to be filled
// elsewhere by Fill.
func (r *Recipe) Words(i int) []string { return r.steps[i] }

// Fill puts n's names into words that Words returned.
func Fill(words []string, n Names) []string {
	r := Recipe{steps: [][]string{words}}
	return r.Step(0, n)
}
