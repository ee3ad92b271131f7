package cluster

import (
	"maps"
	"path"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/internal/job"
)

// root is an input root under construction: a tree of directories, files and links, as an action sees it. Names are followed as the
// kernel does for a process whose root it is. A sealed directory does not change, so that roots can share it; what is added to one
// goes into a copy.
type root struct{ top *directory }

// directory is one directory of a root.
type directory struct {
	nodes  map[string]node
	sealed *cas.Blob  // its encoding; nil: it is not sealed
	below  []cas.Blob // of a sealed one: itself, and all directories and files below it
}

// node is an entry of a directory: exactly one of the fields is set.
type node struct {
	dir    *directory
	target string // of a symbolic link
	file   *content
}

// content is a file.
type content struct {
	cas.Blob
	exec bool
	base bool // it is the toolchain's
}

// Bounds of a name, as in the kernel.
const (
	maxHops  = 40
	maxName  = 4096 // bytes
	maxDepth = 128
)

func newRoot() *root { return &root{&directory{nodes: make(map[string]node)}} }

// on returns a root that begins as a sealed one, which stays as it is.
func on(base *directory) *root { return &root{base} }

// frame is a directory on the way to a name.
type frame struct {
	name string // in the one before
	d    *directory
}

// way is where a walk is: the root directory first.
type way []frame

// refused is the error about a name that cannot be shown.
func refused(name, why string) error {
	return job.Refuse(job.CauseTree, "%.200q cannot be shown on the cluster: %s", name, why)
}

// walk follows a name from the directory at. If it ends at a file, or at a name that does not exist, rest is that name, and at is its
// directory. With mkdir, missing directories are made; then everything that the name has is one.
func (r *root) walk(at way, name string, mkdir bool) (end way, rest string, err error) {
	if strings.HasPrefix(name, "/") {
		at = way{{"", r.top}}
	}
	hops, todo := 0, name
	for todo != "" {
		var c string
		c, todo, _ = strings.Cut(todo, "/")
		switch c {
		case "", ".":
			continue
		case "..":
			if len(at) > 1 {
				at = at[:len(at)-1]
			}
			continue
		}
		n, ok := at[len(at)-1].d.nodes[c]
		more := strings.Trim(todo, "/") != ""
		switch {
		case ok && n.dir != nil:
		case ok && n.target != "":
			if hops++; hops > maxHops {
				return nil, "", refused(name, "its links lead in circles")
			}
			if n.target[0] == '/' {
				at = at[:1]
			}
			if todo = n.target + "/" + todo; len(todo) > maxName {
				return nil, "", refused(name, "it is too long")
			}
			continue
		case ok && (more || mkdir):
			return nil, "", refused(name, "a file is in the way")
		case ok || !mkdir && !more:
			return at, c, nil
		case !mkdir:
			return nil, "", refused(name, "a directory on the way is missing")
		case len(at) > maxDepth:
			return nil, "", refused(name, "it is too deep")
		default:
			n = node{dir: &directory{nodes: make(map[string]node)}}
			r.writable(at).nodes[c] = n
		}
		at = append(slices.Clip(at), frame{c, n.dir})
	}
	return at, "", nil
}

// writable returns the last directory of the way, to be changed. Sealed ones on the way are replaced by copies.
func (r *root) writable(at way) *directory {
	for i := range at {
		if at[i].d.sealed == nil {
			continue
		}
		at[i].d = &directory{nodes: maps.Clone(at[i].d.nodes)}
		if i == 0 {
			r.top = at[i].d
		} else {
			at[i-1].d.nodes[at[i].name] = node{dir: at[i].d}
		}
	}
	return at[len(at)-1].d
}

// mkdirs makes a directory and all its parents.
func (r *root) mkdirs(name string) error {
	_, _, err := r.walk(nil, name, true)
	return err
}

// parent makes the directory of a name, and returns it with the name's last part.
func (r *root) parent(name string) (at way, base string, err error) {
	i := strings.LastIndexByte(name, '/') + 1
	if base = name[i:]; name == "" || name[0] != '/' || base == "" || base == "." || base == ".." {
		return nil, "", refused(name, "it is not the name of a file")
	}
	at, _, err = r.walk(nil, name[:i], true)
	return at, base, err
}

// write makes a file. A file of the toolchain with the same content will do.
func (r *root) write(name string, f *content) error {
	at, base, err := r.parent(name)
	if err != nil {
		return err
	}
	if _, there := at[len(at)-1].d.nodes[base]; there {
		old := r.find(name)
		switch {
		case old == nil || !old.base:
			return refused(name, "something else has that name")
		case old.Digest.Hash != f.Digest.Hash:
			return refused(name, "the toolchain has another file of that name")
		}
		return nil
	}
	r.writable(at).nodes[base] = node{file: f}
	return nil
}

// find returns the file that a name leads to; nil: none.
func (r *root) find(name string) *content {
	at, base, err := r.walk(nil, name, false)
	if err != nil || base == "" {
		return nil
	}
	return at[len(at)-1].d.nodes[base].file
}

// symlink makes a symbolic link. One that exists must lead to the same name. Servers may refuse absolute targets, so those become
// relative ones, which mean the same below a root directory.
func (r *root) symlink(target, name string) error {
	at, base, err := r.parent(name)
	if err != nil {
		return err
	}
	if target == "" {
		return refused(name, "it is a link that leads nowhere")
	}
	if target[0] == '/' {
		target = strings.Repeat("../", len(at)-1) + strings.TrimLeft(target, "/")
		if target = plain(target); target == "" {
			target = "."
		}
	} else {
		target = plain(target)
	}
	if old, there := at[len(at)-1].d.nodes[base]; there {
		if old.target != target && (old.target == "" || path.Join("/", place(at), old.target) != path.Join("/", place(at), target)) {
			return refused(name, "the toolchain has something else of that name")
		}
		return nil
	}
	r.writable(at).nodes[base] = node{target: target}
	return nil
}

// plain returns a target without empty parts and dots, as the API wants it. What precedes ".." stays: it may be a link.
func plain(target string) string {
	parts := strings.Split(target, "/")
	parts = slices.DeleteFunc(parts, func(c string) bool { return c == "" || c == "." })
	return strings.Join(parts, "/")
}

// place returns the canonical name of the directory at the end of the way, without its leading slash.
func place(at way) string {
	var parts []string
	for _, f := range at[1:] {
		parts = append(parts, f.name)
	}
	return strings.Join(parts, "/")
}

// seal encodes a directory and everything below it.
func (d *directory) seal() error {
	if d.sealed != nil {
		return nil
	}
	var m repb.Directory
	var below []cas.Blob
	for _, name := range slices.Sorted(maps.Keys(d.nodes)) {
		switch n := d.nodes[name]; {
		case n.dir != nil:
			if err := n.dir.seal(); err != nil {
				return err
			}
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: n.dir.sealed.Digest})
			below = append(below, n.dir.below...)
		case n.target != "":
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: n.target})
		default:
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: n.file.Digest, IsExecutable: n.file.exec})
			below = append(below, n.file.Blob)
		}
	}
	b, err := cas.TryEncode(&m)
	if err != nil {
		return job.Refuse(job.CauseTree, "a name that is not valid UTF-8 cannot be shown on the cluster")
	}
	d.sealed, d.below = &b, append(below, b)
	return nil
}
