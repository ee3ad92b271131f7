package compile

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// preprocessorWords examines the words of -Wp,A,B, which the driver hands to the
// preprocessor as they are.
func (p *parser) preprocessorWords(list string) {
	if p.Driver.Family == Clang {
		// clang's driver reads these forms as its own -MD and -MMD, with -MF if there is one word more, and drops the rest.
		if words := strings.Split(list, ","); words[0] == "-MD" || words[0] == "-MMD" {
			p.deps = true
			if len(words) == 2 {
				if strings.HasPrefix(words[1], "@") {
					p.refuse(reason.UnknownOption + "-Wp,@")
				}
				p.dependencyFile(words[1])
				p.depFile = true
			}
			return
		}
	}
	for w := range strings.SplitSeq(list, ",") {
		p.preprocessorWord(w)
	}
}

// preprocessorWord examines one word of -Wp, or after -Xpreprocessor; gcc concatenates them
// all. It knows only those whose whole effect is in the text, or in a dependency file.
func (p *parser) preprocessorWord(w string) {
	option := p.pending
	p.pending = ""
	gcc := p.Driver.Family == GCC
	switch {
	case strings.HasPrefix(w, "@"):
		p.refuse(reason.UnknownOption + "-Wp,@") // cc1 expands response files too
	case option == "-MD", option == "-MMD", option == "-MF":
		p.dependencyFile(w)
	case option != "": // -MT, -MQ
	case len(w) > 2 && (strings.HasPrefix(w, "-D") || strings.HasPrefix(w, "-U") || strings.HasPrefix(w, "-I")):
	case gcc && (w == "-MD" || w == "-MMD" || w == "-MF" || w == "-MT" || w == "-MQ"), w == "-MT":
		p.pending = w
	case w == "-MP":
	default:
		p.refuse(reason.UnknownOption + "-Wp," + optionName(w))
	}
}

// assemblerWords examines -Wa,A,B.
func (p *parser) assemblerWords(list string) {
	for {
		w, rest, more := strings.Cut(list, ",")
		p.assemblerWord(w)
		if !more {
			return
		}
		list = rest
	}
}

// isListing reports whether an option of the assembler's, up to its "=", asks for a
// listing: -a and letters, to standard output or to the file after "=".
func isListing(name string) bool {
	letters, ok := strings.CutPrefix(name, "-a")
	return ok && strings.Trim(strings.TrimSuffix(letters, "="), "cdghilmns") == ""
}

// symbolBytes are the bytes that NAME=VALUE after --defsym may have.
const symbolBytes = letterBytes + digitBytes + "_$.=+-"

// assemblerWord knows the assembler's options that name no file except a listing's, and that
// do not describe the assembly text, whose name is a temporary file's.
func (p *parser) assemblerWord(w string) {
	name, file := w, ""
	if i := strings.IndexByte(w, '='); i >= 0 {
		name, file = w[:i+1], w[i+1:]
	}
	if p.asDeps {
		p.asDeps = false
		if !path.fits("", w) || w == "" || w[0] == '@' || w[0] == '-' {
			p.refuse(reason.UnknownOption + "-Wa,--MD")
		}
		p.asRules = true
		p.sourcesOnly("side-file")
		p.dependencyFile(w)
		return
	}
	if p.symbol {
		p.symbol = false
		if !onlyOf(w, symbolBytes, maxWord) {
			p.refuse(reason.UnknownOption + "-Wa,--defsym") // as expands response files, "@FILE", wherever they stand
		}
		return
	}
	if strings.HasPrefix(w, "-I") && len(w) > 2 {
		p.sourcesOnly("incbin") // directories for .include and .incbin
		return
	}
	if isListing(name) {
		p.sourcesOnly("side-file")
		if file == "" {
			// Its columns are as wide as the local name of the temporary file.
			p.refuse(reason.NotReproducible + "messages")
			return
		}
		p.sideFile(file)
		return
	}
	if p.debugsAssembly(w) {
		p.asDebug = true
		return
	}
	switch name {
	case "--MD":
		p.asDeps = true // its file is a word of its own
	case "--defsym":
		p.symbol = true // NAME=VALUE is a word of its own
	case "--noexecstack", "--execstack", "--32", "--64", "--x32", "--fatal-warnings", "--warn", "--no-warn", "-W",
		"-mrelax-relocations=", "-march=", "-mtune=", "-mcpu=", "-mfpu=", "-mfloat-abi=", "-mabi=", "-meabi=",
		"-mbranches-within-32B-boundaries", "-malign-branch-boundary=", "-malign-branch=", "-malign-branch-prefix-size=",
		"-mlfence-after-load=", "-mlfence-before-indirect-branch=", "-mlfence-before-ret=", "-mx86-used-note=",
		"-mshared", "-momit-lock-prefix=", "-mthumb", "-mthumb-interwork", "-mimplicit-it=", "-mnaked-reg", "-msse2avx",
		"-mmnemonic=", "-msyntax=", "-mindex-reg", "-mno-relax", "-mrelax", "-mlittle-endian", "-mbig-endian",
		"-mfence-as-lock-add=", "-moperand-check=", "-msse-check=", "-mavxscalar=", "-mevexlig=", "-mevexwig=", "-mevexrcig=",
		"-gz=", "--divide", "--compress-debug-sections", "--compress-debug-sections=", "--nocompress-debug-sections",
		"-mno-warn-deprecated", "-mwarn-deprecated", "--size-check=", "--elf-stt-common=", "--generate-missing-build-notes=",
		"--reduce-memory-overheads", "--strip-local-absolute", "-no-pad-sections", "--no-pad-sections",
		"--keep-locals", "--gdwarf-sections", "--gdwarf-cie-version=", "-L", "-R", "--traditional-format", "-mtls-check=":
		switch {
		case !onlyOf(file, letterBytes+digitBytes+"_+.-", maxWord):
			p.refuse(reason.UnknownOption + "-Wa," + optionName(w))
		case strings.HasSuffix(w, "=native"):
			p.refuse(reason.Native)
		}
	default:
		p.refuse(reason.UnknownOption + "-Wa," + optionName(w))
	}
}

// debugsAssembly reports whether a word has the assembler describe its own text where that has no debug information.
func (p *parser) debugsAssembly(w string) bool {
	switch strings.TrimLeft(w, "-") {
	case "g", "gdwarf-2", "gdwarf-3", "gdwarf-4", "gdwarf-5", "gen-debug":
		return w != "--g" && w != "-gen-debug"
	}
	return false
}

// temporary returns the reason why what the command asks of the assembler has the name of a temporary file, or "".
func (p *parser) temporary() string {
	piped, described := false, p.symbols && p.Driver.Family == GCC && !p.lto
	for _, o := range p.options {
		piped = piped || o.words[0] == "-pipe" && p.Driver.Family == GCC
		described = described && o.words[0] != "-gno-as-loc-support"
	}
	switch {
	case p.asDeps:
		return reason.UnknownOption + "-Wa,--MD"
	case p.asRules && (p.Driver.Family == Clang || p.Language != langAsm):
		return reason.NotReproducible + "directory"
	case p.Language == langAsmCpp && p.stabs():
		return reason.NotReproducible + "directory"
	case p.asDebug && !p.assembles() && (p.Driver.Family == GCC && !piped && !described || p.ownAs() == gnuAs):
		return reason.NotReproducible + "directory"
	}
	return ""
}

// stabs reports whether gcc may have the assembler describe preprocessed assembly in stabs, which name the file that it reads.
func (p *parser) stabs() bool {
	dwarf := false
	for _, o := range p.options {
		if w := o.words[0]; strings.HasPrefix(w, "-gstabs") {
			return true
		} else if strings.HasPrefix(w, "-gdwarf") {
			dwarf = true
		}
	}
	return p.Driver.Stabs && p.symbols && !dwarf
}

// forwarded reports whether a word after -Xclang changes nothing but code or warnings.
func forwarded(w string) bool {
	switch w {
	case "-disable-O0-optnone", "-disable-llvm-passes", "-disable-llvm-optzns", "-disable-lifetime-markers",
		"-disable-free", "-discard-value-names", "-no-opaque-pointers", "-opaque-pointers",
		"-enable-noundef-analysis", "-no-enable-noundef-analysis", "-fno-validate-pch", "-fdenormal-fp-math=ieee",
		"-menable-no-infs", "-menable-no-nans", "-munwind-tables", "-mconstructor-aliases",
		"-fuse-ctor-homing", "-fnative-half-type", "-fallow-half-arguments-and-returns", "-Wno-everything":
		return true
	}
	// A flag that changes nothing but code keeps its name in clang -cc1.
	return len(w) > 2 && strings.HasPrefix(w, "-W") && warningName.fits(w, "") || find(w) == &anyFlag && flagFits(w)
}
