package worker

import (
	"errors"
	"path"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/store"
)

// layout is what a stand's tree has kept of the last job: files that its lists named. The next job mostly names the
// same ones, and writing and removing them takes longer than all else that the host does for it, its compiler
// aside. A job sees all the same what its own lists name, and nothing else: what
// was kept beyond that is dropped before.
type layout struct {
	owner   *store.Tenant   // to whom they belong; nil: nothing is kept
	lists   []job.ContentID // that named them; nil: not all that they name is there
	rest    []int           // indices, among the files of a job with them, of those that are not kept
	forgets uint64          // Server.forgets when the owner's files began to be kept
}

// What trees may keep, each: together as much as the store has in memory, but within these bounds.
const (
	leastKept = 4 << 20  // bytes
	mostKept  = 64 << 20 // bytes
)

// keepsEach is how many bytes each runner's tree may keep.
func (s *Server) keepsEach() int64 {
	if s.o.NoStore {
		return 0
	}
	return min(max(s.o.Store.Memory/int64(max(s.o.Jobs, 1)), leastKept), mostKept)
}

// forget drops all that the tree keeps.
func (d *stand) forget() error {
	if d.layout.owner == nil {
		return nil
	}
	d.layout = layout{}
	defer d.count()
	return d.tree.Retain(func(string, privatetree.Kept) bool { return false })
}

// count brings the sum of what trees keep up to date.
func (d *stand) count() {
	n := int64(0)
	if d.tree != nil {
		n = d.tree.KeptBytes()
	}
	d.total.Add(n - d.kept)
	d.kept = n
}

// stale reports whether what the tree keeps has to go: nothing is kept for its owner any more, or the
// machine has been short of memory since the time of forgets.
func (d *stand) stale(forgets uint64) bool {
	return d.layout.owner != nil && (d.layout.owner.Wiped() || d.layout.forgets != forgets)
}

// lay makes in the tree what a job of owner's finds on the client. An error of check ends it.
func (d *stand) lay(owner *store.Tenant, forgets uint64, in *inputs, check func() error) error {
	if owner == nil || len(in.lists) == 0 {
		if err := d.forget(); err != nil {
			return err
		}
		return lay(d.tree, in, check)
	}
	err := d.layKept(owner, forgets, in, check)
	if err == nil || errors.Is(err, errSpoiled) || check() != nil {
		return err
	}
	// What is kept could be in the way of what the job's names mean: from the beginning, without.
	if err := errors.Join(d.tree.Clean(), d.forget()); err != nil {
		return err
	}
	return lay(d.tree, in, check)
}

// layKept is lay where the tree keeps files of the lists.
func (d *stand) layKept(owner *store.Tenant, forgets uint64, in *inputs, check func() error) error {
	if d.layout.owner != owner {
		if err := d.forget(); err != nil {
			return err
		}
		d.layout.owner, d.layout.forgets = owner, forgets
	}
	if !slices.Equal(d.layout.lists, in.lists) || slices.ContainsFunc(in.body.Outputs, func(o job.Output) bool { return d.tree.KeepsBase(path.Base(o.Name)) }) {
		if err := d.retain(in); err != nil {
			return err
		}
	}
	if err := layAround(d.tree, in, check); err != nil {
		return err
	}
	var rest []int
	for _, i := range d.layout.rest {
		f := &in.body.Files[i]
		if !in.keepable(i) {
			rest = append(rest, i)
			if err := layFile(d.tree, in, i, check); err != nil {
				return err
			}
			continue
		}
		if err := check(); err != nil {
			return err
		}
		text, err := in.file(i)
		if err != nil {
			return err
		}
		if err := d.tree.Keep(f.Name, in.asKept(i), text); err != nil {
			return err
		}
		if _, ok := d.tree.Keeps(f.Name); !ok {
			rest = append(rest, i)
		}
	}
	d.layout.lists, d.layout.rest = in.lists, rest
	return nil
}

// retain drops what the tree keeps and a job is not to see, and notes which files of its lists are to be laid.
func (d *stand) retain(in *inputs) error {
	d.layout.lists, d.layout.rest = nil, nil
	wanted := make(map[string]privatetree.Kept, len(in.kept))
	for i := in.listed(); i < len(in.text); i++ {
		if in.keepable(i) {
			wanted[in.body.Files[i].Name] = in.asKept(i)
		}
	}
	err := d.tree.Retain(func(name string, k privatetree.Kept) bool {
		w, ok := wanted[name]
		return ok && w == k
	})
	if err != nil {
		return err
	}
	for i := in.listed(); i < len(in.text); i++ {
		name := in.body.Files[i].Name
		if _, ok := wanted[name]; ok {
			if _, ok := d.tree.Keeps(name); ok {
				continue
			}
		}
		d.layout.rest = append(d.layout.rest, i)
	}
	return nil
}

// keepable reports whether a file of a list may stay in a tree: it has an inode and a name of its own, and
// the command does not write to it.
func (in *inputs) keepable(i int) bool {
	k, name := i-in.listed(), in.body.Files[i].Name
	if in.kept[k] == nil || in.shared[k] || name[0] != '/' {
		return false
	}
	base := path.Base(name)
	return !slices.ContainsFunc(in.body.Outputs, func(o job.Output) bool { return path.Base(o.Name) == base })
}

// asKept is a file of a list as a tree knows it.
func (in *inputs) asKept(i int) privatetree.Kept {
	f := &in.body.Files[i]
	return privatetree.Kept{Sum: in.ids[i-in.listed()], MTime: f.MTime, Exec: f.Exec}
}
