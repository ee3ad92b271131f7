package trust

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
)

// names are the files that a job brought, by what their names mean in the tree that a
// host makes of them: "sub/../x.h" is "x.h" where sub is a directory, and another file
// where it is a link to one elsewhere. Nothing is asked of the file system: the job's own
// links and directories are all that a host's compiler could follow.
type names struct {
	cwd   string            // without links
	links map[string]string // target by name; neither leads through a link
	files map[string]bool   // that the job brought
	dirs  map[string]bool   // on the way to something that it brought
}

// namesOf reads them from a job.
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

// bring notes the directories on the way to name, and returns what it means.
func (n *names) bring(name string) string {
	at, _ := n.follow(name, func(dir string) bool { n.dirs[dir] = true; return true })
	return at
}

// brought says whether name is one of a file that the job brought, by a way that it
// brought as well.
func (n *names) brought(name string) bool {
	at, ok := n.follow(name, func(dir string) bool { return n.dirs[dir] })
	return ok && n.files[at]
}

// follow goes the way of name as the kernel does, one part after the other, a link where
// there is one. through is asked for each directory on it; ok is false as soon as it says no.
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
