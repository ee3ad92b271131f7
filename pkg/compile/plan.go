// Package compile knows compilers' command lines: which commands may run on
// another machine, what they read and write, and in which form.
//
//	Parse(argv) ─▶ Plan ─┬─ Local: run it here, as it was typed
//	                     ├─ sources form: the command itself over the original files
//	                     │  List()         lists the files here
//	                     │  Whole()        runs there
//	                     ├─ text form, unless Text forbids it: two halves
//	                     │  Preprocess()   here, its stdout is the slot
//	                     │  ScanText()     can this text travel?
//	                     │  Remote()       options for the compiler over there
//	                     └─ Place()        its outputs, as the compiler here would
//
// The package is linked into the wrapper, which runs once for each source file: its
// tables are laid out by the linker, and nothing is built at start.
package compile

import (
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Plan describes what a command line asks for.
type Plan struct {
	// Local means that the command runs here as it was typed; Reason and Turn say why and when.
	Local  bool
	Reason string
	Turn   Turn

	// Several marks a local command that Split may take apart.
	Several bool

	// Otherwise the command is one compile of one source that may run elsewhere.
	Driver   Driver
	Source   string        // as typed
	Language string        // of the source: "c", "c++", "objective-c", ... or "cpp-output", ...
	Outputs  []unit.Output // paths as the compiler would use them; the first is the main output, unless Syntax is set
	Inputs   []string      // further files that the compiler reads by name, if they exist

	// Images are the precompiled headers that the command names; each is to be made by Makes of another command.
	Images []string

	// Makes is what a local command makes from a header, if nothing but that keeps it here; else nil.
	Makes *Image

	// Text is why the command cannot travel as preprocessed text, as a word to follow
	// reason.NotReproducible; only the sources form will do then. "" if it can.
	Text string

	// Inexact says that Text is there only because debug information would differ: the object would be equal but for
	// that. Clients of distcc expect no more, and managers of earlier versions send such text.
	Inexact bool

	// Sources is the same for the sources form: the command then travels as text. So does a
	// command with Roots if what lies below them cannot be determined.
	Sources string

	// Raw means that the source is preprocessed already, or is never preprocessed, or is no text. There is no
	// local half: the file itself is the text.
	Raw bool

	// Syntax means that the compiler only checks the source: there is no main output, and perhaps no output at all.
	Syntax bool

	// Imports means that the command may read compiled modules: messages may then quote files that it does not
	// read otherwise. FindModules sets it.
	Imports bool

	// Headers are those that the source imports as modules, which FindModules finds too. No list of the compiler's
	// has them.
	Headers []modules.Header

	// Units means that clang may import headers that have been compiled, which no list of the compiler's has either.
	// FindModules sets it.
	Units bool

	// NewModules means that a clang newer than this code has made a compiled module of the command: only the compiler can show that
	// such modules are read as they are meant. FindModules sets it.
	NewModules bool

	// ModuleRules are the names of modules that the rules for make may have, if the compile writes any. FindModules
	// finds them.
	ModuleRules modules.Rules

	// Unlisted are words that no table has, which the compiler must take for flags (ParseUnlisted).
	Unlisted []string

	modules moduleWords
	tidy    tidyWords // of clang-tidy
	header  string    // the file of a header unit that is looked for, as the compiler names it; "": the Source
	index   string    // clang: of ThinLTO, or ""
	stale   string    // gcc: counts of a program's earlier runs, which the compile removes if it succeeds; "": none

	// Expand means that the compiler only preprocesses: the main output is text, in a file.
	Expand bool

	argv    []string // as Parse was given them
	options []option // the same words, parsed, in order
	envDirs []string // header directories from the environment
	usage   bool     // gcc's -fstack-usage
	output  string   // argument of -o, or ""
	deps    bool     // -MD or -MMD without a file: the driver derives a name and a target
	depFile bool     // -MF was given
	target  bool     // -MT or -MQ was given
	debug   bool     // any -g option
	symbols bool     // the object gets debug information
	compDir bool     // clang: the command names the directory for debug information
	plain   bool     // gcc: this command cannot keep its macros in the text
	pragmas bool     // gcc: pragmas matter that -fdirectives-only leaves out of the text
	native  bool     // some words mean this machine's processor
	lto     bool     // gcc: the object records the working directory
	macros  bool     // gcc: the object depends on the positions of macros
	places  bool     // the compiler is to warn of statements by their position
	rewrite bool     // clang: the object depends on the positions of macros
	rooted  bool     // clang: the command says below which directory to look for a gcc
	forced  []string // clang: files that words after -Xclang include
}

// Main returns the name of the main output, or "" if there is none.
func (p *Plan) Main() string {
	if p.Syntax || len(p.Outputs) == 0 {
		return ""
	}
	return p.Outputs[0].Name
}

// Assembly reports whether the source is assembly that is not preprocessed.
func (p *Plan) Assembly() bool { return p.Language == langAsm }

// Left reports whether the command compiles what a link with LTO leaves, LLVM's IR or a partition of gcc's. It reads its source and
// Inputs alone.
func (p *Plan) Left() bool { return p.Language == langIR || p.Language == langLTO }

// Opaque reports whether the source is no text: a compiled module.
func (p *Plan) Opaque() bool { return p.Language == langCompiled }

// option is one parsed option or file.
type option struct {
	words []string // with its argument words
	arg   string   // the argument alone, or the file
	class class
	value value // what arg may be
}

// Turn says which kind of turn a local command waits for.
type Turn uint8

// Turns, numbered as in the local protocol.
const (
	TurnNone Turn = iota
	TurnCPP
	TurnLocal
)
