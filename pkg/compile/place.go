package compile

import (
	"errors"
	"strconv"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// ErrPlace says that an output could not be put where the compiler would have
// put it. Compile here: then the error, and what is left behind, are the
// compiler's own.
var ErrPlace = errors.New("cannot place output")

// Place writes length bytes at off of the file fd, which stays open and keeps its
// offset, to where out names, as a compiler of family f would (gcc 12, clang 14):
//
//   - gcc -c unlinks a regular output that is not empty, links to it included,
//     and makes a new one; it writes an empty or a special one in place;
//   - gcc writes everything else (-S, .su) in place;
//   - clang writes a temporary file beside a regular or a missing output and
//     renames it; it writes a special one in place, and refuses one that it could not write.
//
// New files have the modes that umask leaves of 0666. Every error is an
// ErrPlace; nothing that Place made is then left.
func Place(out job.Output, f Family, fd int, off, length int64) error {
	var st syscall.Stat_t
	err := retry(func() error { return syscall.Stat(out.Name, &st) })
	exists := err == nil
	if err != nil && err != syscall.ENOENT {
		return placeError(out.Name, err)
	}
	regular := exists && st.Mode&syscall.S_IFMT == syscall.S_IFREG
	if exists && !regular && st.Mode&syscall.S_IFMT != syscall.S_IFCHR {
		// A pipe would block, a directory and a socket cannot be written.
		return placeError(out.Name, syscall.EINVAL)
	}
	if f == Clang {
		if exists && syscall.Access(out.Name, 2 /* W_OK */) != nil {
			return placeError(out.Name, syscall.EACCES)
		}
		if !exists || regular {
			return placeRenamed(out.Name, fd, off, length)
		}
	} else if out.Kind == job.OutputObject && regular && st.Size != 0 {
		if err := retry(func() error { return syscall.Unlink(out.Name) }); err != nil {
			return placeError(out.Name, err)
		}
		exists = false
	}
	dst, err := open(out.Name, syscall.O_CREAT|syscall.O_TRUNC)
	if err != nil {
		return placeError(out.Name, err)
	}
	if err := fill(dst, fd, off, length); err != nil {
		if !exists {
			_ = syscall.Unlink(out.Name)
		}
		return placeError(out.Name, err)
	}
	return nil
}

// placeRenamed makes name by way of a temporary file beside it.
func placeRenamed(name string, fd int, off, length int64) error {
	pid := strconv.Itoa(syscall.Getpid())
	for try := 0; try < 100; try++ {
		temp := swapSuffix(name, "") + "-rd" + pid + "." + strconv.Itoa(try) + ".tmp"
		dst, err := open(temp, syscall.O_CREAT|syscall.O_EXCL)
		if err == syscall.EEXIST {
			continue
		}
		if err != nil {
			return placeError(name, err)
		}
		if err = fill(dst, fd, off, length); err == nil {
			err = retry(func() error { return syscall.Rename(temp, name) })
		}
		if err != nil {
			_ = syscall.Unlink(temp)
			return placeError(name, err)
		}
		return nil
	}
	return placeError(name, syscall.EEXIST)
}

func open(name string, flags int) (fd int, err error) {
	err = retry(func() error {
		fd, err = syscall.Open(name, syscall.O_WRONLY|syscall.O_CLOEXEC|flags, 0o666)
		return err
	})
	return fd, err
}

// fill copies length bytes at off of src into dst and closes dst. sendfile moves
// pages of a memfd without a visit to this process; where the file system
// does not have it, the bytes are read and written.
func fill(dst, src int, off, length int64) error {
	err := sendfile(dst, src, off, length)
	if cerr := syscall.Close(dst); err == nil {
		err = cerr
	}
	return err
}

func sendfile(dst, src int, off, length int64) error {
	for length > 0 {
		n, err := syscall.Sendfile(dst, src, &off, int(min(length, 1<<30)))
		switch {
		case err == syscall.EINTR || err == syscall.EAGAIN:
			continue
		case err == syscall.EINVAL || err == syscall.ENOSYS:
			return readWrite(dst, src, off, length)
		case err != nil:
			return err
		case n == 0:
			return syscall.EIO // the source is shorter than it was said to be
		}
		length -= int64(n)
	}
	return nil
}

func readWrite(dst, src int, off, length int64) error {
	buf := make([]byte, min(length, 256<<10))
	for length > 0 {
		n, err := syscall.Pread(src, buf[:min(length, int64(len(buf)))], off)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return syscall.EIO
		}
		off, length = off+int64(n), length-int64(n)
		for b := buf[:n]; len(b) > 0; {
			w, err := syscall.Write(dst, b)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			b = b[w:]
		}
	}
	return nil
}

// retry calls f until no signal interrupts it.
func retry(f func() error) error {
	for {
		if err := f(); err != syscall.EINTR {
			return err
		}
	}
}

func placeError(name string, err error) error {
	return &placing{name: name, err: err}
}

// placing is an ErrPlace with its cause.
type placing struct {
	name string
	err  error
}

func (e *placing) Error() string   { return "place " + name80(e.name) + ": " + e.err.Error() }
func (e *placing) Unwrap() []error { return []error{ErrPlace, e.err} }

// name80 keeps a line short.
func name80(s string) string {
	if len(s) > 80 {
		return "..." + s[len(s)-77:]
	}
	return s
}
