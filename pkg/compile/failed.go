package compile

import (
	"bytes"
	"errors"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// ErrUnclear says that a compile failed in such a way that it is uncertain what the compiler
// does to existing output files. The caller compiles here.
var ErrUnclear = errors.New("cannot tell what the compiler leaves")

// Failed handles the outputs of a compile that failed elsewhere. It does to those that the
// compile did not write what the compiler does here: some are kept, others removed. came
// reports which of p.Outputs were written nevertheless; they are for Place, after Failed.
// said is what the compiler printed, and getenv returns the environment's variables.
//
// ErrUnclear comes before anything is changed.
func (p *Plan) Failed(status int, came func(i int) bool, said []byte, getenv func(string) (string, bool)) error {
	var removed []string
	for i, out := range p.Outputs {
		var st syscall.Stat_t
		if came(i) || retry(func() error { return syscall.Lstat(out.Name, &st) }) == syscall.ENOENT {
			continue
		}
		switch {
		case status != 1, p.modules.makes:
			return ErrUnclear // a crash, or one of two steps
		case p.Driver.Family == GCC:
			if (i != 0 || p.Syntax) && !strings.HasSuffix(out.Name, ".dwo") || !p.gccKeeps(said) || !english(getenv) {
				return ErrUnclear
			}
		case p.ownAs() == laterAs || !countsErrors(said):
			return ErrUnclear // one of several steps failed, or none: the driver's own error
		case out.Kind == unit.OutputDependency && lacksHeader(said) != no:
			if kind := st.Mode & syscall.S_IFMT; lacksHeader(said) == maybe || kind != syscall.S_IFREG && kind != syscall.S_IFLNK {
				return ErrUnclear
			}
			removed = append(removed, out.Name)
		case i != 0 || p.Syntax || p.ownAs() == gnuAs:
			// cc1 did not get as far as writing it.
		case retry(func() error { return syscall.Stat(out.Name, &st) }) != nil,
			st.Mode&syscall.S_IFMT != syscall.S_IFREG || syscall.Access(out.Name, wOK) != nil:
			return ErrUnclear
		default:
			removed = append(removed, out.Name)
		}
	}
	for _, name := range removed {
		if retry(func() error { return syscall.Unlink(name) }) != nil {
			return ErrUnclear
		}
	}
	return nil
}

// What can be said of a failed compile.
const (
	no = iota
	maybe
	yes
)

// lacksHeader reports whether clang missed a header, in which case it removes an older file of rules, which would not name that
// header. It says so, but for what comes behind another fatal error; and a source that it quotes may have the same words.
func lacksHeader(said []byte) (is int) {
	const notFound = "' file not found\n"
	for line := range bytes.Lines(said) {
		if !bytes.Contains(line, []byte("fatal error")) && !bytes.Contains(line, []byte("file not found")) {
			continue
		}
		before, what, found := bytes.Cut(line, []byte(": fatal error: '"))
		if !found || !bytes.HasSuffix(what, []byte(notFound)) || bytes.ContainsAny(before, " \t\"'") {
			is = max(is, maybe)
			continue
		}
		is = yes
	}
	return is
}

// gccKeeps reports whether gcc leaves an older object in place: it does when cc1 has failed,
// so that neither as nor objcopy was run. said must be English.
func (p *Plan) gccKeeps(said []byte) bool {
	if p.Outputs[0].Kind != unit.OutputObject || bytes.Contains(said, []byte("Assembler messages:")) {
		return false
	}
	for _, o := range p.options {
		if o.words[0] == "-pipe" {
			return false // both run
		}
	}
	for line := range bytes.Lines(said) {
		for _, kind := range [...]string{": error: ", ": fatal error: "} {
			if before, _, found := bytes.Cut(line, []byte(kind)); found && !bytes.Contains(before, []byte("warning: ")) {
				return true
			}
		}
	}
	return false
}

// countsErrors reports whether clang's compiler proper found errors. Unlike its driver, it
// counts them.
func countsErrors(said []byte) bool {
	return bytes.Contains(said, []byte(" error generated.\n")) || bytes.Contains(said, []byte(" errors generated.\n"))
}

// english reports whether messages are not translated.
func english(getenv func(string) (string, bool)) bool {
	locale := ""
	for _, name := range [...]string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if locale, _ = getenv(name); locale != "" {
			break
		}
	}
	switch language, _ := getenv("LANGUAGE"); {
	case locale == "" || locale == "C" || locale == "POSIX":
		return true // LANGUAGE is not consulted
	case language != "":
		return false
	}
	return strings.HasPrefix(locale, "en") || strings.HasPrefix(locale, "C.")
}
