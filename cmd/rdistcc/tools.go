package main

import (
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// toolParts are what gcc looks for in the directories of -B when it compiles, besides as and objcopy: the compilers
// proper, specs, and directories with headers.
var toolParts = [...]string{"cc1", "cc1plus", "cc1obj", "cc1objplus", "specs", "include", "include-fixed"}

// sameTools reports whether the compiler finds in the directories of -B nothing that it would not find without them, so that the
// command is the same without these words. Where that is not certain, it is false. clang also looks there for a gcc, in more
// ways than one, so its driver is asked each time.
func (f *flow) sameTools(dirs []string) bool {
	if f.plan.Driver.Family == compile.GCC {
		return f.gccTools(dirs)
	}
	if f.plan.Recorded() {
		return false // the words themselves show
	}
	typed, ok := f.programs(f.plan.Whole())
	if !ok {
		return false
	}
	plain := f.plan
	plain.DropTools()
	same, ok := f.programs(plain.Whole())
	return ok && typed.Like(same, false) && same.Like(typed, false)
}

// configured reports whether a link to clang has configuration files beside it, which no host has.
func configured(file string) bool {
	var buf [1]byte
	if n, err := syscall.Readlink(file, buf[:]); err != nil || n <= 0 {
		return false // those beside clang itself belong to the compiler
	}
	names, ok := compile.ListDir(file[:strings.LastIndexByte(file, '/')+1])
	return !ok || slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".cfg") })
}

// gccTools does that for gcc, from what the directories contain.
//
// gcc looks for the same parts in the directory that is named after its target, and in the one that is named after the
// system that words such as -m32 choose.
func (f *flow) gccTools(dirs []string) bool {
	ask := false
	for _, dir := range dirs {
		dir = strings.TrimRight(dir, "/") + "/"
		names, ok := compile.ListDir(dir)
		if !ok {
			return false // other than a directory, it is the beginning of names of programs
		}
		for _, name := range names {
			if slices.Contains(toolParts[:], name) || name == "plugin" && len(f.plan.Plugins()) > 0 {
				return false
			}
			ask = ask || name == "as" || name == "objcopy"
		}
		for _, name := range names {
			system := strings.Contains(name, "-") // x86_64-linux-gnu, i386-linux-gnu, and the like
			if ask && !system || !exists(dir+name+"/") {
				continue
			}
			if system {
				return false
			}
			ask = true // few targets have a name such as avr
		}
	}
	if !ask {
		return true
	}
	// Of all compiles, these take the most programs.
	said := f.ask(command{file: f.cc.file, argv: []string{f.cc.argv[0], "-###", "-g", "-gsplit-dwarf", "-x", "c", "-c", "/dev/null", "-o", "x.o"}})
	target := ""
	for line := range strings.Lines(said) {
		if t, ok := strings.CutPrefix(line, "Target: "); ok {
			target = strings.TrimSpace(t)
		}
	}
	steps, err := driver.Commands(said)
	if target == "" || err != nil {
		return false
	}
	for _, dir := range dirs {
		dir = strings.TrimRight(dir, "/") + "/"
		if exists(dir + target) {
			return false
		}
		for _, name := range [...]string{"as", "objcopy"} {
			if exists(dir+name) && !f.ownTool(steps, name, dir+name) {
				return false
			}
		}
	}
	return true
}

// exists reports whether there may be something under a name; a name that ends with a slash is a directory's.
func exists(name string) bool {
	var st syscall.Stat_t
	err := typed.Stat(name, &st)
	return err != syscall.ENOENT && err != syscall.ENOTDIR
}

// ownTool reports whether file is the program that gcc runs by this name without -B, as steps show it.
func (f *flow) ownTool(steps [][]string, name, file string) bool {
	for _, step := range steps {
		if typed.Base(step[0]) != name {
			continue
		}
		own := step[0]
		if own == name {
			own, _, _ = typed.FindProgram(name, f.set.getenv("PATH"), self(), false)
		}
		return own != "" && typed.RealPath(own) == typed.RealPath(file)
	}
	return false
}
