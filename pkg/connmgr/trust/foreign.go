package trust

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// A manager of a machine serves users that may not act for it, and asks their compilers
// what they are: it runs what a wrapper names. So of another user's wrapper it takes
// only compilers that none but root and the manager's own user can have put there.

// errForeign: the compiler is not one that the manager may run.
var errForeign = errors.New("the manager of the machine runs no compiler that its user or root did not install, and none with libraries of others (LD_LIBRARY_PATH)")

// MayRun reports, as nil, that a manager of the user uid may run what the compiler of another user's
// command is, to learn about it.
func MayRun(l *ipc.Lease, uid uint32) error {
	if l.Libraries != "" || !Installed(l.Compiler, uid) {
		return errForeign
	}
	for _, w := range l.Machine {
		if !strings.HasPrefix(w, "-m") || strings.HasPrefix(w, "-mllvm") {
			return errForeign
		}
	}
	// Where a driver looks for its assembler, it runs one. clang's may have a target before
	// its name.
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
		files, _ := os.ReadDir(dir) // where there is nothing to read no driver finds anything
		for _, f := range files {
			if strings.HasSuffix(f.Name(), "-as") || strings.HasSuffix(f.Name(), "-objcopy") {
				return errForeign
			}
		}
	}
	return nil
}
