package workdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir is a directory that jobs use one after another. It belongs to one goroutine.
type Dir struct {
	Path string
	fd   int
	buf  [2048]byte // directory entries
}

// NewDir makes the directory path, with mode 0700. Close closes its descriptor; the directory is removed with
// its area.
func NewDir(path string) (*Dir, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	return &Dir{Path: path, fd: fd}, nil
}

// Close closes the descriptor of the directory.
func (d *Dir) Close() { unix.Close(d.fd) }

// Empty removes what a job has left. Removing an entry may move others past the reader, so Empty reads the
// directory until it finds it empty.
func (d *Dir) Empty() error {
	for {
		removed, err := d.remove()
		if err != nil || !removed {
			return err
		}
	}
}

// remove removes what one pass over the directory finds, and reports whether that was anything. A read that gives no name
// is not the end, only one that gives nothing is: when a signal waits for this thread, the kernel ends a read early,
// perhaps after ".".
func (d *Dir) remove() (removed bool, err error) {
	if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
		return false, &os.PathError{Op: "seek", Path: d.Path, Err: err}
	}
	for {
		n, err := unix.ReadDirent(d.fd, d.buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return removed, &os.PathError{Op: "readdir", Path: d.Path, Err: err}
		}
		if n == 0 {
			return removed, nil
		}
		_, _, names := unix.ParseDirent(d.buf[:n], -1, nil) // without . and ..
		for _, name := range names {
			err := unix.Unlinkat(d.fd, name, 0)
			if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
				err = os.RemoveAll(filepath.Join(d.Path, name))
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return removed, &os.PathError{Op: "remove", Path: filepath.Join(d.Path, name), Err: err}
			}
			removed = true
		}
	}
}

// Write creates a file with content b and mode 0600. It fails if the file exists.
func (d *Dir) Write(name string, b []byte) error {
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

// Open opens a file of the directory for reading and returns its descriptor, which the caller closes, and its
// status. It must be a regular file that belongs to this user and has no other name: links and devices are
// errors.
func (d *Dir) Open(name string) (fd int, st *unix.Stat_t, err error) {
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
		return -1, nil, fmt.Errorf("%s is not the compiler's own regular file", name)
	}
	return fd, st, nil
}
