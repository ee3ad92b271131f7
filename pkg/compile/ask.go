package compile

import "strings"

// ParseUnlisted is Parse for a caller that has the compiler asked: words that are in no table, but look like flags for
// code, do not keep the command here. They are in the plan's Unlisted, and the command may leave only if the compiler
// that it names takes each of them for a flag (package recipes).
func ParseUnlisted(argv []string, d Driver, getenv func(string) (string, bool)) Plan {
	return parse(argv, d, getenv, true)
}

// Askable reports whether w may be a flag of a newer compiler's that changes code alone: -mNAME for the target, with or
// without a word as its value, or -fNAME. That it is one, only the compiler can tell.
func Askable(w string) bool {
	if len(w) < 4 || len(w) > maxWord || w[0] != '-' || w[1] != 'f' && w[1] != 'm' || find(w) != nil {
		return false
	}
	name, value, valued := strings.Cut(w[2:], "=")
	if name == "" || name[0] < 'a' || name[0] > 'z' || !onlyOf(name, flagBytes, maxWord) || valued && (w[1] == 'f' || value == "" || !onlyOf(value, flagBytes, maxWord)) {
		return false
	}
	if positive, ok := strings.CutPrefix(name, "no-"); ok && find(w[:2]+positive) != nil {
		return false
	}
	for _, part := range aboutFiles {
		if strings.Contains(name, part) {
			return false
		}
	}
	return true
}

const flagBytes = "abcdefghijklmnopqrstuvwxyz" + digitBytes + "_.-"

// aboutFiles are parts of names of options that read, write or print something, whatever a compiler says of them.
var aboutFiles = [...]string{"achine", "cache", "config", "deps", "diag", "dir", "driver", "dump", "file", "help", "linker", "llvm", "load", "lto", "map", "mem", "mlir",
	"odule", "output", "path", "pch", "plugin", "print", "prof", "report", "root", "save", "spec", "stat", "sys", "temp", "time", "toolchain", "trace", "version"}
