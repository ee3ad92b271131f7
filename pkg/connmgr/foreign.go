package connmgr

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A manager of a machine serves users that may not act for it, and asks their compilers
// what they are: it runs what a wrapper names. So of another user's wrapper it takes
// only compilers that none but root and the manager's own user can have put there.

// errForeign: the compiler is not one that the manager may run.
var errForeign = errors.New("the manager of the machine runs no compiler that its user or root did not install, and none with libraries of others (LD_LIBRARY_PATH)")

// mayAsk says whether the manager may run what the job's compiler is, to learn about it.
func (c *client) mayAsk() error {
	if !c.foreign() {
		return nil
	}
	l := c.lease
	if l.Libraries != "" || !c.m.installed(l.Compiler) {
		return errForeign
	}
	for _, w := range l.Machine {
		if !strings.HasPrefix(w, "-m") || strings.HasPrefix(w, "-mllvm") {
			return errForeign
		}
	}
	// Where a driver looks for its assembler, it runs one.
	for _, dir := range filepath.SplitList(l.Path) {
		for _, name := range [...]string{"as", "objcopy", "ld"} {
			file := dir + "/" + name
			if _, err := os.Stat(file); err == nil && !c.m.installed(file) {
				return errForeign
			}
		}
	}
	return nil
}

// installed says whether only root and the manager's user can decide what file is: it and
// all above it, on the way by its name and where that leads, are theirs and closed to
// others' writing.
func (m *Manager) installed(file string) bool {
	if !filepath.IsAbs(file) || strings.Contains(file+"/", "/../") { // behind a link .. is elsewhere
		return false
	}
	// Each link on the way has a way of its own; few are more than two.
	for range 40 {
		at := "/"
		next := ""
		for _, name := range strings.Split(filepath.Clean(file), "/")[1:] {
			if !m.ours(at) {
				return false
			}
			at = filepath.Join(at, name)
			if to, err := os.Readlink(at); err == nil {
				if !filepath.IsAbs(to) {
					to = filepath.Join(filepath.Dir(at), to)
				}
				next = filepath.Join(to, strings.TrimPrefix(filepath.Clean(file), at))
				break
			}
		}
		if next == "" {
			return m.ours(at)
		}
		file = next
	}
	return false
}

// ours says whether a file or directory is root's or the manager's user's, and closed to
// others' writing.
func (m *Manager) ours(name string) bool {
	var st syscall.Stat_t
	return syscall.Lstat(name, &st) == nil && (st.Uid == 0 || st.Uid == m.uid) && st.Mode&0o022 == 0
}
