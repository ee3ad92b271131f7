package compile

import (
	"slices"
	"strings"
	"syscall"
)

// A spec file tells gcc's driver which words to give to cc1 and as, and even which programs to run. No host gets one.
// Most of them add a few options, such as -fPIE, and the command can be spelt without the file: the caller asks the driver
// what it would run for the command as typed, and for the other spelling, and compares (driver.Answer).

// SpecFiles returns the spec files that the command names, as typed. The plan then stands for nothing until the caller
// has found the same command without them.
func (p *Plan) SpecFiles() (names []string) {
	for _, o := range p.options {
		if o.class == specFile {
			names = append(names, o.arg)
		}
	}
	return names
}

// Respelt returns the command's words without those for spec files and without each of the options in without; first come
// before all others, and last after them.
func (p *Plan) Respelt(without, first, last []string) []string {
	words := append([]string(nil), first...)
	for _, o := range p.options {
		if o.class == specFile || o.class != source && len(o.words) == 1 && slices.Contains(without, o.words[0]) {
			continue
		}
		words = append(words, o.words...)
	}
	return append(words, last...)
}

// Recorded reports whether the object, or a side file, has the words of the command in their order, even those that debug
// information leaves out.
func (p *Plan) Recorded() bool { return p.recorded() || p.logged() }

// Bounds of the spec files that a command may name.
const (
	maxSpecFiles = 32
	maxSpecs     = 1 << 20 // bytes of one of them
)

// SpecsAgain reports whether spec files, and those that they include, have the same content each time that the driver reads
// them: a pipe, say, would be empty for the run that compiles. Names that the driver finds only in its own directories are left
// to it.
func SpecsAgain(names []string) bool {
	read := 0
	for _, name := range names {
		if !specAgain(name, &read) {
			return false
		}
	}
	return true
}

// specAgain does that for one file. read counts them.
func specAgain(name string, read *int) bool {
	var st, in syscall.Stat_t
	if syscall.Stat(name, &st) != nil {
		return true
	}
	if *read++; *read > maxSpecFiles || isDevice(name) || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return false
	}
	if syscall.Fstat(0, &in) == nil && in.Dev == st.Dev && in.Ino == st.Ino {
		return false // perhaps by a link to /dev/stdin
	}
	text, ok := readUpTo(name, maxSpecs)
	if !ok {
		return false
	}
	for {
		var name string
		if _, text, ok = strings.Cut(text, "%include"); !ok {
			return true
		}
		line, _, _ := strings.Cut(text, "\n")
		if _, line, ok = strings.Cut(line, "<"); !ok {
			continue
		}
		if name, _, ok = strings.Cut(line, ">"); ok && !specAgain(name, read) {
			return false
		}
	}
}
