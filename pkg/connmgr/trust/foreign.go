package trust

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// The manager of a machine serves other users, who must not be able to act as the manager. But it runs the
// compiler that a wrapper names, to identify it. So it accepts from another user's wrapper only compilers that
// only root or the manager's own user can have installed.

// errForeign: the manager may not run the compiler.
var errForeign = errors.New("the manager of the machine runs no compiler that its user or root did not install, and none with libraries of others (LD_LIBRARY_PATH)")

// MayRun returns nil if a manager that runs as user uid may run the compiler in l, a command of another user,
// in order to identify it.
func MayRun(l *ipc.Lease, uid uint32) error {
	if l.Libraries != "" || !Installed(l.Compiler, uid) {
		return errForeign
	}
	for _, w := range l.Machine {
		if !strings.HasPrefix(w, "-m") || strings.HasPrefix(w, "-mllvm") {
			return errForeign
		}
	}
	// A driver runs the assembler that it finds on PATH. clang's may have a target in front of its name.
	for _, dir := range filepath.SplitList(l.Path) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(l.Cwd, dir)
		}
		for _, name := range [...]string{"as", "objcopy", "ld"} {
			file := dir + "/" + name
			if _, err := os.Stat(file); err == nil && !Installed(file, uid) {
				return errForeign
			}
		}
		if Installed(dir, uid) {
			continue
		}
		files, _ := os.ReadDir(dir) // a driver finds nothing in a directory that cannot be read
		for _, f := range files {
			if strings.HasSuffix(f.Name(), "-as") || strings.HasSuffix(f.Name(), "-objcopy") {
				return errForeign
			}
		}
	}
	return nil
}
