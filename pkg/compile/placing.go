package compile

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Placing is how an output is placed, for a caller that does so with system calls alone. Place does the same.
type Placing struct {
	Dir  string // a name for the directory that it is in, which must be writable unless an existing file is kept
	Temp string // a new file that replaces an existing one; "": none
	// Unlinks means that an existing file that is not empty is removed first. Otherwise, without a Temp, it is truncated.
	Unlinks bool
}

// Placing returns how the process pid places an output where a regular file is, or none. It is for Place alone if ok is false.
func (p *Plan) Placing(out unit.Output, pid int) (how Placing, ok bool) {
	how.Dir = out.Name[:strings.LastIndexByte(out.Name, '/')+1] + "."
	switch p.mannerOf(out) {
	case inPlace:
	case unlinked:
		how.Unlinks = true
	case renamed:
		how.Temp = tempBeside(out.Name, pid, 0)
	default:
		return how, false
	}
	return how, !p.MakesWay(out) && !p.removesFor(out)
}

// Write places length bytes at offset off of the file fd in the file name, as Place does. Placing must have returned how for it.
func (how Placing) Write(name string, fd int, off, length int64) error {
	manner := inPlace
	switch {
	case how.Temp != "":
		manner = renamed
	case how.Unlinks:
		manner = unlinked
	}
	return place(name, manner, fd, off, length)
}
