package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// A daemon's work area is one directory. While the daemon or its guard lives, a
// lock (flock) on it is held, so a later daemon knows which ones are left over. It
// gets its final name only once it is locked.
const (
	areaPrefix = "rdistccd-"
	newPrefix  = ".rdistccd-"
)

// workArea is a locked private directory.
type workArea struct {
	path string
	dir  *os.File // carries the lock
}

// newWorkArea makes a work area below base, mode 0700.
func newWorkArea(base string) (*workArea, error) {
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
				return &workArea{path: path, dir: dir}, nil
			}
		}
		dir.Close()
	}
	os.RemoveAll(tmp)
	return nil, fmt.Errorf("lock work directory: %w", err)
}

// remove deletes the area; processes that still work in it are killed.
func (w *workArea) remove() error {
	err := clearArea(w.path)
	w.dir.Close()
	return err
}

// removeStale deletes the work areas of daemons that are gone, and kills what
// still works in them. It returns how many there were.
func removeStale(base string) (int, error) {
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

// jobDir is a directory that jobs use one after another.
type jobDir struct {
	path string
	fd   int
	buf  [2048]byte // directory entries
}

func newJobDir(path string) (*jobDir, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	return &jobDir{path: path, fd: fd}, nil
}

func (d *jobDir) close() { unix.Close(d.fd) }

// empty removes what a job has left. An entry that was removed may shift others
// past the reader, so it looks until it finds nothing.
func (d *jobDir) empty() error {
	for {
		if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
			return &os.PathError{Op: "seek", Path: d.path, Err: err}
		}
		n, err := unix.ReadDirent(d.fd, d.buf[:])
		if err != nil {
			return &os.PathError{Op: "readdir", Path: d.path, Err: err}
		}
		_, _, names := unix.ParseDirent(d.buf[:n], -1, nil) // without . and ..
		if len(names) == 0 {
			return nil
		}
		for _, name := range names {
			err := unix.Unlinkat(d.fd, name, 0)
			if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
				err = os.RemoveAll(filepath.Join(d.path, name))
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return &os.PathError{Op: "remove", Path: filepath.Join(d.path, name), Err: err}
			}
		}
	}
}

// write makes a file that was not there.
func (d *jobDir) write(name string, b []byte) error {
	fd, err := unix.Openat(d.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	for len(b) > 0 && err == nil {
		var n int
		n, err = unix.Write(fd, b)
		if errors.Is(err, unix.EINTR) {
			err = nil
			continue
		}
		b = b[max(n, 0):]
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

// open gives a file of the directory to read. Only a regular file of ours counts:
// no link, no device.
func (d *jobDir) open(name string) (fd int, st *unix.Stat_t, err error) {
	fd, err = unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	st = new(unix.Stat_t)
	if err := unix.Fstat(fd, st); err != nil {
		unix.Close(fd)
		return -1, nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		unix.Close(fd)
		return -1, nil, refuse(job.CauseInternal, "%s is not the compiler's own regular file", name)
	}
	return fd, st, nil
}
