package trust

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// names holds the files that a job brought by their resolved names in the tree that a host makes of them:
// "sub/../x.h" is "x.h" if sub is a directory, and another file if sub is a link to a directory elsewhere. It
// does not look at the file system: the job's own links and directories are all that a host's compiler could
// follow.
type names struct {
	cwd   string            // with links resolved
	links map[string]string // targets by name; no link in either
	files map[string]bool   // files that the job brought
	dirs  map[string]bool   // directories above something that the job brought
}

// namesOf returns the names of a job.
func namesOf(b *job.Body) *names {
	n := &names{links: make(map[string]string, len(b.Links)), files: make(map[string]bool, len(b.Files)), dirs: map[string]bool{"": true}}
	for _, l := range b.Links {
		n.links[l.Name] = l.Target
	}
	n.cwd = n.bring(b.Cwd + "/")
	for _, l := range b.Links {
		n.bring(l.Name[:strings.LastIndexByte(l.Name, '/')+1])
	}
	for _, dir := range b.Dirs {
		n.bring(dir + "/")
	}
	for i := range b.Files {
		n.files[n.bring(b.Files[i].Name)] = true
	}
	return n
}

// bring records the directories on the path of name, and returns its resolved name.
func (n *names) bring(name string) string {
	at, _ := n.follow(name, func(dir string) bool { n.dirs[dir] = true; return true })
	return at
}

// brought reports whether name refers to a file that the job brought, through directories that it brought too.
func (n *names) brought(name string) bool {
	name, _ = unit.Shared(name) // to the compiler, /proc/self/cwd is the job's directory too
	at, ok := n.follow(name, func(dir string) bool { return n.dirs[dir] })
	return ok && n.files[at]
}

// follow resolves name as the kernel does, one component after the other, and follows links. It calls through
// for each directory on the path, and stops with ok false once through returns false.
func (n *names) follow(name string, through func(dir string) bool) (at string, ok bool) {
	if !strings.HasPrefix(name, "/") {
		at = n.cwd
	}
	for {
		part, rest, more := strings.Cut(name, "/")
		switch part {
		case "", ".":
		case "..":
			at = at[:max(0, strings.LastIndexByte(at, '/'))]
		default:
			at += "/" + part
			if to, is := n.links[at]; is {
				at = to
			}
		}
		if !more {
			return at, true
		}
		if !through(at) {
			return at, false
		}
		name = rest
	}
}
