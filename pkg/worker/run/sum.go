package run

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// sum finds out what the tree shows to a job's compiler, if that is asked for.
func (p *Place) sum(j *Job) {
	if !j.Sum || j.Files == nil || len(j.body.Images) > 0 {
		return
	}
	v, err := j.Files.Inputs(func(name string) (at resultcache.Inode, mtime int64, err error) {
		if p.h.Cluster != nil {
			return at, 0, fmt.Errorf("%s has the content of another file, and both are on a cluster", name)
		}
		st, err := p.tree.Stat(name)
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			err = fmt.Errorf("%s is no regular file", name)
		}
		return resultcache.Inode{Dev: st.Dev, Ino: st.Ino}, st.Mtim.Nano(), err
	})
	if err != nil {
		p.h.Log.Debug("what a job shows to its compiler has no sum", "err", err)
		return
	}
	sum := v.Sum()
	j.Inputs = &sum
}
