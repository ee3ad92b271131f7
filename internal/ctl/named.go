package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// writeNamed writes a file that the user has named, and returns its length. A regular file appears, or is replaced, when it is complete, at
// the end of all links; nothing is left of one that could not be completed. Anything else, such as a pipe or a device, is written to and
// stays what it is. That can block, and leaves nothing behind, so direct is called before, which may let signals end the program.
// Errors of the file name it.
func writeNamed(ctx context.Context, name string, direct func(), write func(io.Writer) error) (n int64, err error) {
	to, regular, err := destination(name)
	if err != nil {
		return 0, err
	}
	if !regular {
		direct()
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		w := &named{ctx: ctx, f: f, name: name}
		err = write(w)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return w.n, err
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return 0, naming(name, err)
	}
	defer os.Remove(f.Name()) // unless it has its name
	w := &named{ctx: ctx, f: f, name: name}
	err = write(w)
	mode := fs.FileMode(0o644)
	if st, serr := os.Stat(to); serr == nil {
		mode = st.Mode().Perm()
	}
	if err == nil {
		err = naming(name, f.Chmod(mode))
	}
	if cerr := f.Close(); err == nil {
		err = naming(name, cerr)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = naming(name, os.Rename(f.Name(), to))
	}
	return w.n, err
}

// mostLinks is how many symbolic links the kernel follows.
const mostLinks = 40

// destination follows the links of a name. regular reports whether there is a regular file at the end, or none yet.
func destination(name string) (to string, regular bool, err error) {
	st, err := os.Stat(name)
	if err == nil && !st.Mode().IsRegular() {
		return name, false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	to = name
	for range mostLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(to))
		if err != nil {
			return "", false, naming(name, err)
		}
		if to = filepath.Join(dir, filepath.Base(to)); strings.HasPrefix(to, "/proc/") {
			return name, false, nil // a descriptor of a process, as /dev/stdout: the name that it shows may be another file's
		}
		next, err := os.Readlink(to)
		if err != nil {
			return to, true, nil // it is no link
		}
		if to = next; !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
	}
	return "", false, &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// named is what writes to a file that the user has named name, until ctx ends.
type named struct {
	ctx  context.Context
	f    *os.File
	name string
	n    int64
}

func (w *named) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.f.Write(b)
	w.n += int64(n)
	return n, naming(w.name, err)
}

// naming returns err with a file's name instead of that of what becomes it.
func naming(name string, err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		err = p.Err
	case errors.As(err, &l):
		err = l.Err
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("write %s: %w", name, err)
}
