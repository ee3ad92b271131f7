package compile

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// ErrPlace says that an output could not be put where the compiler would have put it. The
// caller compiles here: then the error, and what is left behind, are the compiler's own.
var ErrPlace = errors.New("cannot place output")

// Place writes length bytes at offset off of the file fd to where the output out of p belongs,
// as the compiler would. fd stays open and keeps its offset.
//
// New files get mode 0666 less the umask. Every error is an ErrPlace; nothing that Place made
// is left then.
func (p *Plan) Place(out unit.Output, fd int, off, length int64) error {
	if p.MakesWay(out) {
		if err := makeWay(out.Name); err != nil {
			return placeError(out.Name, err)
		}
	}
	if p.removesFor(out) {
		_ = retry(func() error { return syscall.Unlink(p.stale) }) // the compiler does not mind an error either
	}
	return place(out.Name, p.mannerOf(out), fd, off, length)
}

// removesFor reports whether the compiler removes another file when it makes the output.
func (p *Plan) removesFor(out unit.Output) bool { return p.stale != "" && out == p.Outputs[0] }

// MakesWay reports whether the compiler makes the directories that lead to an output. Otherwise they must exist.
func (p *Plan) MakesWay(out unit.Output) bool {
	return out.Kind == unit.OutputModule && p.Driver.Family == GCC
}

// CanPlace returns the error that Place would return for length bytes of out, as far as that
// can be foreseen without writing anything.
func (p *Plan) CanPlace(out unit.Output, length int64) error {
	how := p.mannerOf(out)
	if p.MakesWay(out) {
		if dir := wayMissing(out.Name); dir != "" {
			return canMake(out.Name, dir)
		}
	}
	there, err := look(out.Name)
	if err != nil {
		return err
	}
	keeps := there.keeps(how)
	if how == alike && (there.link || there.exists && (!there.regular || there.shared)) {
		err = syscall.EEXIST
	}
	if err == nil && there.exists && (keeps || how == renamed || how == alike) {
		err = syscall.Access(out.Name, wOK)
	}
	if err == nil && !(keeps && there.exists) && !(keeps && there.link) {
		err = syscall.Access(out.Name[:strings.LastIndexByte(out.Name, '/')+1]+".", wOK|xOK)
	}
	if how == appended && there.regular {
		length += there.size
	}
	var limit syscall.Rlimit
	if err == nil && syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit) == nil && uint64(length) > limit.Cur {
		err = syscall.EFBIG // otherwise the signal that accompanies it would end us
	}
	if err != nil {
		return placeError(out.Name, err)
	}
	return nil
}

// wayMissing returns the first directory on the way to a file that does not exist, or "".
func wayMissing(name string) string {
	var st syscall.Stat_t
	for i := 1; i < len(name); i++ {
		if name[i] == '/' && retry(func() error { return syscall.Stat(name[:i], &st) }) == syscall.ENOENT {
			return name[:i]
		}
	}
	return ""
}

// makeWay makes the directories that lead to a file, as gcc does for a compiled module.
func makeWay(name string) error {
	last := ""
	for dir := wayMissing(name); dir != ""; dir = wayMissing(name) {
		err := syscall.Mkdir(dir, 0o777)
		if err != nil && (err != syscall.EEXIST || dir == last) { // a link that leads nowhere exists and is missing
			return err
		}
		last = dir
	}
	return nil
}

// canMake returns an error if the directory dir on the way to the file name cannot be made.
func canMake(name, dir string) error {
	var st syscall.Stat_t
	if syscall.Lstat(dir, &st) == nil {
		return placeError(name, syscall.EEXIST) // a link that leads nowhere
	}
	if err := syscall.Access(dir[:strings.LastIndexByte(dir, '/')+1]+".", wOK|xOK); err != nil {
		return placeError(name, err)
	}
	return nil
}

// Modes of access.
const xOK, wOK = 1, 2

// standing describes what is in the place of an output.
type standing struct {
	exists  bool // with all links followed
	regular bool
	empty   bool
	link    bool // a symbolic link, wherever it leads
	shared  bool // has another name
	size    int64
}

// look examines name. A file that cannot be an output is an error.
func look(name string) (there standing, err error) {
	var st syscall.Stat_t
	err = retry(func() error { return syscall.Lstat(name, &st) })
	if there.link = err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFLNK; there.link {
		err = retry(func() error { return syscall.Stat(name, &st) })
	}
	if err == syscall.ENOENT {
		return there, nil
	}
	there.exists, there.regular, there.empty = true, st.Mode&syscall.S_IFMT == syscall.S_IFREG, st.Size == 0
	there.shared, there.size = st.Nlink > 1, st.Size
	const full = 1<<8 | 7 // device number of /dev/full
	if err == nil && !there.regular && (st.Mode&syscall.S_IFMT != syscall.S_IFCHR || st.Rdev == full) {
		// Writing to a pipe would block; a directory and a socket cannot be written.
		err = syscall.EINVAL
	}
	if err != nil {
		return there, placeError(name, err)
	}
	return there, nil
}

// keeps reports whether a compiler writes into the existing file, or through a dangling link.
func (s standing) keeps(how manner) bool {
	switch {
	case !s.exists:
		return s.link && (how == inPlace || how == unlinked || how == appended)
	case !s.regular:
		return how != replaced || !s.link
	}
	return how == inPlace || how == appended || how == unlinked && s.empty
}

func place(name string, how manner, fd int, off, length int64) error {
	there, err := look(name)
	if err != nil {
		return err
	}
	keeps := there.keeps(how)
	switch {
	case (how == renamed || how == alike) && there.exists && syscall.Access(name, wOK) != nil:
		return placeError(name, syscall.EACCES)
	case how == alike && (there.link || there.exists && (!there.regular || there.shared)):
		return placeError(name, syscall.EEXIST)
	case how == renamed && !keeps, how == alike:
		return placeRenamed(name, fd, off, length, how == alike)
	case !keeps && (there.exists || there.link):
		if err := retry(func() error { return syscall.Unlink(name) }); err != nil {
			return placeError(name, err)
		}
	}
	if how == appended {
		return appendTo(name, fd, off, length)
	}
	dst, err := open(name, syscall.O_CREAT|syscall.O_TRUNC)
	if err != nil {
		return placeError(name, err)
	}
	if err := fill(dst, fd, off, length); err != nil {
		if !keeps {
			_ = syscall.Unlink(name)
		}
		return placeError(name, err)
	}
	return nil
}

// appendTo writes behind what is in the file name, in one piece where others append to it at the same time.
func appendTo(name string, fd int, off, length int64) error {
	b := make([]byte, length)
	n := 0
	err := retry(func() (err error) { n, err = syscall.Pread(fd, b, off); return err })
	if err == nil && int64(n) < length {
		err = syscall.EIO
	}
	var dst int
	if err == nil {
		dst, err = open(name, syscall.O_CREAT|syscall.O_APPEND)
	}
	if err != nil {
		return placeError(name, err)
	}
	if n, err = syscall.Write(dst, b); err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	if cerr := syscall.Close(dst); err == nil {
		err = cerr
	}
	if err != nil {
		return placeError(name, err)
	}
	return nil
}

// tempBeside returns the name of the file that a process writes, at its nth try, before that becomes the file name.
func tempBeside(name string, pid, try int) string {
	return swapSuffix(name, "") + "-rd" + strconv.Itoa(pid) + "." + strconv.Itoa(try) + ".tmp"
}

// placeRenamed makes name through a temporary file beside it. With same, it fails if there is a file of another owner or
// mode.
func placeRenamed(name string, fd int, off, length int64, same bool) error {
	for try := 0; try < 100; try++ {
		temp := tempBeside(name, syscall.Getpid(), try)
		dst, err := open(temp, syscall.O_CREAT|syscall.O_EXCL)
		if err == syscall.EEXIST {
			continue
		}
		if err != nil {
			return placeError(name, err)
		}
		if err = fill(dst, fd, off, length); err == nil && same && !sameOwner(temp, name) {
			err = syscall.EEXIST
		}
		if err == nil {
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

// sameOwner reports whether the file name has the owner, group and mode of temp, or does not exist.
func sameOwner(temp, name string) bool {
	var a, b syscall.Stat_t
	if err := retry(func() error { return syscall.Lstat(name, &b) }); err != nil {
		return err == syscall.ENOENT
	}
	return retry(func() error { return syscall.Lstat(temp, &a) }) == nil && a.Mode == b.Mode && a.Uid == b.Uid && a.Gid == b.Gid
}

func open(name string, flags int) (fd int, err error) {
	err = retry(func() error {
		fd, err = syscall.Open(name, syscall.O_WRONLY|syscall.O_CLOEXEC|flags, 0o666)
		return err
	})
	return fd, err
}

// fill copies length bytes at offset off of src to dst and closes dst. sendfile moves pages
// of a memfd without copying them through this process; where the file system lacks it, fill
// reads and writes.
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
			return syscall.EIO // the source is shorter than announced
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

// retry calls f until it is not interrupted by a signal.
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

// name80 shortens a name to keep its line short.
func name80(s string) string {
	if len(s) > 80 {
		return "..." + s[len(s)-77:]
	}
	return s
}
