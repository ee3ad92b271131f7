package main

import (
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// self returns the ID of the running program.
func self() typed.FileID {
	var st syscall.Stat_t
	if typed.Stat("/proc/self/exe", &st) != nil {
		return typed.FileID{} // no /proc: the nesting count alone stops a loop
	}
	return typed.FileID{Dev: st.Dev, Ino: st.Ino}
}

// rereadable reports whether a source can be read a second time, should the command have
// to run here after all: a pipe (bash's <(...)) cannot. A missing file counts as
// rereadable, as the compiler will complain about it.
func rereadable(file string) bool {
	var st syscall.Stat_t
	return typed.Stat(file, &st) != nil || st.Mode&syscall.S_IFMT == syscall.S_IFREG
}

// sameFile reports whether both names exist and lead to the same file.
func sameFile(a, b string) bool {
	var x, y syscall.Stat_t
	return typed.Stat(a, &x) == nil && typed.Stat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// behindScript returns the command that c comes to if its program, found at real once links
// are resolved, is a script that only starts a compiler. path is that compiler's, also
// with links resolved.
func (s *settings) behindScript(c command, real string) (cc command, path string, ok bool) {
	text := typed.ScriptText(real)
	if text == "" {
		return c, real, false
	}
	argv, ok := compile.Unwrap(text, c.argv[1:], syscall.Getenv)
	if !ok {
		return c, real, false
	}
	file, _, code := typed.FindProgram(argv[0], s.childPath, self(), false)
	if code != 0 {
		return c, real, false
	}
	path = typed.RealPath(file)
	if _, ok := compile.DriverOf(argv[0], path); !ok {
		return c, real, false // a launcher, perhaps
	}
	return command{file: file, argv: argv}, path, true
}

// wanders reports whether the compiler, or what it starts or loads, is looked for in a directory
// that is another one to the manager.
func (f *flow) wanders() bool {
	return typed.Wanders(f.cc.file, f.set.childPath, f.set.getenv("LD_LIBRARY_PATH"))
}

// findSibling looks for another of our programs: beside this one, then on PATH.
func findSibling(name, path string) (string, bool) {
	if exe, err := typed.Readlink("/proc/self/exe"); err == nil {
		file := exe[:strings.LastIndexByte(exe, '/')+1] + name
		if code, _ := typed.Runnable(file, typed.FileID{}); code == 0 {
			return file, true
		}
	}
	file, _, code := typed.FindProgram(name, path, typed.FileID{}, false)
	return file, code == 0
}

// implicit reports whether a first word is not a compiler but already one of its
// arguments: an option, a source or an object. The compiler is then cc.
func implicit(word string) bool {
	if strings.HasPrefix(word, "-") {
		return true
	}
	file := typed.Base(word)
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
