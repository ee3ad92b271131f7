package run

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/images"
	"github.com/rdistcc/rdistcc/pkg/worker/policy"
)

// Precompiled headers are images of a compiler's memory, and its author could make the compiler that uses one run anything.
// None comes from outside: a job says by which command, and of which files, the one on its build host was made, and the same
// compiler makes another one in the job's tree, confined as the job itself.

// laidImage is an image with the name under which a job sees it.
type laidImage struct {
	*images.Image
	name string
}

// imageTime is the time of change of all images: no compiler looks at it.
const imageTime = 1e9

// asKeptImages returns the records that a tree keeps of images, by name.
func asKeptImages(made []laidImage) map[string]privatetree.Kept {
	if len(made) == 0 {
		return nil
	}
	kept := make(map[string]privatetree.Kept, len(made))
	for _, x := range made {
		kept[x.name] = privatetree.Kept{Sum: x.Key, MTime: imageTime}
	}
	return kept
}

// images returns the job's precompiled headers, made now if they are not there. The caller frees those that are returned,
// also with an error.
func (s *sourcesInTree) images() (made []laidImage, err error) {
	for i, in := range s.j.Files.Images {
		x, err := s.image(in, s.made[i])
		if err != nil {
			return made, err
		}
		made = append(made, laidImage{x, policy.ImageName(in.Body)})
	}
	return made, nil
}

func (s *sourcesInTree) image(in *files.Set, env []string) (*images.Image, error) {
	stop, forget := s.j.Process.stops()
	defer forget()
	owner := images.Owner{Name: s.j.Owner, Gone: s.j.Tenant.Wiped}
	made := false
	x, err := s.p.h.Images.Get(s.imageKey(in), owner, stop, func(keep func(*os.File, int64) error) error {
		made = true
		return s.makeImage(in, env, keep)
	})
	switch {
	case errors.Is(err, images.ErrRoom):
		return nil, job.Refuse(job.CauseFull, "%v", err)
	case errors.Is(err, images.ErrStopped) && !made:
		return nil, s.j.Process.Check()
	case err != nil:
		return nil, err
	case !made:
		return x, nil
	}
	if err := s.p.again(s.j); err != nil {
		x.Free()
		return nil, err
	}
	return x, nil
}

// imageKey returns the name of an image: the tenant, the compiler, the command, and the list that names all that it reads.
func (s *sourcesInTree) imageKey(in *files.Set) images.Key {
	b := *in.Body // the list has all its files, directories and links
	b.Files, b.Dirs, b.Links, b.Lists = nil, nil, nil, in.Lists
	h := sha256.New()
	for _, part := range [][]byte{[]byte("rdistcc image 1"), []byte(s.j.Owner), s.j.Toolchain.ID[:], []byte(s.j.Toolchain.Root), []byte(s.j.Toolchain.Exec), b.Append(nil)} {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return images.Key(h.Sum(nil))
}

// makeImage makes an image in the tree, and has keep copy it.
func (s *sourcesInTree) makeImage(in *files.Set, env []string, keep func(from *os.File, n int64) error) error {
	err := blamed(s.p.lay(s.j, in, nil))
	if err == nil {
		err = s.runMaker(in, env, keep)
	}
	var stop *stopError
	if errors.As(err, &stop) { // which says nothing about the image
		return errors.Join(images.ErrStopped, err)
	}
	return err
}

// excessError says that a command that makes an image has exceeded a limit, or did what the sandbox forbids. The job fails then,
// as if its own compile had: it is not for other hosts to try.
type excessError struct{ why *job.Refusal }

func (e *excessError) Error() string { return e.why.Error() }

func (e *excessError) Unwrap() error { return e.why }

// runMaker runs the command that makes an image.
func (s *sourcesInTree) runMaker(in *files.Set, env []string, keep func(from *os.File, n int64) error) error {
	p, b := s.p, in.Body
	out, err := p.newCapture()
	if err != nil {
		return err
	}
	defer out.Close()
	c := p.command(env, b.Cwd, out, s.j.Limit)
	exec := s.j.Toolchain.Exec
	c.Path, c.Argv = exec, append([]string{calledAs(exec, b.Argv0)}, b.Args...)
	o, err := s.j.Process.runIn(p.tree, c, s.j.Limit)
	if err != nil {
		return err
	}
	s.j.Excess = o.Excess
	limits := p.h.limits(s.j.Limit)
	switch no := p.h.exceeded(o.Excess, &limits); {
	case o.Stopped != job.CauseNone:
		return &stopError{o.Stopped}
	case no != nil:
		p.h.Denied(denial(o.Excess))
		return &excessError{no}
	case !o.Well():
		return job.Refuse(job.CauseTree, "the command that makes the precompiled header %s ends with status %d here", policy.ImageName(b), o.Exit)
	}
	s.j.Excess = sandbox.ExcessNone
	f, err := p.tree.Open(seenFrom(b.Cwd, b.Outputs[0].Name))
	if err != nil {
		return job.Refuse(job.CauseTree, "the precompiled header %s is not there: %v", policy.ImageName(b), err)
	}
	from := os.NewFile(uintptr(f.FD), "image")
	defer from.Close()
	if err := unix.SetNonblock(f.FD, false); err != nil {
		return err
	}
	return keep(from, f.Size)
}
