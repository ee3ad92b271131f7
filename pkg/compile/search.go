package compile

import "strings"

// Search says where a command has the compiler look for headers, as far as the command and the
// environment determine that. Directories are as typed, each list in search order.
type Search struct {
	Quote  []string // -iquote: for "x" alone
	Angle  []string // -I and CPATH
	System []string // -isystem and the variable of the language
	After  []string // -idirafter
	// Ask holds the words that choose the compiler's own directories, which come between
	// System and After. They are self-contained: a compiler that is asked with these words
	// alone (driver.SearchWords) reports the same list.
	Ask []string
	// Forced holds the files of -include and -imacros, in order.
	Forced []string
	// Given holds the files that clang's driver forwards without a look at them, by -Xclang.
	Given []string
	// Lists says that clang also reads lists of its own for sanitizers, in the directory of its other files (SanitizerLists).
	Lists bool
}

// Search returns where the command has the compiler look for headers. ok is false if some word
// changes the search in a way not handled here.
func (p *Plan) Search(getenv func(string) (string, bool)) (s Search, ok bool) {
	var f forwardFilter
	var model bool         // a code model has been chosen
	var placement []string // words for position-independent code, or against it
	if !p.forwardedWords() || p.Includers() {
		return s, false
	}
	if p.tidy.bin {
		s.Ask = append(s.Ask, installDir, tidyDir)
	}
	for _, o := range p.options {
		switch o.class {
		case incDir:
			if o.arg == "" || o.arg == "-" || o.arg[0] == '=' || strings.HasPrefix(o.arg, "$SYSROOT") {
				return s, false
			}
			switch w := o.words[0]; {
			case strings.HasPrefix(w, "-iquote"):
				s.Quote = append(s.Quote, o.arg)
			case strings.HasPrefix(w, "-isystem-after"), strings.HasPrefix(w, "-cxx-isystem"), strings.HasPrefix(w, "-stdlib++"):
				return s, false
			case strings.HasPrefix(w, "-isystem"):
				s.System = append(s.System, o.arg)
			case strings.HasPrefix(w, "-idirafter"):
				s.After = append(s.After, o.arg)
			case strings.HasPrefix(w, "-I"):
				s.Angle = append(s.Angle, o.arg)
			default: // a long form
				return s, false
			}
		case include:
			if w := o.words[0]; !strings.HasPrefix(w, "-include") && !strings.HasPrefix(w, "-imacros") || o.arg == "" {
				return s, false
			}
			if o.arg != noFile {
				s.Forced = append(s.Forced, o.arg)
			}
		case wp:
			for w := range strings.SplitSeq(f.joined(o.words[0]), ",") {
				if w != "" && w != "-Wp" && !strings.HasPrefix(w, "-D") && !strings.HasPrefix(w, "-U") {
					return s, false
				}
			}
		case xpre:
			if w := o.words[1]; f.keep(w) && !strings.HasPrefix(w, "-D") && !strings.HasPrefix(w, "-U") {
				return s, false
			}
		case sanitize:
			s.Lists = p.Driver.Family == Clang
		case search:
			if !p.chooses(o) {
				return s, false
			}
			s.Ask = append(s.Ask, o.words...)
		case searchGCC, driverFile, inputFile, inputProfile, inputBlocks, profileDir, emitLLVM:
			return s, false
		case preproc:
			switch w := o.words[0]; {
			case strings.HasPrefix(w, "-finput-charset"), strings.HasPrefix(w, "--"):
				return s, false // nothing in the text means what it seems to
			case w != "-undef" && !strings.HasPrefix(w, "-A") && !strings.HasPrefix(w, "-fcrash-diagnostics-dir"):
				s.Ask = append(s.Ask, o.words...)
			}
		case both, arch:
			w := o.words[0]
			if strings.HasPrefix(w, "-m") || strings.HasPrefix(w, "--target") || w == "-target" ||
				!strings.HasPrefix(w, "-f") && !strings.HasPrefix(w, "-std") && !strings.HasPrefix(w, "-O") && !strings.HasPrefix(w, "-W") {
				s.Ask = append(s.Ask, o.words...)
				model = model || strings.HasPrefix(w, "-mcmodel")
			} else if isPlacement(w) {
				placement = append(placement, w)
			}
		}
	}
	s.Given = p.forced
	if model {
		s.Ask = append(s.Ask, placement...)
	}
	if getenv == nil {
		return s, true
	}
	s.Angle = appendDirs(s.Angle, getenv, "CPATH")
	switch p.Language {
	case langC:
		s.System = appendDirs(s.System, getenv, "C_INCLUDE_PATH")
	case langCXX:
		s.System = appendDirs(s.System, getenv, "CPLUS_INCLUDE_PATH")
	case langObjC:
		s.System = appendDirs(s.System, getenv, "OBJC_INCLUDE_PATH")
	case langObjCXX:
		s.System = appendDirs(s.System, getenv, "OBJCPLUS_INCLUDE_PATH")
	case langAsm, langAsmCpp:
		// Compilers differ in which of the variables they heed for assembly.
		for _, name := range [...]string{"C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "OBJCPLUS_INCLUDE_PATH"} {
			if _, set := getenv(name); set {
				return s, false
			}
		}
	default:
		return s, false
	}
	return s, true
}

// PlainSearch reports whether the command has the compiler look for headers in nothing but directories that it names and those that the
// compiler has by itself.
func (p *Plan) PlainSearch() bool {
	for _, o := range p.options {
		switch o.class {
		case search, searchGCC, driverFile, wp, xpre, xclang, image:
			return false
		case both:
			if w := o.words[0]; strings.HasPrefix(w, "--target") || w == "-target" {
				return false
			}
		}
	}
	return !p.Driver.Tidy && !p.Modules()
}

// Includers reports whether the compiler looks for quoted headers as Microsoft's does: beside the file that asks for one, then
// beside each file that includes that one, directly or not. It may say so although the compiler does not.
func (p *Plan) Includers() bool {
	if p.Driver.Family != Clang {
		return false
	}
	for _, o := range p.options {
		if o.arg == "-fms-compatibility" || o.words[0] == "-fms-compatibility" { // the first after -Xclang
			return true
		}
		if w := o.words[0]; strings.HasPrefix(w, "--target") || w == "-target" {
			t := strings.ToLower(o.arg)
			if strings.Contains(t, "msvc") || strings.Contains(t, "win32") || strings.Contains(t, "windows") && !strings.Contains(t, "windows-gnu") || strings.Contains(t, "uefi") {
				return true
			}
		}
	}
	return false
}

// chooses reports whether an option chooses the compiler's own directories in a way that the compiler tells, wherever it
// is asked: clang's library, or gcc's root.
func (p *Plan) chooses(o option) bool {
	w := o.words[0]
	if p.Driver.Family == Clang {
		return w == "-stdlib=libc++" || w == "-stdlib=libstdc++"
	}
	return strings.HasPrefix(o.arg, "/") && (strings.HasPrefix(w, "--sysroot") || strings.HasPrefix(w, "-isysroot"))
}

// SearchLanguage returns the language whose header directories the compile searches: for assembly, those of
// what is preprocessed, and for a compiled module those of C++.
func (p *Plan) SearchLanguage() string {
	switch p.Language {
	case langAsm:
		return langAsmCpp
	case langCompiled:
		return langCXX
	}
	return p.Language
}

// isPlacement reports whether w is one of the words around -fPIC. They choose no directory, but
// where PIE is gcc's default, gcc refuses some code models, such as the kernel's, without -fno-pic.
func isPlacement(w string) bool {
	name := strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(w, "-f"), "no-"))
	return name == "pic" || name == "pie"
}

// AsmDirs returns the directories that the command gives to the assembler alone, in order and as typed.
func (p *Plan) AsmDirs() (dirs []string) {
	for _, o := range p.options {
		if o.class != wa && o.class != xasm {
			continue
		}
		for w := range strings.SplitSeq(o.arg, ",") {
			if dir, ok := strings.CutPrefix(w, "-I"); ok && dir != "" {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// clocks is in the order of sources.Options.
var clocks = [3]string{"__TIME__", "__DATE__", "__TIMESTAMP__"}

// Clocks reports for each of __TIME__, __DATE__ and __TIMESTAMP__ whether the command, or with
// epoch the variable SOURCE_DATE_EPOCH, determines its value. major is the compiler's major version.
func (p *Plan) Clocks(major int, epoch bool) (known [3]bool) {
	for i, w := range p.argv {
		name, ok := strings.CutPrefix(w, "-D")
		if !ok {
			continue
		}
		if name == "" && i+1 < len(p.argv) {
			name = p.argv[i+1]
		}
		name, _, _ = strings.Cut(name, "=")
		for k, clock := range clocks {
			known[k] = known[k] || name == clock
		}
	}
	if epoch {
		// gcc's __TIMESTAMP__ is the file's own time, in this machine's time zone.
		gcc := p.Driver.Family == GCC
		fixed := gcc && major >= 7 || !gcc && major >= 16
		known = [3]bool{known[0] || fixed, known[1] || fixed, known[2] || fixed && !gcc}
	}
	return known
}
