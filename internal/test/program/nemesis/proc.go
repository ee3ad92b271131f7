package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is a process on this machine.
type process struct {
	pid        int
	name, line string
}

func (p process) String() string { return fmt.Sprintf("[%d %s: %s]", p.pid, p.name, p.line) }

// look reads a process's data; ok is false if it is gone, or a zombie.
func look(pid int) (process, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	line, err := os.ReadFile(dir + "/cmdline")
	if err != nil || len(line) == 0 {
		return process{}, false
	}
	comm, err := os.ReadFile(dir + "/comm")
	return process{pid, strings.TrimSpace(string(comm)), strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))}, err == nil
}

// below returns all descendants of a process.
func below(pid int) []process {
	var all []process
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, list := range lists {
		text, _ := os.ReadFile(list) // its thread may have ended
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				continue
			}
			if p, ok := look(child); ok {
				all = append(all, p)
			}
			all = append(all, below(child)...)
		}
	}
	return all
}

// compilers lists the names of the programs that a host runs for a job.
var compilers = []string{"cc1", "cc1plus", "as", "gcc", "g++"}

// compiling returns the compilers that run below a daemon.
func compiling(daemon int) []process {
	return slices.DeleteFunc(below(daemon), func(p process) bool { return !slices.Contains(compilers, p.name) })
}

// belonging returns all processes that have root in their command line or environment, or as their working directory.
func belonging(root string) []process {
	var all []process
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, ok := look(pid)
		if !ok {
			continue
		}
		env, _ := os.ReadFile(dir + "/environ") // another user's, or gone
		cwd, _ := os.Readlink(dir + "/cwd")     // likewise
		if strings.Contains(p.line, root) || bytes.Contains(env, []byte(root)) || strings.HasPrefix(cwd, root) {
			all = append(all, p)
		}
	}
	return all
}

// descriptors returns how many descriptors a process has open, not counting those of the runtime, nor those
// of buffers kept ready, whose number is bounded. It returns 0 if they are not visible: only root can
// examine a daemon.
func descriptors(pid int) (int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrPermission) && os.Geteuid() != 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range names {
		to, err := os.Readlink(filepath.Join(dir, name.Name()))
		if err == nil && !strings.HasPrefix(to, "anon_inode:[event") && !strings.HasPrefix(to, "/memfd:") {
			n++
		}
	}
	return n, nil
}
