package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// toolchain calls f for each file that was there before the job: all but the directories that a job writes to.
func toolchain(f func(name string, d fs.DirEntry)) {
	wd, _ := os.Getwd()
	_ = filepath.WalkDir("/", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // what cannot be seen cannot be changed
		case name == "/proc", name == "/tmp", name == "/dev", name == wd:
			return fs.SkipDir
		}
		f(name, d)
		return nil
	})
}

// changeToolchain tries to change each file and directory of the toolchain in every way.
func changeToolchain() error {
	var did []string
	tried := 0
	try := func(what, name string, err error) {
		tried++
		if err == nil {
			did = append(did, what+" "+name)
		}
	}
	toolchain(func(name string, d fs.DirEntry) {
		if d.Type()&fs.ModeSymlink != 0 {
			err := errors.Join(unix.Unlink(name), os.Symlink("/src/attack", name))
			if err == nil {
				err = changesToolchain(filepath.Dir(name))
			}
			try("replace", name, err)
			return
		}
		if d.IsDir() {
			other := filepath.Join(name, "evil")
			err := os.WriteFile(other, nil, 0o666)
			if err == nil {
				err = changesToolchain(name)
				_ = os.Remove(other)
			}
			try("write into", name, err)
			return
		}
		for what, flags := range map[string]int{"write": unix.O_WRONLY, "truncate": unix.O_WRONLY | unix.O_TRUNC, "append": unix.O_RDWR | unix.O_APPEND} {
			try(what, name, open(name, flags))
			try(what+" through /proc/self/root", name, open("/proc/self/root"+name, flags))
		}
		if fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			by := "/proc/self/fd/" + strconv.Itoa(fd)
			try("reopen", name, open(by, unix.O_RDWR))
			try("chmod by descriptor", name, unix.Fchmod(fd, 0o777))
			_, err := unix.Mmap(fd, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			try("map", name, err)
			try("allocate", name, unix.Fallocate(fd, 0, 0, 1<<30))
			unix.Close(fd)
		}
		try("chmod", name, unix.Chmod(name, 0o4777))
		try("chown", name, unix.Chown(name, unix.Getuid(), -1))
		try("touch", name, unix.UtimesNanoAt(unix.AT_FDCWD, name, make([]unix.Timespec, 2), 0))
		try("attribute", name, unix.Setxattr(name, "user.evil", []byte("x"), 0))
		try("capability", name, unix.Setxattr(name, "security.capability", make([]byte, 20), 0))
		try("link", name, unix.Link(name, "linked"))
		try("rename", name, unix.Rename(name, name+".evil"))
		try("replace", name, unix.Rename("attack", name))
		try("unlink", name, unix.Unlink(name))
	})
	try("write", "/proc/self/exe", open("/proc/self/exe", unix.O_RDWR))
	if tried < 100 {
		return fmt.Errorf("only %d attempts", tried)
	}
	if len(did) == 0 {
		return unix.EACCES
	}
	fmt.Fprintln(os.Stderr, strings.Join(did, "\n"))
	return nil
}

// changesToolchain says whether a directory that can be changed belongs to what was sent. The tree's own ones, in memory,
// are made again after the job.
func changesToolchain(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if st.Type == unix.TMPFS_MAGIC {
		return unix.EROFS
	}
	return nil
}

func open(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
