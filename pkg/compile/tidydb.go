package compile

import (
	pathname "path"
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/compdb"
	"github.com/rdistcc/rdistcc/internal/reason"
)

const (
	tidyDatabase = "compile_commands.json"
	tidyFlags    = "compile_flags.txt" // clang-tidy takes flags from such a file too

	maxDatabase = 16 << 20
)

// installDir tells clang's driver where it would be if it were the compiler of a database's entry, and so by which names it
// finds the headers of gcc. tidyDir is the only directory that hosts let it be.
const (
	installDir = "-ccc-install-dir"
	tidyDir    = "/usr/bin"
)

// WithDatabase returns a command of clang-tidy without "--" as one with the flags that clang-tidy takes from a compilation
// database, in such a form that it does the same. Where that is not certain, it returns argv. cwd is the working directory as
// clang-tidy knows it.
//
// clang-tidy changes to the directory of the entry, names its source as the entry does, and its driver looks for headers from
// where the entry's compiler is. The first two are what they are with "--" only for some entries.
//
// It reads files, so it must be given nothing but the user's own words.
func WithDatabase(argv []string, cwd string) []string {
	t := tidy{}
	t.own(argv)
	if t.reason != hereDatabase || t.sources != 1 || t.twice || pathname.Clean("/"+cwd) != cwd {
		return argv
	}
	source := t.Source
	if source[0] != '/' {
		source = strings.TrimSuffix(cwd, "/") + "/" + source
	}
	if pathname.Clean(source) != source {
		return argv
	}
	text, ok := findDatabase(t.build, source)
	if !ok {
		return argv
	}
	e, ok := compdb.Find(text, source)
	if !ok || e.Directory != cwd {
		return argv
	}
	words, ok := tidyEntry(e.Words, source)
	if !ok {
		return argv
	}
	return slices.Concat(argv, []string{"--"}, words)
}

// findDatabase returns the text of the database in a directory, or without one in that of source or the nearest above it.
func findDatabase(dir, source string) (text string, ok bool) {
	if dir != "" {
		return databaseIn(strings.TrimSuffix(dir, "/") + "/")
	}
	for i := len(source); ; {
		if i = strings.LastIndexByte(source[:i], '/'); i < 0 {
			return "", false
		}
		if dir := source[:i+1]; present(dir+tidyDatabase) || present(dir+tidyFlags) {
			return databaseIn(dir)
		}
	}
}

// databaseIn reads the database in a directory, if nothing there is preferred to it.
func databaseIn(dir string) (text string, ok bool) {
	if present(dir + tidyFlags) {
		return "", false
	}
	return readUpTo(dir+tidyDatabase, maxDatabase)
}

// present reports whether there is anything by a name.
func present(name string) bool {
	var st syscall.Stat_t
	return syscall.Lstat(name, &st) != syscall.ENOENT
}

// tidyEntry returns the words that stand for those of an entry after "--", without the source, which clang-tidy has last then.
func tidyEntry(words []string, source string) (flags []string, ok bool) {
	at := slices.Index(words, source)
	if at < 1 {
		return nil, false
	}
	rest := words[at+1:]
	if len(rest) != 0 && (len(rest) != 2 || rest[0] != "-o") {
		return nil, false
	}
	slash := strings.LastIndexByte(words[0], '/') + 1
	dir, name := words[0][:slash], words[0][slash:]
	switch dir {
	case "":
	case tidyDir + "/":
		names, ok := ListDir(dir)
		if !ok || slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".cfg") }) {
			return nil, false // clang's driver would take more words from there
		}
		flags = append(flags, installDir, tidyDir)
	default:
		return nil, false
	}
	kind, version, versioned := strings.Cut(name, "-")
	if versioned && (version == "" || !onlyOf(version, digitBytes+".", maxWord)) {
		return nil, false
	}
	switch kind {
	case "c++", "g++", "clang++":
		flags = append(flags, "--driver-mode=g++")
	case "cc", "gcc", "clang":
	default:
		return nil, false
	}
	flags = append(append(flags, words[1:at]...), rest...)
	if slices.ContainsFunc(flags, differsInEntry) {
		return nil, false
	}
	return flags, true
}

// differsInEntry reports whether clang-tidy, or its driver, may treat a word in a database in another way than after "--".
func differsInEntry(w string) bool {
	if w == "" || strings.HasPrefix(w, "@") {
		return true
	}
	for _, p := range [...]string{"-Wl,", "-Wa,", "-l", "-L", "-Xlinker", "-Xassembler", "-no-integrated-as", "-fno-integrated-as", "-r", "-z", "-T", "-u"} {
		if strings.HasPrefix(w, p) {
			return true
		}
	}
	return false
}

// hereDatabase is the reason why clang-tidy without "--" runs here, unless WithDatabase knows the flags.
const hereDatabase = reason.NotReproducible + "compile-commands"
