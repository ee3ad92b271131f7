package main

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/driver"
)

// toolParts are what gcc looks for in the directories of -B when it compiles, besides as and objcopy: the compilers
// proper, specs, and directories with headers.
var toolParts = [...]string{"cc1", "cc1plus", "cc1obj", "cc1objplus", "specs", "include", "include-fixed"}

// sameTools reports whether gcc finds in the directories of -B nothing that it would not find without them, so that
// the command is the same without these words. Where that is not certain, it is false.
//
// gcc looks for the same parts in the directory that is named after its target, and in the one that is named after the
// system that words such as -m32 choose.
func (f *flow) sameTools(dirs []string) bool {
	var ask bool
	for _, dir := range dirs {
		entries, ok := listTools(dir)
		if !ok {
			return false // other than a directory, it is the beginning of names of programs
		}
		for _, e := range entries {
			switch {
			case slices.Contains(toolParts[:], e.name):
				return false
			case e.name == "as", e.name == "objcopy":
				ask = true
			case !e.dir:
			case strings.Contains(e.name, "-"): // x86_64-linux-gnu, i386-linux-gnu, and the like
				return false
			default: // few targets have a name such as avr
				ask = true
			}
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

// toolEntry is what lies in a directory of -B.
type toolEntry struct {
	name string
	dir  bool // or what may be one
}

// listTools returns what lies in a directory of -B. ok is false if that cannot be found out.
func listTools(dir string) (entries []toolEntry, ok bool) {
	dir = strings.TrimRight(dir, "/") + "/"
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer syscall.Close(fd)
	for buf := make([]byte, 32<<10); ; {
		n, err := syscall.ReadDirent(fd, buf)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, false
		case n <= 0:
			return entries, true
		}
		// Of each entry (getdents64(2)), the length is at 16, the type at 18, and the name at 19, up to a zero.
		for rest := buf[:n]; len(rest) > 19; {
			length := min(int(binary.NativeEndian.Uint16(rest[16:])), len(rest))
			if length <= 19 {
				return nil, false
			}
			kind, name := rest[18], rest[19:length]
			rest = rest[length:]
			if i := bytes.IndexByte(name, 0); i >= 0 {
				name = name[:i]
			}
			e := toolEntry{name: string(name)}
			if e.name == "." || e.name == ".." {
				continue
			}
			switch kind {
			case syscall.DT_DIR:
				e.dir = true
			case syscall.DT_LNK, syscall.DT_UNKNOWN:
				e.dir = exists(dir + e.name + "/")
			}
			entries = append(entries, e)
		}
	}
}

// exists reports whether there may be something under a name; a name that ends with a slash is a directory's.
func exists(name string) bool {
	var st syscall.Stat_t
	err := stat(name, &st)
	return err != syscall.ENOENT && err != syscall.ENOTDIR
}

// ownTool reports whether file is the program that gcc runs by this name without -B, as steps show it.
func (f *flow) ownTool(steps [][]string, name, file string) bool {
	for _, step := range steps {
		if base(step[0]) != name {
			continue
		}
		own := step[0]
		if own == name {
			own, _, _ = findProgram(name, f.set.getenv("PATH"), self(), false)
		}
		return own != "" && realPath(own) == realPath(file)
	}
	return false
}
