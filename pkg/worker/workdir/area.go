// Package workdir manages the directories in which a daemon's compiles work, on disk or on a file system in
// memory. Each daemon has one directory, its Area, and in it a Dir for each kind of file of a job. However a
// daemon ends, the area is removed and processes in it are killed: by the daemon itself, by its guard if the
// daemon was killed, or by a later daemon if both were.
package workdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
)

// A work area is one directory. As long as the daemon or its guard lives, it holds a lock (flock) on the
// directory, so that a later daemon can tell which areas are left over. The directory gets its final name
// only once it is locked.
//
// A canary's targets in /tmp, /var/tmp and /dev/shm (package probe) are locked and named in the same way, so
// those that are left over can be told likewise.
const (
	areaPrefix = "rdistccd-"
	newPrefix  = ".rdistccd-"
)

// sharedPlaces are the directories in which canaries make their targets.
var sharedPlaces = []string{"/tmp", "/var/tmp", "/dev/shm"}

// Area is a locked private directory.
type Area struct {
	Path string   // without symlinks, as the kernel reports it
	dir  *os.File // holds the lock
}

// New makes a work area in base, with mode 0700. Remove deletes it.
func New(base string) (*Area, error) {
	named := base
	base, err := filepath.EvalSymlinks(base) // as the kernel will report it
	if err != nil {
		return nil, fmt.Errorf("make work directory in %s: %w; set another one with work-dir", named, err)
	}
	tmp, err := os.MkdirTemp(base, newPrefix+"*")
	if err != nil {
		return nil, fmt.Errorf("make work directory in %s: %w; set another one with work-dir", named, err)
	}
	dir, err := os.Open(tmp)
	if err == nil {
		if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			path := filepath.Join(base, areaPrefix+filepath.Base(tmp)[len(newPrefix):])
			if err = os.Rename(tmp, path); err == nil {
				return &Area{Path: path, dir: dir}, nil
			}
		}
		dir.Close()
	}
	os.RemoveAll(tmp)
	return nil, fmt.Errorf("lock work directory: %w", err)
}

// Remove deletes the area and kills processes that still work in it.
func (w *Area) Remove() error {
	err := clearArea(w.Path)
	w.dir.Close()
	return err
}

// RemoveStale deletes the work areas in base of daemons that are gone, and kills processes that still work in
// them. It returns how many areas it deleted.
func RemoveStale(base string) (int, error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return 0, fmt.Errorf("look for old work directories: %w", err)
	}
	n := 0
	for _, e := range entries {
		made := strings.HasPrefix(e.Name(), newPrefix) // its daemon died within microseconds
		if !made && !strings.HasPrefix(e.Name(), areaPrefix) || !e.IsDir() {
			continue
		}
		path := filepath.Join(base, e.Name())
		if stale(path, made) {
			if err := clearArea(path); err != nil {
				return n, fmt.Errorf("remove old work directory: %w", err)
			}
			n++
		}
	}
	return n, nil
}

// RemoveTargets deletes what canaries of daemons that are gone have left in shared directories. It skips what
// it cannot read or remove, and returns how many targets it deleted.
func RemoveTargets() (n int) {
	for _, place := range sharedPlaces {
		entries, _ := os.ReadDir(place) // a missing directory has no entries
		for _, e := range entries {
			made := strings.HasPrefix(e.Name(), "."+probe.Shared)
			path := filepath.Join(place, e.Name())
			if (made || strings.HasPrefix(e.Name(), probe.Shared)) && e.IsDir() && stale(path, made) && os.RemoveAll(path) == nil {
				n++
			}
		}
	}
	return n
}

// stale reports whether a directory is a work area of this user and is not locked. An unnamed one, which has
// not got its final name, must be an hour old.
func stale(path string, unnamed bool) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o7777&^0o011 != 0o700 {
		return false
	}
	if unnamed && time.Since(time.Unix(st.Mtim.Unix())) < time.Hour {
		return false // perhaps about to be locked
	}
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
}

// clearArea kills the processes that work below path, then removes path.
func clearArea(path string) error {
	for range 100 { // a process that is being forked can escape one pass, but not all
		if killBelow(path) == 0 {
			break
		}
		time.Sleep(2 * time.Millisecond) // until the kernel has ended them
	}
	return os.RemoveAll(path)
}

// killBelow kills the process group of every process whose working directory is below path, and returns how
// many such processes there were. The kernel's list in /proc is complete; a list kept by the daemon might not
// be, if it was killed.
func killBelow(path string) int {
	n := 0
	for _, pid := range processesBelow(path) {
		n++
		if group, err := unix.Getpgid(pid); err == nil && group != unix.Getpgrp() {
			_ = unix.Kill(-group, unix.SIGKILL)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return n
}

// processesBelow returns the processes, except this one, whose working directory is below path.
func processesBelow(path string) []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A zombie, or another user's process, has no readable link.
		if cwd, err := os.Readlink("/proc/" + name + "/cwd"); err == nil && strings.HasPrefix(cwd, path+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// DefaultBase returns the directory for work areas if none is configured. That is tmpdir, the value of
// TMPDIR, if it is set. Otherwise it is a file system in memory if there is one with room, because making a
// file on a disk takes 0.3 ms longer, several times per job.
func DefaultBase(tmpdir string) string {
	const shm, room = "/dev/shm", 1 << 30
	if tmpdir != "" {
		return tmpdir
	}
	var st unix.Statfs_t
	if unix.Statfs(shm, &st) == nil && st.Type == unix.TMPFS_MAGIC && st.Bavail*uint64(st.Bsize) >= room &&
		unix.Access(shm, unix.W_OK) == nil {
		return shm
	}
	return "/tmp"
}
