package driver

import (
	"slices"
	"strings"
)

// Answer is what `gcc -###` said of one command: the programs that it stands for, and remarks. Two commands with the same
// answer make the same object and print the same messages. Spec files cannot tell -### from a run: the driver does not keep
// that word among the options that they may ask for.
type Answer struct {
	steps   [][]string
	remarks []string
}

// ReadAnswer reads what `gcc -###` printed. Other than Parse, it takes pipes, and any program.
func ReadAnswer(text string) (*Answer, error) {
	a := &Answer{}
	for _, line := range commandLines(text) {
		words, piped, err := split(line)
		if err != nil {
			return nil, err
		}
		if len(words) == 0 {
			return nil, ErrNotPlain
		}
		if piped {
			words = append(words, "|")
		}
		a.steps = append(a.steps, words)
	}
	if len(a.steps) == 0 {
		return nil, ErrNotPlain
	}
	for line := range strings.Lines(text) {
		// The variable has the command as it was typed. It is for the linker.
		if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "COLLECT_GCC_OPTIONS=") {
			a.remarks = append(a.remarks, line)
		}
	}
	a.generalize()
	return a, nil
}

// generalize puts a placeholder where the driver chose a temporary file: between the compiler and the assembler, or for the text
// that nobody reads if the compiler makes a precompiled header.
func (a *Answer) generalize() {
	cc1 := a.steps[0]
	n := len(cc1)
	if n > 4 && cc1[n-2] == "--output-pch=" && cc1[n-4] == "-o" {
		cc1[n-3] = temp
	}
	if len(a.steps) < 2 {
		return
	}
	as := a.steps[1]
	if name := as[len(as)-1]; runs(as, "as") && n > 2 && cc1[n-2] == "-o" && cc1[n-1] == name {
		cc1[n-1], as[len(as)-1] = temp, temp
	}
}

// Like reports whether a command whose answer is a makes what the command of b makes, with the same messages. a may have
// silent remarks in addition, such as which spec files it has read. loose says that words of cc1 may come in another order
// if only debug information without its command line could tell: definitions among other words, directories for headers
// among others.
func (a *Answer) Like(b *Answer, loose bool) bool {
	i := 0
	for _, line := range a.remarks {
		if i < len(b.remarks) && b.remarks[i] == line {
			i++
		} else if Tells(line) {
			return false
		}
	}
	if i < len(b.remarks) || len(a.steps) != len(b.steps) {
		return false
	}
	for i, words := range a.steps {
		if slices.Equal(words, b.steps[i]) {
			continue
		}
		if i > 0 || !loose || !slices.EqualFunc(groups(words), groups(b.steps[i]), slices.Equal) {
			return false
		}
	}
	return true
}

// Beside returns the options of cc1 that a has in addition to those of b, and the words that only b has. ok is false if the
// two differ in more than that.
func (a *Answer) Beside(b *Answer) (more, less []string, ok bool) {
	if len(a.steps) != len(b.steps) || a.steps[0][0] != b.steps[0][0] {
		return nil, nil, false
	}
	for i := range a.steps[1:] {
		if !slices.Equal(a.steps[i+1], b.steps[i+1]) {
			return nil, nil, false
		}
	}
	x, y := options(a.steps[0][1:]), options(b.steps[0][1:])
	for len(x) > 0 && len(y) > 0 && slices.Equal(x[0], y[0]) {
		x, y = x[1:], y[1:]
	}
	for len(x) > 0 && len(y) > 0 && slices.Equal(x[len(x)-1], y[len(y)-1]) {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	if len(x) > maxDiffer || len(y) > maxDiffer {
		return nil, nil, false
	}
	// common[i][j] is the length of the longest sequence that x[i:] and y[j:] have in common.
	common := make([][]int, len(x)+1)
	for i := range common {
		common[i] = make([]int, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); slices.Equal(x[i], y[j]) {
				common[i][j] = max(common[i][j], common[i+1][j+1]+1)
			}
		}
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && slices.Equal(x[i], y[j]):
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[i+1][j] >= common[i][j+1]:
			more = append(more, x[i]...)
			i++
		default:
			less = append(less, y[j]...)
			j++
		}
	}
	return more, less, true
}

// maxDiffer bounds the options that are compared one by one.
const maxDiffer = 256

// apart lists options of cc1 whose argument is a word of its own, or may be.
var apart = [...]string{
	"-D", "-U", "-A", "-I", "-iquote", "-isystem", "-idirafter", "-include", "-imacros", "-isysroot", "-iprefix", "-iwithprefix",
	"-iwithprefixbefore", "-imultilib", "-imultiarch", "-o", "-MF", "-MT", "-MQ", "-MD", "-MMD", "-dumpbase", "-dumpbase-ext", "-dumpdir",
	"-aux-info", "--param", "-x",
}

// options cuts cc1's words into options with their arguments. "-DX" becomes two words, as "-D X" is.
func options(words []string) (all [][]string) {
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case slices.Contains(apart[:], w) && i+1 < len(words):
			all = append(all, words[i:i+2])
			i++
		case len(w) > 2 && w[0] == '-' && strings.IndexByte("DUAI", w[1]) >= 0:
			all = append(all, []string{w[:2], w[2:]})
		default:
			all = append(all, words[i:i+1])
		}
	}
	return all
}

// groups returns cc1's words in groups whose order among each other means nothing: definitions, each list of directories, and
// everything else.
func groups(words []string) [][]string {
	all := make([][]string, 9)
	for _, o := range options(words) {
		k := 0
		switch o[0] {
		case "-D", "-U", "-A":
			k = 1
		case "-I":
			k = 2
		case "-iquote":
			k = 3
		case "-isystem":
			k = 4
		case "-idirafter":
			k = 5
		case "-o":
			k = 7
		case "-nostdinc", "-nostdinc++":
			if k = 6; slices.Contains(all[k], o[0]) {
				continue
			}
		default:
			// Spec files say this one again. The last one counts, and no object has it.
			if strings.HasPrefix(o[0], pluginDir) {
				if k = 8; len(all[k]) > 0 && all[k][len(all[k])-1] == o[0] {
					continue
				}
			}
		}
		all[k] = append(all[k], o...)
	}
	slices.Sort(all[6])
	return all
}

// pluginDir begins the word by which cc1 is told the directory of its plugins.
const pluginDir = "-iplugindir="

// Plugins returns the directory in which cc1 would look for plugins that are named without one, if it is told any, and how many
// plugins it would load.
func (a *Answer) Plugins() (dir string, n int) {
	for _, w := range a.steps[0] {
		if d, ok := strings.CutPrefix(w, pluginDir); ok {
			dir = d
		} else if strings.HasPrefix(w, "-fplugin=") {
			n++
		}
	}
	return dir, n
}
