package parcel

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// maxHops bounds the links on the way to a file, as the kernel does.
const maxHops = 40

// follow walks along an absolute name as the kernel does, and returns the canonical name of what it leads to. look returns the
// target of the link at a canonical name, or whether a file is there; anything else is taken for a directory.
func follow(name string, look func(at string) (target string, file bool, err error)) (at string, file bool, err error) {
	at = "/"
	hops := 0
	for todo := steps(name); len(todo) > 0; {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch c {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, c)
		target, file, err := look(next)
		switch {
		case err != nil:
			return "", false, err
		case target != "":
			if hops++; hops > maxHops {
				return "", false, &fs.PathError{Op: "follow", Path: name, Err: syscall.ELOOP}
			}
			if path.IsAbs(target) {
				at = "/"
			}
			todo = append(todo, steps(target)...)
		case !file:
			at = next
		case len(todo) > 0:
			return "", false, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
		default:
			return next, true, nil
		}
	}
	return at, false, nil
}

// steps returns the parts of a name, the last one first.
func steps(name string) []string {
	s := strings.Split(name, "/")
	slices.Reverse(s)
	return s
}
