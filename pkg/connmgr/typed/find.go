// Package typed reads a command as it was typed: the settings in its environment, the program that is its compiler, and the lease that it
// comes to. The wrapper and the manager (package plain) both go by it, so that they come to the same.
package typed

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Exit codes that a shell uses for a command it cannot run.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// FileID identifies a file whatever its names.
type FileID struct{ Dev, Ino uint64 }

// FindProgram looks name up in path (a PATH) as execvp does, but never returns the
// program me, which masquerade links point to. A name with a slash is returned as it is,
// unless it is such a link: then the compiler of its base name is meant. code is
// ExitNotFound or ExitNotExecutable, or 0.
//
// behind says that we were called through such a link. What stands on path before the
// first link has then already run: ccache with links of its own, say, which looked for
// the next compiler and found us.
//
// without is path without the directories in which name is me or was passed over.
// The compiler needs it: gcc looks itself up on PATH to find its parts, and would
// look for them beside rdistcc.
func FindProgram(name, path string, me FileID, behind bool) (file, without string, code int) {
	if strings.IndexByte(name, '/') >= 0 {
		code, isMe := Runnable(name, me)
		if !isMe {
			return name, path, code
		}
		name, behind = Base(name), true
	}
	code = ExitNotFound
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
		switch c, isMe := Runnable(in+"/"+name, me); {
		case isMe:
			skipped, behind = append(skipped, dir), false
		case c == 0 && behind:
			if before = append(before, dir); first == "" {
				first = in + "/" + name
			}
		case c == 0:
			file, code = in+"/"+name, 0
		case c == ExitNotExecutable:
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

// Runnable returns 0 if file can be executed, else the shell's exit code for the reason.
func Runnable(file string, me FileID) (code int, isMe bool) {
	var st syscall.Stat_t
	switch err := Stat(file, &st); {
	case err == syscall.EACCES:
		return ExitNotExecutable, false
	case err != nil:
		return ExitNotFound, false
	}
	if (FileID{st.Dev, st.Ino}) == me && me != (FileID{}) {
		return ExitNotExecutable, true
	}
	const xOK = 1
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG || syscall.Faccessat(atFDCWD, file, xOK, 0) != nil {
		return ExitNotExecutable, false
	}
	if _, err := Readlink(file); err == nil && Base(RealPath(file)) == OwnName {
		return ExitNotExecutable, true // a link of another installed rdistcc, which would take the compile for a script's
	}
	return 0, false
}

// OwnName is what this program is installed as.
const OwnName = "rdistcc"

const atFDCWD = -100

func Stat(file string, st *syscall.Stat_t) error {
	for {
		if err := syscall.Stat(file, st); err != syscall.EINTR {
			return err
		}
	}
}

// RealPath returns the absolute path of file with all links resolved, or file itself where
// that cannot be determined.
func RealPath(file string) string {
	const oPath = 0x200000 // O_PATH, which package syscall lacks
	fd, err := syscall.Open(file, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return file
	}
	defer syscall.Close(fd)
	name, err := Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return file
	}
	return name
}

// maxScript is longer than any script that compile.Unwrap knows.
const maxScript = 2048

// ScriptText returns the text of a short script, or "".
func ScriptText(file string) string {
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

func Readlink(file string) (string, error) {
	var buf [4096]byte // PATH_MAX
	n, err := syscall.Readlink(file, buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Absolute returns file as an absolute name, seen from cwd.
func Absolute(file, cwd string) string {
	if strings.HasPrefix(file, "/") || cwd == "" {
		return file
	}
	return cwd + "/" + strings.TrimPrefix(file, "./")
}

// Base returns the part of a path after its last slash.
func Base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
