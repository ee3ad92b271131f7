package run

import (
	"errors"
	"maps"
	"path"
	"slices"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
)

// Bounds of what one tree may keep. Within them, all trees together keep as much as the store has in memory.
const (
	leastKept = 4 << 20  // bytes
	mostKept  = 64 << 20 // bytes
)

// KeepEach returns how many bytes each place's tree may keep, for a store that has that many bytes of memory.
func KeepEach(memory int64, places int) int64 {
	return min(max(memory/int64(max(places, 1)), leastKept), mostKept)
}

// Forget drops everything that the tree keeps.
func (p *Place) Forget() error {
	if p.layout.owner == nil {
		return nil
	}
	p.layout = layout{}
	defer p.count()
	return p.tree.Retain(func(string, privatetree.Kept) bool { return false }, func(string) bool { return false })
}

// Stale reports whether the tree has to drop what it keeps, because its owner's store was wiped or the
// machine has been short of memory since.
func (p *Place) Stale() bool {
	return p.layout.owner != nil && (p.layout.owner.Wiped() || p.layout.forgets != p.h.Forgets.Load())
}

// lay makes in j's tree what a command finds on the build host, and precompiled headers. It returns an error once the job has
// to stop.
func (p *Place) lay(j *Job, in *files.Set, made []laidImage) error {
	owner, check := j.Tenant, j.Process.Check
	if owner == nil || len(in.Lists) == 0 {
		if err := p.Forget(); err != nil {
			return err
		}
		return p.layFresh(in, made, check)
	}
	err := p.layKept(owner, in, made, check)
	if err == nil || errors.Is(err, files.ErrSpoiled) || check() != nil {
		return err
	}
	// Kept files may conflict with what the job's names mean: start over without them.
	if err := p.again(j); err != nil {
		return err
	}
	if err := p.Forget(); err != nil {
		return err
	}
	return p.layFresh(in, made, check)
}

// layFresh is lay for a tree that keeps nothing.
func (p *Place) layFresh(in *files.Set, made []laidImage, check func() error) error {
	if err := lay(p.tree, in, check); err != nil {
		return err
	}
	for i := range made {
		if err := check(); err != nil {
			return err
		}
		if err := p.tree.Write(made[i].name, made[i].Bytes(), imageTime, false); err != nil {
			return err
		}
	}
	return nil
}

// layKept is lay for a job with lists, whose files the tree keeps for the owner's next job.
func (p *Place) layKept(owner *store.Tenant, in *files.Set, made []laidImage, check func() error) error {
	images := asKeptImages(made)
	if p.layout.owner != owner {
		if err := p.Forget(); err != nil {
			return err
		}
		p.layout.owner, p.layout.forgets = owner, p.h.Forgets.Load()
	}
	dirs := dirsOf(in)
	if !slices.Equal(p.layout.lists, in.Lists) || !slices.Equal(p.layout.dirs, dirs) || !maps.Equal(p.layout.images, images) || slices.ContainsFunc(in.Body.Outputs, func(o unit.Output) bool { return p.tree.KeepsBase(path.Base(o.Name)) }) {
		if err := p.retain(in, dirs, images); err != nil {
			return err
		}
	}
	if err := layAround(p.tree, in, dirs, p.tree.KeepDir, check); err != nil {
		return err
	}
	var rest []int
	for _, i := range p.layout.rest {
		f := &in.Body.Files[i]
		if !in.Keepable(i) {
			rest = append(rest, i)
			if err := layFile(p.tree, in, i, check); err != nil {
				return err
			}
			continue
		}
		if err := check(); err != nil {
			return err
		}
		text, err := in.File(i)
		if err != nil {
			return err
		}
		if err := p.tree.Keep(f.Name, asKept(in, i), text); err != nil {
			return err
		}
		if _, ok := p.tree.Keeps(f.Name); !ok {
			rest = append(rest, i)
		}
	}
	for i := range made {
		if err := check(); err != nil {
			return err
		}
		if _, ok := p.tree.Keeps(made[i].name); ok {
			continue
		}
		if err := p.tree.Keep(made[i].name, images[made[i].name], made[i].Bytes()); err != nil {
			return err
		}
	}
	p.layout.lists, p.layout.rest = in.Lists, rest
	return nil
}

// retain drops the kept files that the job must not see, which are all but its own and the images, and the kept directories except dirs. It sets
// layout.rest to the files of its lists that are still to be laid out.
func (p *Place) retain(in *files.Set, dirs []string, images map[string]privatetree.Kept) error {
	p.layout.lists, p.layout.dirs, p.layout.rest, p.layout.images = nil, dirs, nil, images
	wantedDirs := make(map[string]struct{}, len(dirs))
	for _, d := range dirs {
		wantedDirs[d] = struct{}{}
	}
	wanted := make(map[string]privatetree.Kept, len(in.Text)-in.FirstListed())
	for i := in.FirstListed(); i < len(in.Text); i++ {
		if in.Keepable(i) {
			wanted[in.Body.Files[i].Name] = asKept(in, i)
		}
	}
	err := p.tree.Retain(func(name string, k privatetree.Kept) bool {
		w, ok := wanted[name]
		if !ok {
			w, ok = images[name]
		}
		return ok && w == k
	}, func(name string) bool {
		_, ok := wantedDirs[name]
		return ok
	})
	if err != nil {
		return err
	}
	for i := in.FirstListed(); i < len(in.Text); i++ {
		name := in.Body.Files[i].Name
		if _, ok := wanted[name]; ok {
			if _, ok := p.tree.Keeps(name); ok {
				continue
			}
		}
		p.layout.rest = append(p.layout.rest, i)
	}
	return nil
}

// asKept returns the record that a tree keeps of file i, which a list names.
func asKept(in *files.Set, i int) privatetree.Kept {
	f := &in.Body.Files[i]
	return privatetree.Kept{Sum: in.ID(i), MTime: f.MTime, Exec: f.Exec}
}
