// Package compile knows compilers' command lines: which commands may run on
// another machine, what they read and write, and how to run their two halves.
//
//	Parse(argv) ─▶ Plan ─┬─ Local: run it here, as it was typed
//	                     └─ Preprocess() here, its stdout is the slot
//	                        ScanText()   can this text travel?
//	                        Remote()     options for the compiler over there
//	                        Place()      its outputs, as the compiler here would
//
// The package is linked into the wrapper that runs once a source file: its
// tables are laid out by the linker, nothing is built at start.
package compile

import (
	"github.com/rdistcc/rdistcc/pkg/job"
)

// Plan is what a command line asks for.
type Plan struct {
	// Local: run it here as it was typed; Reason and Gate say why and when.
	Local  bool
	Reason string
	Gate   Gate

	// Otherwise one compile of one source that may run elsewhere.
	Driver   Driver
	Source   string       // as typed
	Language string       // of the source: "c", "c++", "objective-c", ... or "cpp-output", ...
	Outputs  []job.Output // paths as the compiler would use them; the first is the main one

	// Raw: the source is preprocessed already. There is no local half: the
	// file itself is the text.
	Raw bool

	options []option // parsed words, in order
	output  string   // argument of -o, or ""
	deps    bool     // -MD or -MMD by itself: the driver derives a name and a target
	depFile bool     // -MF was given
	target  bool     // -MT or -MQ was given
	debug   bool     // some -g
	compDir bool     // clang: the command names the directory for debug information
	plain   bool     // gcc: this command cannot keep its macros in the text
	lto     bool     // gcc: the object names the working directory
	macros  bool     // gcc: the object depends on the places of macros
	places  bool     // the compiler is to warn of statements by their place
	rewrite bool     // clang: the object depends on the places of macros
}

// option is one parsed option with its argument words.
type option struct {
	words []string
	class class
}

// Gate says which turn a local command waits for.
type Gate uint8

// Gates, numbered as in the local protocol.
const (
	GateNone Gate = iota
	GateCPP
	GateLocal
)

// Reasons for compiling here that a command line alone can give. Two carry
// more behind a colon: the option that is not known, and what it is that
// another machine could not reproduce.
const (
	ReasonLink            = "link"
	ReasonPreprocess      = "preprocess"
	ReasonDependencies    = "dependencies-only"
	ReasonQuery           = "query"
	ReasonNoSource        = "no-source"
	ReasonStdin           = "stdin"
	ReasonAssembler       = "assembler"
	ReasonProbe           = "probe"
	ReasonDiagnostics     = "diagnostics"
	ReasonUnknownOption   = "unknown-option:"
	ReasonNotReproducible = "not-reproducible:"
)
