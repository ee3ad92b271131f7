package unit

import (
	"path"
	"strings"
)

// Shared returns name as all processes with one working directory may use it. Linux has names that lead each process
// somewhere else: /proc/self/cwd, the working directory, is returned as ".", and what is below it likewise. Of the others, in
// /proc and /dev/fd, no other process can tell where they lead, on this machine or another: ok is false.
func Shared(name string) (shared string, ok bool) {
	if !strings.HasPrefix(name, "/") {
		return name, true
	}
	first, rest := component(name)
	second, rest := component(rest)
	if third, rest := component(rest); first == "proc" && (second == "self" || second == "thread-self") && third == "cwd" {
		if rest = strings.TrimLeft(rest, "/"); rest == "" {
			return ".", true
		}
		return "./" + rest, true
	}
	if strings.Contains(name, "/..") {
		first, rest = component(path.Clean(name))
		second, _ = component(rest)
	}
	return name, first != "proc" && (first != "dev" || second != "fd")
}

// component returns the first component of a name that is not ".", and what follows it.
func component(name string) (first, rest string) {
	for {
		first, rest, _ = strings.Cut(strings.TrimLeft(name, "/"), "/")
		if first != "." {
			return first, rest
		}
		name = rest
	}
}
