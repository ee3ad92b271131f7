// Package workdir is where a daemon's compiles work on disk, or in memory that looks so: an
// Area, one directory a daemon, and in it a Dir for each kind of file of a job. Whatever way a daemon
// ends, nothing of it stays and nothing works on in it: it removes the area itself, its guard
// does when it was killed, and a later daemon when both were.
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

// A work area is one directory. While the daemon or its guard lives, a
// lock (flock) on it is held, so a later daemon knows which ones are left over. It
// gets its final name only once it is locked.
//
// What a canary is not to reach in /tmp, /var/tmp and /dev/shm (package probe) is locked and
// named alike, so it is told from what is left over in the same way.
const (
	areaPrefix = "rdistccd-"
	newPrefix  = ".rdistccd-"
)

// sharedPlaces are where canaries make directories.
var sharedPlaces = []string{"/tmp", "/var/tmp", "/dev/shm"}

// Area is a locked private directory.
type Area struct {
	Path string   // as the kernel names it
	dir  *os.File // carries the lock
}

// New makes a work area below base, mode 0700. Remove ends it.
func New(base string) (*Area, error) {
	named := base
	base, err := filepath.EvalSymlinks(base) // as the kernel will name it
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

// Remove deletes the area; processes that still work in it are killed.
func (w *Area) Remove() error {
	err := clearArea(w.Path)
	w.dir.Close()
	return err
}

// RemoveStale deletes the work areas below base of daemons that are gone, and kills what
// still works in them. It returns how many there were.
func RemoveStale(base string) (int, error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return 0, fmt.Errorf("look for old work directories: %w", err)
	}
	n := 0
	for _, e := range entries {
		made := strings.HasPrefix(e.Name(), newPrefix) // by a daemon that died within microseconds
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

// RemoveTargets deletes what the canaries of daemons that are gone have left in places that
// others use too. What cannot be looked at or removed stays. It returns how many there were.
func RemoveTargets() (n int) {
	for _, place := range sharedPlaces {
		entries, _ := os.ReadDir(place) // what is not there holds nothing
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

// stale says that a directory is a work area of ours that nobody holds.
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

// clearArea kills the processes that work below path and removes it.
func clearArea(path string) error {
	for range 100 { // a compiler that just forks escapes one look, not all
		if killBelow(path) == 0 {
			break
		}
		time.Sleep(2 * time.Millisecond) // until the kernel has ended them
	}
	return os.RemoveAll(path)
}

// killBelow kills the process group of every process whose working directory is
// below path, and says how many processes there were. The kernel's own list is
// complete, whatever a daemon had time to write down before it died.
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

// DefaultBase is where work areas are made when nobody says: on a file system in
// memory, if there is one with room, as to make a file on a disk costs 0.3 ms more,
// several times a job. tmpdir is TMPDIR, which goes before.
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
