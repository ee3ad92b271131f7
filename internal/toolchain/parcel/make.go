package parcel

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// ErrCannotTravel is wrapped by the error about a toolchain that no host can be given.
var ErrCannotTravel = errors.New("cannot travel")

// ErrChanged is wrapped by errors about a file of the toolchain that is no longer what it was.
var ErrChanged = errors.New("the toolchain has changed")

// Make describes a toolchain of this machine. It reads all files of it, a few hundred megabytes.
func Make(ctx context.Context, tc *toolchain.Toolchain) (*Parcel, error) {
	m := maker{ctx: ctx, found: make(map[string]Entry), machine: make(map[string]string)}
	for _, name := range tc.Files {
		if err := m.file(name); err != nil {
			return nil, fmt.Errorf("pack %s: %w", tc.Exec, err)
		}
	}
	p := &Parcel{Toolchain: *tc}
	p.Dirs = nil
	for _, dir := range tc.Dirs {
		some, err := m.dir(dir)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", tc.Exec, err)
		}
		if some {
			p.Dirs = append(p.Dirs, dir)
		}
	}
	for _, e := range m.found {
		p.Entries = append(p.Entries, e)
	}
	slices.SortFunc(p.Entries, func(x, y Entry) int { return strings.Compare(x.Name, y.Name) })
	if what := p.fault(); what != "" {
		return nil, fmt.Errorf("%s %w: %s", tc.Exec, ErrCannotTravel, what)
	}
	p.identify(p.Append(nil))
	p.Needs.Kernel = m.kernel
	if e := p.tree().find(p.Path); e != nil {
		if script(e) {
			return nil, fmt.Errorf("%s %w: it is a script, and what it runs is not known; name the compiler that it runs", tc.Exec, ErrCannotTravel)
		}
		p.Needs.Machine = m.machine[e.Name]
	}
	return p, nil
}

// script reports whether a file is one.
func script(e *Entry) bool {
	f, err := e.Open()
	if err != nil {
		return false // whoever sends it finds out
	}
	defer f.Close()
	var start [2]byte
	_, err = io.ReadFull(f, start[:])
	return err == nil && string(start[:]) == "#!"
}

// maker collects entries.
type maker struct {
	ctx     context.Context
	found   map[string]Entry
	machine map[string]string // of programs and libraries
	kernel  Version           // the newest that one of them needs
}

// file adds the file that a name leads to, and the links on the way.
func (m *maker) file(name string) error {
	at, file, err := follow(name, m.look)
	if err != nil {
		return err
	}
	if !file {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return m.content(at)
}

// look returns what is at a canonical name of this machine. It adds links.
func (m *maker) look(at string) (target string, file bool, err error) {
	st, err := os.Lstat(at)
	switch {
	case err != nil:
		return "", false, err
	case st.Mode()&fs.ModeSymlink != 0:
		target, err = m.link(at)
		return target, false, err
	}
	return "", !st.IsDir(), nil
}

func (m *maker) link(name string) (string, error) {
	target, err := os.Readlink(name)
	if err == nil {
		m.found[name] = Entry{Name: name, Target: target}
	}
	return target, err
}

// content adds a regular file.
func (m *maker) content(name string) error {
	if _, ok := m.found[name]; ok {
		return nil
	}
	e := Entry{Name: name}
	f, st, err := open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	e.Exec, e.Len = st.Mode()&0o111 != 0, uint64(st.Size())
	h := sha256.New()
	if n, err := io.Copy(h, reader{m.ctx, f}); err != nil || uint64(n) != e.Len {
		return errors.Join(err, changed(name, uint64(n) != e.Len))
	}
	h.Sum(e.Sum[:0])
	m.found[name] = e
	if n, ok := needsOf(f); ok {
		m.machine[name] = n.Machine
		if m.kernel.Less(n.Kernel) {
			m.kernel = n.Kernel
		}
	}
	return nil
}

func changed(name string, is bool) error {
	if !is {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrChanged, name)
}

func open(name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) // no FIFO can make it wait
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, st, nil
}

// reader ends with a context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// dir adds what a compiler may read in a directory that is shown whole. some reports whether there is anything.
func (m *maker) dir(name string) (some bool, err error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return false, err
	}
	err = filepath.WalkDir(real, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(p, ".mo") && !catalogue(filepath.Base(p)):
			return nil
		case d.Type().IsRegular():
			some = true
			return m.content(p)
		case d.Type()&fs.ModeSymlink == 0:
			return nil // directories come with what is in them, and nothing else is of use
		}
		// A link to something that is not shown leads nowhere in the tree, as at home.
		if target, err := filepath.EvalSymlinks(p); err != nil || !strings.HasPrefix(target, real+"/") || strings.HasSuffix(target, ".mo") && !catalogue(filepath.Base(target)) {
			return nil
		}
		some = true
		_, err = m.link(p)
		return err
	})
	if err == nil && some && real != name {
		_, _, err = follow(name, m.look) // adds the links that lead there
	}
	return some, err
}

// catalogue reports whether a file of this name has messages of a compiler, an assembler or the C library. There are
// hundreds of megabytes of others in the same directories.
func catalogue(base string) bool {
	domain, ok := strings.CutSuffix(base, ".mo")
	if !ok {
		return false
	}
	if name, version, ok := strings.Cut(domain, "-"); ok && strings.Trim(version, "0123456789.") == "" {
		domain = name
	}
	return slices.Contains([]string{"gcc", "cpplib", "gas", "bfd", "opcodes", "binutils", "libc"}, domain)
}

// Open opens a file of a parcel that Make has described, to be sent. Read's error wraps ErrChanged if its content is no longer
// that, at the latest at its end.
func (e *Entry) Open() (io.ReadCloser, error) {
	f, st, err := open(e.Name)
	if err != nil {
		return nil, errors.Join(ErrChanged, err)
	}
	if uint64(st.Size()) != e.Len {
		f.Close()
		return nil, changed(e.Name, true)
	}
	return &checked{f: f, e: e, h: sha256.New()}, nil
}
