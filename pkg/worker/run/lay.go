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

// lay makes in a new tree what the compile finds on the client. An error of check ends it.
func lay(tr *privatetree.Tree, in *files.Set, check func() error) error {
	if err := layAround(tr, in, check); err != nil {
		return err
	}
	for i := in.FirstListed(); i < len(in.Text); i++ {
		if err := layFile(tr, in, i, check); err != nil {
			return err
		}
	}
	return nil
}

// layAround makes all but the files of lists.
func layAround(tr *privatetree.Tree, in *files.Set, check func() error) error {
	b := in.Body
	for i := range b.Links {
		if err := check(); err != nil {
			return err
		}
		if err := tr.Symlink(b.Links[i].Target, b.Links[i].Name); err != nil {
			return err
		}
	}
	// gcc wants one of its own directories for headers to be there, even if it
	// finds nothing in it.
	for _, d := range []string{b.Cwd, "/usr/include"} {
		if err := tr.Mkdirs(d); err != nil {
			return err
		}
	}
	for _, d := range b.Dirs {
		if err := check(); err != nil {
			return err
		}
		if err := tr.Mkdirs(seenFrom(b.Cwd, d)); err != nil {
			return err
		}
	}
	last := b.Cwd
	for i := range b.Outputs {
		name := seenFrom(b.Cwd, b.Outputs[i].Name)
		if dir := name[:max(1, strings.LastIndexByte(name, '/'))]; dir != last {
			if err := tr.Mkdirs(dir); err != nil {
				return err
			}
			last = dir
		}
	}
	for i := range in.FirstListed() {
		if err := layFile(tr, in, i, check); err != nil {
			return err
		}
	}
	return nil
}

// layFile makes one file.
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

// seenFrom is a name that stands alone. It is not made shorter: "a/.." is not
// nothing where a is a link.
func seenFrom(cwd, name string) string {
	if name[0] == '/' {
		return name
	}
	return cwd + "/" + name
}

// blamed returns the error of files that could not be laid as the job's, where it is; else as it came: then it is
// the host's own trouble.
func blamed(err error) error {
	switch {
	case errors.Is(err, privatetree.ErrTaken), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ELOOP):
		return job.Refuse(job.CauseTree, "%v", err) // no fault of the client's
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, fs.ErrInvalid), errors.Is(err, unix.EINVAL):
		return job.Refuse(job.CauseMalformed, "%v", err) // it was not so on the client
	case errors.Is(err, unix.ENOSPC):
		return job.Refuse(job.CauseTooBig, "%v", err)
	}
	return err
}
