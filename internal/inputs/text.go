package inputs

import (
	"slices"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// text is what a look at a file's text found. It does not change, but for its table.
type text struct {
	includes []sources.Include
	macros   []sources.Include // those of which macros say what they read
	values   []value           // what macros are that could say so
	defined  []uint32          // sums of the names of all others (sumOf)
	blurred  bool              // it defines some whose names cannot be read
	funcs    bool              // it defines some with parameters
	asked    []asked
	assembly []assembly
	lines    []string // files that messages may quote
	unsure   bool     // messages may quote others
	clocks   [3]bool
	doubt    string // why a compiler has to be asked if this text counts; "": it need not

	// Guarded by Table.mu.
	table  []sources.Macro // what it defines, once tabled
	tabled bool
}

// asked is a header of which a compiler asks whether it is there, or that it reads as data.
type asked struct {
	name   string
	quoted bool
}

// value is a macro whose value is a header's name.
type value struct {
	macro, header string
	quoted        bool
}

// assembly is a file that the assembler reads.
type assembly struct {
	name string
	more bool // for more such words
}

// look looks through a file's text.
func (r *reader) look(b []byte) *text {
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
		}
	}, x.define) {
		x.because(DoubtSpelling)
	}
	x.defined = slices.Clip(x.defined)
	_ = r.scanner.Scan(src, x) // no note is an error
	if x.nothing() {
		return &nothing
	}
	return x
}

// nothing is what most files have that include nothing.
var nothing text

func (x *text) nothing() bool {
	return len(x.includes)+len(x.macros)+len(x.values)+len(x.defined)+len(x.asked)+len(x.assembly)+len(x.lines) == 0 &&
		!x.blurred && !x.funcs && !x.unsure && x.clocks == nothing.clocks && x.doubt == ""
}

func (x *text) define(d sources.Define) {
	switch {
	case len(d.Name) == 0:
		x.blurred = true
	case d.Func: // of no account where a name alone stands
		x.funcs = true
	case d.Header != "":
		x.values = append(x.values, value{string(d.Name), d.Header, d.Quoted})
	default:
		x.defined = append(x.defined, sumOf(d.Name))
	}
}

func (x *text) because(why string) {
	if x.doubt == "" {
		x.doubt = why
	}
}

// Header notes a header that is asked for.
func (x *text) Header(_ *sources.Text, name string, quoted, _ bool) error {
	x.asked = append(x.asked, asked{name, quoted})
	return nil
}

// Assembly notes a file that the assembler reads.
func (x *text) Assembly(name string, more bool) error {
	x.assembly = append(x.assembly, assembly{name, more})
	return nil
}

// Line notes a file that messages may quote.
func (x *text) Line(name string) { x.lines = append(x.lines, name) }

// Unsure notes that there may be others.
func (x *text) Unsure() { x.unsure = true }

// Alias is a doubt: other files may ask by the macro.
func (x *text) Alias(string) { x.because(DoubtHasInclude) }

// Once means nothing here, as all files that a name may mean are found.
func (x *text) Once(*sources.Text) {}

// Import means nothing, as Once does.
func (x *text) Import() {}

// Renames is a doubt: other files' includes may be meant.
func (x *text) Renames() { x.because(DoubtSpelling) }

// Clock notes the use of a clock.
func (x *text) Clock(c sources.Clock) error {
	x.clocks[c] = true
	return nil
}

// Doubt notes a doubt.
func (x *text) Doubt(r sources.Reason) error {
	x.because(string(r))
	return nil
}
