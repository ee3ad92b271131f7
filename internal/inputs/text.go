package inputs

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// text is the result of scanning a file's text. It does not change, except for its table.
type text struct {
	includes []sources.Include
	imports  []sources.Include // headers and words after the word import (sources.Imports)
	vague    bool              // it may import others
	macros   []sources.Include // includes by macros
	values   []value           // values of macros that could name headers
	defined  []uint32          // hashes of the names of all other macros (sumOf)
	blurred  bool              // it defines macros whose names cannot be read
	funcs    bool              // it defines macros with parameters
	asked    []asked
	aliases  []string // macros that stand for __has_include
	assembly []assembly
	lines    []string           // files that messages may quote
	unsure   bool               // messages may quote further files
	system   bool               // it may say of itself that it is one of the system's headers
	headers  *sources.HeaderMap // it is none of text
	escaped  bool               // it includes a header by a name with a backslash
	clocks   [3]bool
	doubt    string // why a compiler has to be asked if this text is used; "": no reason
	timed    bool   // it may compare the times of files, or cannot be read well enough to rule that out

	// Guarded by Table.mu.
	table  []sources.Macro // macros that it defines, once tabled
	tabled bool
}

// asked is a header whose existence the compiler tests, or that it reads as data.
type asked struct {
	name    string
	quoted  bool
	content bool
}

// value is a macro whose value is a header's name.
type value struct {
	macro, header string
	quoted        bool
}

// assembly is a file that the assembler reads.
type assembly struct {
	name string
	more bool // it is assembly itself, with more such directives
}

// look scans a file's text.
func (r *reader) look(b []byte) *text {
	if m := sources.ParseHeaderMap(b); m != nil {
		return &text{headers: m}
	}
	x := &text{}
	src := sources.NewText("", b, false)
	if sources.Includes(src, func(i sources.Include) {
		switch {
		case i.Macro != "" || i.Line != "":
			x.macros = append(x.macros, i)
		case i.Computed:
			x.because(DoubtComputed)
		default:
			x.includes = append(x.includes, i)
			x.escaped = x.escaped || strings.IndexByte(i.Name, '\\') >= 0
		}
	}, x.define) {
		x.because(DoubtSpelling)
	}
	x.vague = sources.Imports(b, func(i sources.Include) { x.imports = append(x.imports, i) })
	x.defined = slices.Clip(x.defined)
	_ = r.scanner.Scan(src, x) // our notes return no errors
	if x.nothing() {
		return &nothing
	}
	return x
}

// nothing is the result for most files without includes.
var nothing text

func (x *text) nothing() bool {
	return len(x.includes)+len(x.imports)+len(x.macros)+len(x.values)+len(x.defined)+len(x.asked)+len(x.aliases)+len(x.assembly)+len(x.lines) == 0 &&
		!x.vague && !x.blurred && !x.funcs && !x.unsure && !x.system && x.clocks == nothing.clocks && x.doubt == "" && !x.timed
}

func (x *text) define(d sources.Define) {
	switch {
	case len(d.Name) == 0:
		x.blurred = true
	case d.Func: // does not matter for an include by a name alone
		x.funcs = true
	case d.Header != "":
		x.values = append(x.values, value{string(d.Name), d.Header, d.Quoted})
	default:
		x.defined = append(x.defined, sumOf(d.Name))
	}
}

func (x *text) because(why string) {
	x.timed = x.timed || why == DoubtPragma || why == DoubtSpelling
	if x.doubt == "" {
		x.doubt = why
	}
}

// Header records a header whose existence is tested.
func (x *text) Header(_ *sources.Text, name string, quoted, content bool) error {
	x.asked = append(x.asked, asked{name, quoted, content})
	return nil
}

// Assembly records a file that the assembler reads.
func (x *text) Assembly(name string, more bool) error {
	x.assembly = append(x.assembly, assembly{name, more})
	return nil
}

// Line records a file that messages may quote.
func (x *text) Line(name string) { x.lines = append(x.lines, name) }

// Unsure records that there may be more such files.
func (x *text) Unsure() { x.unsure = true }

// Alias records a macro by which other files may test for headers.
func (x *text) Alias(macro string) { x.aliases = append(x.aliases, macro) }

// Once does nothing, as all files that a name may mean are found.
func (x *text) Once(*sources.Text) {}

// System records that it may be one of the system's headers.
func (x *text) System() { x.system = true }

// Import does nothing, for the same reason as Once.
func (x *text) Import() {}

// Renames records a doubt: it may affect the includes of other files.
func (x *text) Renames() { x.because(DoubtSpelling) }

// Clock records the use of a clock.
func (x *text) Clock(c sources.Clock) error {
	x.clocks[c] = true
	return nil
}

// Doubt records a doubt.
func (x *text) Doubt(r sources.Reason) error {
	x.because(string(r))
	return nil
}
