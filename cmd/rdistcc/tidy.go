package main

import (
	"bytes"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// tidyStands reports whether what clang-tidy has printed, words on its standard error, is what it would have printed here. It
// reports what it finds on its standard output, in colours if that is a terminal.
func (f *flow) tidyStands(r *result, words []byte) bool {
	found, ok := readOut(f.slot.sink, r.Stdout)
	switch {
	case !ok, bytes.Contains(words, []byte("compilation database")), bytes.Contains(words, []byte("rror reading configuration")):
		return false
	case r.Exit != 0 && notItsFault(found):
		return false
	case f.takesWords():
		return true
	case len(found) > 0 && isTerminal(1):
		return false
	case len(found) > 0 && len(words) > 0 && sameOpen(1, 2):
		_, ok := beforeFindings(words)
		return ok
	}
	return true
}

// beforeFindings returns how much of what clang-tidy has printed on its standard error was there before its findings, which it
// prints on its standard output when it has read everything. ok is false if that is not known of a line.
func beforeFindings(words []byte) (n int, ok bool) {
	after := false
	for line := range bytes.Lines(words) {
		s := strings.TrimRight(string(line), "\n")
		switch {
		case !after && (strings.HasSuffix(s, " generated.") || strings.HasPrefix(s, "Error while processing ")):
			n += len(line)
		case strings.HasPrefix(s, "Suppressed "), strings.HasPrefix(s, "Use -header-filter="), strings.HasPrefix(s, "Found compiler error"),
			strings.HasSuffix(s, " treated as error"), strings.HasSuffix(s, " treated as errors"):
			after = true
		default:
			return 0, false
		}
	}
	return n, true
}

// printTidy prints what clang-tidy has printed, each line in its place where both outputs are the same file.
func (f *flow) printTidy(r *result) bool {
	before := ipc.Segment{Off: r.Stderr.Off}
	if words, ok := readOut(f.slot.sink, r.Stderr); ok && sameOpen(1, 2) {
		n, _ := beforeFindings(words)
		before.Len = uint64(n)
	}
	after := ipc.Segment{Off: r.Stderr.Off + before.Len, Len: r.Stderr.Len - before.Len}
	return copyOut(2, f.slot.sink, before) && copyOut(1, f.slot.sink, r.Stdout) && copyOut(2, f.slot.sink, after)
}

// sameOpen reports whether two descriptors are of the same file.
func sameOpen(a, b int) bool {
	var x, y syscall.Stat_t
	return syscall.Fstat(a, &x) == nil && syscall.Fstat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}
