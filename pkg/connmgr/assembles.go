package connmgr

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
)

// Inline assembler can name files (.incbin, .include), and can put these words together in ways that nothing but the assembler sees
// through: from pieces of strings, by macros. GNU's assembler lists what it has opened, in the form of a rule for make (as --MD).

// Why a compile here is not kept, in words for the user.
const (
	untoldClang     = "its compiler's own assembler does not tell which files inline assembler names (cache.here)"
	untoldWord      = "with %s nothing tells which files its assembler reads (cache.here)"
	untoldAssembler = "its assembler is not GNU's, which tells which files it reads (cache.here)"
)

// assembles returns how to find out what the assembler reads in a compile of k here, or why that cannot be.
func (c *client) assembles(k *known.Job) (tell ipc.Tell, why string) {
	b := k.Body
	if c.compiler.Family != "gcc" {
		return ipc.TellNot, untoldClang
	}
	if b.Language != "c" && b.Language != "c++" {
		return ipc.TellNot, strings.Replace(untoldWord, "%s", "language "+b.Language, 1)
	}
	for _, w := range b.Args {
		for _, prefix := range [...]string{"-Wa,", "-Xassembler", "-B", "-specs", "--specs", "-wrapper", "-fplugin", "-flto", "-save-temps", "--save-temps"} {
			if strings.HasPrefix(w, prefix) {
				return ipc.TellNot, strings.Replace(untoldWord, "%s", w, 1)
			}
		}
	}
	if slices.Contains(b.Args, "-S") {
		return ipc.TellRan, "" // no assembler runs
	}
	if !c.compiler.AssemblerTells() {
		return ipc.TellNot, untoldAssembler
	}
	return ipc.TellReads, ""
}

// temporary is the base of a file with a compiler's text, as gcc names it.
var temporary = regexp.MustCompile(`^cc[A-Za-z0-9]{6}\.s$`)

// readsItsTextAlone reports whether the assembler of k's compile here has read nothing but the compiler's text, by its rule for make.
// That names the text's file unless it came through a pipe, and the source, without a directory, since the text does (.file). A source
// whose name is none for make to read as it is counts as not known.
func readsItsTextAlone(k *known.Job, rule []byte) bool {
	_, reads, ok := bytes.Cut(bytes.ReplaceAll(rule, []byte("\\\n"), nil), []byte(": "))
	if !ok || bytes.Count(bytes.TrimRight(reads, "\n"), []byte("\n")) != 0 {
		return false
	}
	texts := 0
	for _, name := range strings.Fields(string(reads)) {
		switch {
		case name == k.Body.Name && onlySource(k):
		case texts == 0 && filepath.IsAbs(name) && temporary.MatchString(filepath.Base(name)) && absent(name):
			texts++
		default:
			return false
		}
	}
	return true
}

// onlySource reports whether the source's name, without a directory, can mean nothing but the source in the directory where the compiler
// runs.
func onlySource(k *known.Job) bool {
	at, err := os.Stat(filepath.Join(k.Body.Cwd, k.Body.Name))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	source, err := os.Stat(k.Set.Files[0].Name)
	return err == nil && os.SameFile(at, source)
}

func absent(name string) bool {
	_, err := os.Lstat(name)
	return errors.Is(err, fs.ErrNotExist)
}
