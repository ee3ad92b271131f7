package compile

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// ErrPlace says that an output could not be put where the compiler would have
// put it. Compile here: then the error, and what is left behind, are the
// compiler's own.
var ErrPlace = errors.New("cannot place output")

// manner is how a compiler writes a file.
type manner uint8

const (
	// What is there is opened and truncated, through links too: it keeps its mode.
	inPlace manner = iota
	// as and objcopy: a regular file that is not empty is unlinked first, or the
	// symbolic link to it. A special one and an empty one are written in place.
	unlinked
	// A temporary file beside a regular or a missing one takes its place. A special
	// file is written in place, and one that could not be written is refused.
	renamed
	// Whatever is there is removed first, but for a special file.
	replaced
)

// mannerOf is how the compiler writes an output (gcc 11 and 12, clang 13 to 19).
func (p *Plan) mannerOf(out job.Output) manner {
	main := out.Kind == job.OutputObject || out.Kind == job.OutputAssembly
	suffix := out.Name[strings.LastIndexByte(out.Name, '.')+1:]
	if p.Driver.Family == GCC {
		if out.Kind == job.OutputObject || suffix == "dwo" || !main && suffix == "o" {
			return unlinked
		}
		return inPlace
	}
	switch {
	case main && p.ownAs() == gnuAs && out.Kind == job.OutputObject:
		return unlinked
	case main && p.ownAs() == laterAs && out.Kind == job.OutputObject:
		return inPlace
	case main:
		return renamed
	case out.Kind == job.OutputStackUsage || out.Kind == job.OutputDependency:
		return inPlace
	}
	switch suffix {
	case "i", "ii", "mi", "mii", "s", "bc": // -save-temps
		return renamed
	case "dia":
		return replaced
	}
	return inPlace
}

// The assemblers that clang can have an object from.
const (
	clangAs = iota // the compiler itself
	gnuAs          // as
	laterAs        // clang -cc1as, in a process of its own
)

// ownAs says which one it is.
func (p *Plan) ownAs() int {
	own := clangAs
	for _, o := range p.options {
		switch w := o.words[0]; {
		case w == "-fno-integrated-as" || w == "-no-integrated-as":
			return gnuAs // also where the other one comes behind it: Place is then a little off, or runs here
		case w == "-save-temps" || w == "--save-temps" || strings.HasPrefix(w, "-save-temps=") || strings.HasPrefix(w, "--save-temps="):
			own = laterAs
		}
	}
	return own
}

// Place writes length bytes at off of the file fd, which stays open and keeps its
// offset, to where an output of p is due, as the compiler would.
//
// New files have the modes that umask leaves of 0666. Every error is an
// ErrPlace; nothing that Place made is then left.
func (p *Plan) Place(out job.Output, fd int, off, length int64) error {
	return place(out.Name, p.mannerOf(out), fd, off, length)
}

func place(name string, how manner, fd int, off, length int64) error {
	var st syscall.Stat_t
	err := retry(func() error { return syscall.Stat(name, &st) })
	exists := err == nil
	if err != nil && err != syscall.ENOENT {
		return placeError(name, err)
	}
	regular := exists && st.Mode&syscall.S_IFMT == syscall.S_IFREG
	if exists && !regular && st.Mode&syscall.S_IFMT != syscall.S_IFCHR {
		// A pipe would block, a directory and a socket cannot be written.
		return placeError(name, syscall.EINVAL)
	}
	var remove bool
	switch how {
	case renamed:
		if exists && syscall.Access(name, wOK) != nil {
			return placeError(name, syscall.EACCES)
		}
		if !exists || regular {
			return placeRenamed(name, fd, off, length)
		}
	case unlinked:
		remove = regular && st.Size != 0
	case replaced:
		remove = regular || isLink(name)
	}
	if remove {
		if err := retry(func() error { return syscall.Unlink(name) }); err != nil {
			return placeError(name, err)
		}
		exists = false
	}
	made := !exists && !isLink(name) // else it is a link's target, or was there
	dst, err := open(name, syscall.O_CREAT|syscall.O_TRUNC)
	if err != nil {
		return placeError(name, err)
	}
	if err := fill(dst, fd, off, length); err != nil {
		if made {
			_ = syscall.Unlink(name)
		}
		return placeError(name, err)
	}
	return nil
}

// isLink reports whether name is a symbolic link.
func isLink(name string) bool {
	var st syscall.Stat_t
	return retry(func() error { return syscall.Lstat(name, &st) }) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFLNK
}

const wOK = 2 // for access

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
