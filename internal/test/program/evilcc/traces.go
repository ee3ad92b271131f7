package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// places are where leave and look put and find things.
func places() []string {
	dirs := []string{".", "..", "/", "/tmp", "/dev", "/dev/shm", "/usr", "/usr/include", "/usr/local/include", "/usr/lib", "/work", "/src", "/run", "/etc"}
	seen := map[string]bool{}
	for name := self(); name != "/" && name != "."; name = filepath.Dir(name) {
		if dir := filepath.Dir(name); !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// leave leaves files with the mark wherever it can.
func leave(o *order) error {
	n := 0
	for _, dir := range places() {
		_ = os.MkdirAll(dir, 0o777)
		for _, name := range []string{"left", ".left", "stdio.h", "as", "cc1", "specs", "libc.so.6"} {
			if os.WriteFile(filepath.Join(dir, name), []byte(o.mark), 0o777) == nil {
				n++
			}
		}
	}
	if n == 0 {
		return errors.New("there is no place to write to")
	}
	return nil
}

// look succeeds if anything with the mark is there.
func look(o *order) error {
	for _, dir := range places() {
		list, _ := os.ReadDir(dir)
		for _, e := range list {
			name := filepath.Join(dir, e.Name())
			if e.Type().IsRegular() && e.Name() != "attack" && strings.HasPrefix(read(name, 100), o.mark) {
				fmt.Fprintln(os.Stderr, "left:", name)
				return nil
			}
		}
	}
	return unix.ENOENT
}

func read(name string, n int) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, n)
	n, _ = f.Read(b)
	return string(b[:max(0, n)])
}

// list says the name of everything that can be seen, beside processes.
func list() error {
	var b strings.Builder
	_ = filepath.WalkDir("/", func(name string, _ fs.DirEntry, err error) error {
		if name == "/proc" {
			return fs.SkipDir
		}
		if err == nil {
			fmt.Fprintf(&b, "saw %s\n", name)
		}
		return nil
	})
	if _, err := os.Stderr.WriteString(b.String()); err != nil {
		return err
	}
	return errSaid
}

// processes says what can be seen of processes.
func processes() error {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := "/proc/" + e.Name() + "/"
		exe, _ := os.Readlink(dir + "exe")
		fmt.Fprintf(os.Stderr, "process %s %q %q %q\n", e.Name(), exe, read(dir+"cmdline", 4096), read(dir+"environ", 4096))
		if pid == os.Getpid() || syscall.Getppid() == pid {
			continue
		}
		for _, part := range []string{"root", "cwd"} {
			if to, err := os.Readlink(dir + part); err == nil {
				fmt.Fprintf(os.Stderr, "leads %s%s %q\n", dir, part, to)
			}
		}
		fds, _ := os.ReadDir(dir + "fd")
		for _, fd := range fds {
			if text := read(dir+"fd/"+fd.Name(), 4096); text != "" {
				fmt.Fprintf(os.Stderr, "descriptor %s%s %q\n", dir, fd.Name(), text)
			}
		}
	}
	return errSaid
}
