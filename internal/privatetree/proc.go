package privatetree

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Where there is no procfs (HasProc), a few links stand for it: a process's working directory, by which Bazel's commands name it, and
// its program, from where clang and dynamic loaders find what belongs to it.

// procDirs is where the links are.
var procDirs = [...]string{"/proc/self", "/proc/thread-self"}

// layProc makes the links for a command in the directory dir. Where that of its program leads is for the tree's process to say.
func (t *Tree) layProc(dir string) error {
	for _, in := range procDirs {
		for name, target := range map[string]string{"/cwd": dir, "/exe": "."} {
			t.unlink(in+name, unix.S_IFLNK) // of an earlier command
			if err := t.Symlink(target, in+name); err != nil {
				return err
			}
		}
	}
	return nil
}

// showProgram has the link to the program of a process lead to that of the command that starts. In an answered tree each process has its
// own (names.readlink).
func (c *child) showProgram(program string) {
	file, err := filepath.EvalSymlinks(program)
	if err != nil {
		return // it cannot be executed either
	}
	c.ask(func() {
		for _, in := range procDirs {
			if unix.Unlink(in+"/exe") == nil {
				_ = unix.Symlink(file, in+"/exe") // without it, its program may not find everything, and ends with an error
			}
		}
	})
}
