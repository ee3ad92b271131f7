package compile

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// manner is the way a compiler writes a file.
type manner uint8

const (
	// An existing file is opened and truncated, through links too. It keeps its mode.
	inPlace manner = iota
	// as and objcopy: a regular file that is not empty, or a symbolic link to one, is unlinked
	// first. A special file and an empty one are written in place.
	unlinked
	// A temporary file replaces a regular or a missing file. A special file is written in place,
	// and one that is not writable is refused.
	renamed
	// Anything except a special file is removed first.
	replaced
	// As inPlace, but what is there stays, and the new content follows it.
	appended
	// Versions differ between inPlace (clang 19) and renamed (clang 16). It is done as renamed, and only if both leave
	// the same.
	alike
)

// mannerOf returns how the compiler writes an output (gcc 11 and 12, clang 13 to 19).
func (p *Plan) mannerOf(out unit.Output) manner {
	gcc := p.Driver.Family == GCC
	switch out.Kind {
	case unit.OutputModule:
		if gcc {
			return replaced
		}
		return alike
	case unit.OutputDependency, unit.OutputStackUsage:
		return inPlace
	case unit.OutputAssembly:
		if gcc {
			return inPlace
		}
		return renamed
	case unit.OutputObject:
		switch as := p.ownAs(); {
		case gcc || as == gnuAs:
			return unlinked
		case as == laterAs:
			return inPlace
		}
		return renamed
	}
	if how, named := p.mannerOfNamed(out.Name); named {
		return how
	}
	switch out.Name[strings.LastIndexByte(out.Name, '.')+1:] {
	case "dwo":
		if gcc {
			return unlinked
		}
	case "i", "ii", "mi", "mii", "s", "bc": // -save-temps
		if !gcc {
			return renamed
		}
	}
	return inPlace
}

// mannerOfNamed returns how the compiler writes a side file that the command names, whatever its suffix. named is false for
// others, such as those of -save-temps.
func (p *Plan) mannerOfNamed(name string) (how manner, named bool) {
	for i := range p.options {
		o := &p.options[i]
		file := o.arg
		switch o.class {
		case sideFile:
			if strings.HasSuffix(o.words[0], "-serialize-diagnostics") {
				how = replaced
			}
		case commandLog:
			how = alike
		case optInfo: // several passes write to it, each of which opens it
			_, file, _ = strings.Cut(file, "=")
			how = appended
		case dumpFile, traceFile:
		default:
			continue
		}
		if file == name {
			return how, true
		}
		how = inPlace
	}
	return inPlace, false
}

// Appends reports whether the compiler appends an output to the file that is there.
func (p *Plan) Appends(out unit.Output) bool { return p.mannerOf(out) == appended }

// The assemblers that clang may use for an object.
const (
	clangAs = iota // the compiler itself
	gnuAs          // as
	laterAs        // clang -cc1as, in a process of its own
)

// ownAs returns the assembler that this command uses.
func (p *Plan) ownAs() int {
	own := clangAs
	if p.assembles() {
		own = laterAs
	}
	for _, o := range p.options {
		switch w := o.words[0]; {
		case w == "-fno-integrated-as" || w == "-no-integrated-as":
			return gnuAs // also where an option for the other one follows: Place is then slightly off, or runs here
		case w == "-save-temps" || w == "--save-temps" || strings.HasPrefix(w, "-save-temps=") || strings.HasPrefix(w, "--save-temps="):
			own = laterAs
		}
	}
	return own
}
