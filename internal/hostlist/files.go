package hostlist

import (
	"strconv"
	"strings"
)

// File is a possible location of a host list.
type File struct {
	Path    string
	Foreign bool // distcc's
}

// Files returns the locations to check. The first one that exists decides; there is no merging. dir is
// RDISTCC_DIR, or empty; getenv is asked for HOME, XDG_CONFIG_HOME and DISTCC_DIR.
func Files(dir string, getenv func(string) string) []File {
	home := getenv("HOME")
	var files []File
	add := func(foreign bool, base, rest string) {
		if base != "" {
			files = append(files, File{Path: strings.TrimSuffix(base, "/") + rest, Foreign: foreign})
		}
	}
	add(false, dir, "/hosts")
	if c := getenv("XDG_CONFIG_HOME"); c != "" {
		add(false, c, "/rdistcc/hosts")
	} else {
		add(false, home, "/.config/rdistcc/hosts")
	}
	files = append(files, File{Path: "/etc/rdistcc/hosts"})
	add(true, getenv("DISTCC_DIR"), "/hosts")
	add(true, home, "/.distcc/hosts")
	return append(files, File{Path: "/etc/distcc/hosts", Foreign: true})
}

// FromFiles reads the first of files that exists; exists is false if none does. read returns a file's
// content, and whether the file exists. where is the name of the file that was used.
func FromFiles(files []File, read func(path string) (content []byte, exists bool, err error)) (list List, where string, err error) {
	for _, f := range files {
		content, exists, err := read(f.Path)
		if err != nil {
			return List{}, f.Path, &Error{Where: f.Path, Problem: err.Error(), Remedy: "make it readable, or set RDISTCC_HOSTS"}
		}
		if !exists {
			continue
		}
		list, err := parse(string(content), f.Foreign)
		return list, f.Path, at(f.Path, err)
	}
	return List{}, "", nil
}

// Foreign reads the content of a file of distcc's.
func Foreign(where, content string) (List, error) {
	list, err := parse(content, true)
	return list, at(where, err)
}

// FromEnv reads RDISTCC_HOSTS, or DISTCC_HOSTS if that is unset; one that is set but empty is a list
// without hosts. where is the variable's name, or empty if neither is set.
func FromEnv(lookup func(string) (string, bool)) (list List, where string, err error) {
	for _, name := range []string{"RDISTCC_HOSTS", "DISTCC_HOSTS"} {
		if text, set := lookup(name); set {
			list, err := Parse(text)
			return list, name, at(name, err)
		}
	}
	return List{}, "", nil
}

// at adds the location to an error of parse: a variable's name, or a file and line as FILE:LINE.
func at(where string, err error) error {
	e, ok := err.(*Error)
	if !ok || e == nil {
		return err
	}
	c := *e
	switch {
	case c.line == 0:
		c.Where = where
	case strings.Contains(where, "/"):
		c.Where = where + ":" + strconv.Itoa(c.line)
	default:
		c.Where = where + " line " + strconv.Itoa(c.line)
	}
	return &c
}
