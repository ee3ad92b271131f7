package cluster

import (
	"bytes"
	"crypto/sha256"
	"regexp"
	"strings"
	"sync"

	"github.com/rdistcc/rdistcc/internal/job"
)

// The API has no times of files, unless a server says so, and does not say whether two files with the same content are one: servers
// make them hard links, or give them the same inode number. Compilers notice both:
//
//   - __TIMESTAMP__ is the time of the source
//   - clang takes files with the same inode for one file, and modules that it has made are valid for files of the same times only
//   - gcc takes a file with "#pragma once", or one that was imported, for another one of the same time, size and content

// traits are what a content has that matters for that.
type traits uint8

const (
	asksTime   traits = 1 << iota // __TIMESTAMP__
	onceOnly                      // it may be a file that is read once only
	saysOnce                      // it has _Pragma("once"), perhaps as a macro for other files
	astFile                       // it is a module or the like that a clang has made
	byteMarked                    // it begins with a byte order mark
)

var pragmaOnce = regexp.MustCompile(`_Pragma\s*\(\s*"\s*once`)

func traitsOf(b []byte) (t traits) {
	if bytes.Contains(b, []byte("__TIMESTAMP__")) {
		t |= asksTime
	}
	if bytes.Contains(b, []byte("once")) || bytes.Contains(b, []byte("import")) {
		t |= onceOnly
	}
	if bytes.Contains(b, []byte("_Pragma")) && pragmaOnce.Match(b) {
		t |= saysOnce
	}
	if bytes.HasPrefix(b, []byte("CPCH")) {
		t |= astFile
	}
	if bytes.HasPrefix(b, []byte(byteOrderMark)) {
		t |= byteMarked
	}
	return t
}

const byteOrderMark = "\xef\xbb\xbf"

// knownTraits remembers the traits of contents. Most files of a job were looked at for an earlier one.
type knownTraits struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]traits
}

// mostTraits bounds the contents that are remembered, at some 50 bytes each.
const mostTraits = 1 << 17

func (k *knownTraits) of(f *File) traits {
	k.mu.Lock()
	t, ok := k.all[f.Sum]
	k.mu.Unlock()
	if ok {
		return t
	}
	t = traitsOf(f.Content)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil || len(k.all) >= mostTraits {
		k.all = make(map[[sha256.Size]byte]traits)
	}
	k.all[f.Sum] = t
	return t
}

// hazard refuses a command whose result could be another one on the cluster than on its build host.
func (k *knownTraits) hazard(c *Command) error {
	clang := c.Compiler.Family != "gcc"
	seen := make(map[[sha256.Size]byte]int, len(c.Files)) // the index of the first file with a content
	once := false
	var twins [][2]int
	for i := range c.Files {
		f := &c.Files[i]
		if f.Same != 0 {
			twins = append(twins, [2]int{int(f.Same) - 1, i})
			continue
		}
		t := k.of(f)
		switch {
		case t&asksTime != 0:
			return job.Refuse(job.CauseTree, "%.200q has __TIMESTAMP__, and a cluster keeps no times of files", f.Name)
		case t&astFile != 0 && clang:
			return job.Refuse(job.CauseTree, "%.200q is valid for files of certain times only, and a cluster keeps none", f.Name)
		}
		once = once || t&saysOnce != 0
		sum := f.Sum
		if t&byteMarked != 0 { // gcc compares what follows it
			sum = sha256.Sum256(f.Content[len(byteOrderMark):])
		}
		if j, twice := seen[sum]; twice {
			twins = append(twins, [2]int{j, i})
		} else {
			seen[sum] = i
		}
	}
	for _, x := range twins {
		f := &c.Files[x[0]]
		if clang || once || k.of(f)&onceOnly != 0 {
			return job.Refuse(job.CauseTree, "%.200q and %.200q have the same content: a cluster may show one file, or two", f.Name, c.Files[x[1]].Name)
		}
	}
	return nil
}

// reserved lists the directories that workers may have something of their own in.
var reserved = []string{"/dev", "/proc", "/sys"}

// nameable refuses a name below one of those.
func nameable(name string) error {
	for _, dir := range reserved {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return refused(name, dir+" is the worker's")
		}
	}
	return nil
}
