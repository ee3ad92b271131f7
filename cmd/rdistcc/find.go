package main

import (
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// Exit codes that a shell uses for a command it cannot run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// fileID identifies a file whatever its names.
type fileID struct{ dev, ino uint64 }

// self returns the ID of the running program.
func self() fileID {
	var st syscall.Stat_t
	if stat("/proc/self/exe", &st) != nil {
		return fileID{} // no /proc: the nesting count alone stops a loop
	}
	return fileID{st.Dev, st.Ino}
}

// findProgram looks name up in path (a PATH) as execvp does, but never returns the
// program me, which masquerade links point to. A name with a slash is returned as it is,
// unless it is such a link: then the compiler of its base name is meant. code is
// exitNotFound or exitNotExecutable, or 0.
//
// behind says that we were called through such a link. What stands on path before the
// first link has then already run: ccache with links of its own, say, which looked for
// the next compiler and found us.
//
// without is path without the directories in which name is me or was passed over.
// The compiler needs it: gcc looks itself up on PATH to find its parts, and would
// look for them beside rdistcc.
func findProgram(name, path string, me fileID, behind bool) (file, without string, code int) {
	if strings.IndexByte(name, '/') >= 0 {
		code, isMe := runnable(name, me)
		if !isMe {
			return name, path, code
		}
		name, behind = base(name), true
	}
	code = exitNotFound
	if name == "" {
		return "", path, code
	}
	var skipped, before []string
	first := "" // found before any link of ours
	for rest, more := path, true; more && file == ""; {
		var dir string
		dir, rest, more = strings.Cut(rest, ":")
		in := dir
		if in == "" {
			in = "." // POSIX: an empty entry is the working directory
		}
		switch c, isMe := runnable(in+"/"+name, me); {
		case isMe:
			skipped, behind = append(skipped, dir), false
		case c == 0 && behind:
			if before = append(before, dir); first == "" {
				first = in + "/" + name
			}
		case c == 0:
			file, code = in+"/"+name, 0
		case c == exitNotExecutable:
			code = c
		}
	}
	switch {
	case file != "":
		skipped = append(skipped, before...)
	case first != "": // the link was called by its full name, and is last on path or not on it
		file, code = first, 0
	}
	return file, withoutEntries(path, skipped), code
}

// withoutEntries returns a PATH without the given entries.
func withoutEntries(path string, entries []string) string {
	if len(entries) == 0 {
		return path
	}
	var kept []string
	for dir := range strings.SplitSeq(path, ":") {
		if !slices.Contains(entries, dir) {
			kept = append(kept, dir)
		}
	}
	return strings.Join(kept, ":")
}

// runnable returns 0 if file can be executed, else the shell's exit code for the reason.
func runnable(file string, me fileID) (code int, isMe bool) {
	var st syscall.Stat_t
	switch err := stat(file, &st); {
	case err == syscall.EACCES:
		return exitNotExecutable, false
	case err != nil:
		return exitNotFound, false
	}
	if (fileID{st.Dev, st.Ino}) == me && me != (fileID{}) {
		return exitNotExecutable, true
	}
	const xOK = 1
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || syscall.Faccessat(atFDCWD, file, xOK, 0) != nil {
		return exitNotExecutable, false
	}
	if _, err := readlink(file); err == nil && base(realPath(file)) == ownName {
		return exitNotExecutable, true // a link of another installed rdistcc, which would take the compile for a script's
	}
	return 0, false
}

// ownName is what this program is installed as.
const ownName = "rdistcc"

const atFDCWD = -100

// rereadable reports whether a source can be read a second time, should the command have
// to run here after all: a pipe (bash's <(...)) cannot. A missing file counts as
// rereadable, as the compiler will complain about it.
func rereadable(file string) bool {
	var st syscall.Stat_t
	return stat(file, &st) != nil || st.Mode&syscall.S_IFMT == syscall.S_IFREG
}

// sameFile reports whether both names exist and lead to the same file.
func sameFile(a, b string) bool {
	var x, y syscall.Stat_t
	return stat(a, &x) == nil && stat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

func stat(file string, st *syscall.Stat_t) error {
	for {
		if err := syscall.Stat(file, st); err != syscall.EINTR {
			return err
		}
	}
}

// realPath returns the absolute path of file with all links resolved, or file itself where
// that cannot be determined.
func realPath(file string) string {
	const oPath = 0x200000 // O_PATH, which package syscall lacks
	fd, err := syscall.Open(file, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return file
	}
	defer syscall.Close(fd)
	name, err := readlink("/proc/self/fd/" + itoa(fd))
	if err != nil {
		return file
	}
	return name
}

// behindScript returns the command that c comes to if its program, found at real once links
// are resolved, is a script that only starts a compiler. path is that compiler's, also
// with links resolved.
func (s *settings) behindScript(c command, real string) (cc command, path string, ok bool) {
	text := scriptText(real)
	if text == "" {
		return c, real, false
	}
	argv, ok := compile.Unwrap(text, c.argv[1:], syscall.Getenv)
	if !ok {
		return c, real, false
	}
	file, _, code := findProgram(argv[0], s.childPath, self(), false)
	if code != 0 {
		return c, real, false
	}
	path = realPath(file)
	if _, ok := compile.DriverOf(argv[0], path); !ok {
		return c, real, false // a launcher, perhaps
	}
	return command{file: file, argv: argv}, path, true
}

// maxScript is longer than any script that compile.Unwrap knows.
const maxScript = 2048

// scriptText returns the text of a short script, or "".
func scriptText(file string) string {
	fd, err := syscall.Open(file, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	var buf [maxScript]byte
	n, err := syscall.Read(fd, buf[:])
	if err != nil || n < 2 || n == maxScript || buf[0] != '#' || buf[1] != '!' {
		return ""
	}
	return string(buf[:n])
}

// wanders reports whether the compiler, or what it starts or loads, is looked for in a directory
// that is another one to the manager (unit.Shared).
func (f *flow) wanders() bool {
	for _, list := range [...]string{f.cc.file, f.set.childPath, f.set.getenv("LD_LIBRARY_PATH")} {
		for dir := range strings.SplitSeq(list, ":") {
			if shared, ok := unit.Shared(dir); !ok || shared != dir {
				return true
			}
		}
	}
	return false
}

func readlink(file string) (string, error) {
	var buf [4096]byte // PATH_MAX
	n, err := syscall.Readlink(file, buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// absolute returns file as an absolute name, seen from cwd.
func absolute(file, cwd string) string {
	if strings.HasPrefix(file, "/") || cwd == "" {
		return file
	}
	return cwd + "/" + strings.TrimPrefix(file, "./")
}

// base returns the part of a path after its last slash.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// findSibling looks for another of our programs: beside this one, then on PATH.
func findSibling(name, path string) (string, bool) {
	if exe, err := readlink("/proc/self/exe"); err == nil {
		file := exe[:strings.LastIndexByte(exe, '/')+1] + name
		if code, _ := runnable(file, fileID{}); code == 0 {
			return file, true
		}
	}
	file, _, code := findProgram(name, path, fileID{}, false)
	return file, code == 0
}

// implicit reports whether a first word is not a compiler but already one of its
// arguments: an option, a source or an object. The compiler is then cc.
func implicit(word string) bool {
	if strings.HasPrefix(word, "-") {
		return true
	}
	file := base(word)
	dot := strings.LastIndexByte(file, '.')
	if dot < 0 {
		return false
	}
	switch file[dot+1:] {
	case "o", "c", "cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "i", "ii", "m", "mm", "M", "mi", "mii", "s", "S", "sx":
		return true
	}
	return false
}
