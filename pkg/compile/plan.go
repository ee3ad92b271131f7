// Package compile knows compilers' command lines: which commands may run on
// another machine, what they read and write, and how to run their two halves.
package compile

import (
	"github.com/rdistcc/rdistcc/pkg/job"
)

// Family is a compiler's dialect of options.
type Family uint8

// Families.
const (
	GCC Family = iota
	Clang
)

// Plan is what a command line asks for.
type Plan struct {
	// Local: run it here as it was typed; Reason and Gate say why and when.
	Local  bool
	Reason string
	Gate   Gate

	// Otherwise one compile of one source that may run elsewhere.
	Source   string       // as typed
	Language string       // of the source: "c", "c++", "objective-c", ... or "cpp-output", ...
	Outputs  []job.Output // paths as the compiler would use them; the first is the main one

	options []option // parsed words, in order
}

// option is one parsed option with its argument words.
type option struct {
	words []string
	class uint8
}

// Gate says which turn a local command waits for.
type Gate uint8

// Gates, numbered as in the local protocol.
const (
	GateNone Gate = iota
	GateCPP
	GateLocal
)
