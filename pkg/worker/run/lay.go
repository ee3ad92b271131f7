package run

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
)

// lay makes in a clean tree the links, directories and files that the compile finds on the build host. It
// calls check before each and returns check's first error.
func lay(tr *privatetree.Tree, in *files.Set, check func() error) error {
	if err := layAround(tr, in, dirsOf(in), tr.Mkdirs, check); err != nil {
		return err
	}
	for i := in.FirstListed(); i < len(in.Text); i++ {
		if err := layFile(tr, in, i, check); err != nil {
			return err
		}
	}
	return nil
}

// dirsOf returns the directories that a job finds whatever is in them, and those of its outputs and of its own files: absolute names,
// some perhaps more than once.
func dirsOf(in *files.Set) []string {
	b := in.Body
	// gcc requires at least one of its own header directories to exist, even an empty one.
	dirs := append(make([]string, 0, len(b.Dirs)+len(b.Outputs)+3), b.Cwd, "/usr/include")
	for _, d := range b.Dirs {
		dirs = append(dirs, seenFrom(b.Cwd, d))
	}
	add := func(name string) {
		name = seenFrom(b.Cwd, name)
		if dir := name[:max(1, strings.LastIndexByte(name, '/'))]; dir != dirs[len(dirs)-1] {
			dirs = append(dirs, dir)
		}
	}
	for i := range b.Outputs {
		add(b.Outputs[i].Name)
	}
	for i := range in.FirstListed() {
		add(b.Files[i].Name)
	}
	return dirs
}

// layAround makes everything except the files that lists name: the directories dirs by mkdir.
func layAround(tr *privatetree.Tree, in *files.Set, dirs []string, mkdir func(string) error, check func() error) error {
	b := in.Body
	for i := range b.Links {
		if err := check(); err != nil {
			return err
		}
		if err := tr.Symlink(b.Links[i].Target, b.Links[i].Name); err != nil {
			return err
		}
	}
	for _, d := range dirs {
		if err := check(); err != nil {
			return err
		}
		if err := mkdir(d); err != nil {
			return err
		}
	}
	for i := range in.FirstListed() {
		if err := layFile(tr, in, i, check); err != nil {
			return err
		}
	}
	return nil
}

// layFile makes file i of the job.
func layFile(tr *privatetree.Tree, in *files.Set, i int, check func() error) error {
	if err := check(); err != nil {
		return err
	}
	b := in.Body
	f := &b.Files[i]
	name := seenFrom(b.Cwd, f.Name)
	if f.Same != 0 {
		return tr.Hardlink(seenFrom(b.Cwd, b.Files[f.Same-1].Name), name)
	}
	text, err := in.File(i)
	if err != nil {
		return err
	}
	return tr.Write(name, text, f.MTime, f.Exec)
}

// seenFrom returns name as an absolute name, relative to cwd. It does not clean the name: "a/.." does not
// cancel out if a is a link.
func seenFrom(cwd, name string) string {
	if name[0] == '/' {
		return name
	}
	return cwd + "/" + name
}

// blamed turns an error of laying out files into a refusal if the job is the reason. Any other error, which
// is the host's own trouble, is returned unchanged.
func blamed(err error) error {
	switch {
	case errors.Is(err, privatetree.ErrTaken), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ELOOP):
		return job.Refuse(job.CauseTree, "%v", err) // no fault of the client's
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, fs.ErrInvalid), errors.Is(err, unix.EINVAL):
		return job.Refuse(job.CauseMalformed, "%v", err) // the build host cannot have had such files
	case errors.Is(err, unix.ENOSPC):
		return job.Refuse(job.CauseTooBig, "%v", err)
	}
	return err
}
