package compile

import (
	"slices"
	"strings"
)

// Several is a command that does more than one compile: it has several sources
// (gcc -c a.c b.c), or links what it compiles (gcc a.c -o prog), or both. Each
// source then becomes a command of its own, which Parse may let travel. The link
// is a further command, for this machine.
//
// Objects, messages and the program are those of the command as it was typed.
// Where that is not certain, there is no Several.
type Several struct {
	Sources []string // as typed, in order
	Links   bool     // otherwise -c or -S, and the outputs are those of the sources
	Output  string   // argument of -o, or ""

	driver Driver
	words  []part
	deps   bool // -MD or -MMD: the driver derives a name and a target from -o
	file   bool // -MF was given
	target bool // -MT or -MQ was given
}

// part is an option with its argument words, or a file.
type part struct {
	words []string
	role  role
	x     string // for a source: its language as given by -x, or ""
}

// role says which of the commands get a part.
type role uint8

const (
	forAll   role = iota
	forUnit       // a source, for its own compile
	forUnits      // compiles only: at the link, clang's driver would report words without effect
	forLink       // link only: -o, objects and libraries, and for clang what the linker reads
	forNone       // -x: a source brings its own, and only objects are linked
)

// Split takes argv, the words after the compiler's name, apart. It returns nil where that
// must not be done.
func Split(argv []string, d Driver) (s *Several) {
	s = &Several{driver: d, Links: true}
	var x string      // language that -x gives for the files that follow
	var open bool     // -x without a file after it so far
	var inputs, n int // objects and libraries; how often -o was given
	for i := 0; i < len(argv); {
		w := argv[i]
		if w == "" || w[0] != '-' || w == "-" {
			lang := byName(x)
			if x == "" {
				lang = bySuffix(w, d)
			}
			switch {
			case w == "" || w == "-" || w[0] == '@' || isDevice(w) || lang == langHeader || lang == langOther || lang == langModule || lang == langCompiled || lang == langIR ||
				lang == langAsm || lang == langAsmCpp:
				return nil
			case lang == langLink:
				inputs++
				s.add(part{words: argv[i : i+1], role: forLink})
			case d.CXX && d.Family == GCC && x != "" && !open:
				return nil // g++ changes the language after a file
			case stem(w) == "":
				return nil
			default:
				s.Sources = append(s.Sources, w)
				s.add(part{words: argv[i : i+1], role: forUnit, x: x})
			}
			open = false
			i++
			continue
		}
		row := find(w)
		if row == nil {
			return nil
		}
		words, arg := argv[i:i+1], w[len(row.name):]
		if row.form == separate || row.form == either && arg == "" {
			if i+1 >= len(argv) {
				return nil
			}
			words, arg = argv[i:i+2], argv[i+1]
		}
		i += len(words)
		switch c := row.class(d.Family); c {
		case language:
			if open || d.CXX && d.Family == GCC && arg != langCXX {
				return nil // this word decides whether g++ links libstdc++
			}
			x, open = arg, true
			if arg == "none" {
				x = ""
			}
			s.add(part{words: words, role: forNone})
		case output:
			n++
			s.Output = arg
			s.add(part{words: words, role: forLink})
		default:
			if d.Family == GCC && x == "" && strings.HasPrefix(w, "-l") {
				open = false // counts like any other input; not for clang 19
			}
			if !s.option(c, words, arg) {
				return nil
			}
		}
	}
	switch {
	case len(s.Sources) == 0 || open || n > 1 || n == 1 && (s.Output == "" || s.Output == "-"):
		return nil
	case s.Links && d.Family == GCC && s.deps && !s.file && s.Output == "":
		return nil // where gcc 11 writes a-x.d, older versions write x.d
	case s.Links:
		for _, p := range s.words {
			if p.role <= forUnit && !p.linkable(d) || (p.role == forUnit || p.role == forLink) && p.words[0] == s.Output {
				return nil
			}
		}
	case inputs > 0 || n > 0 || len(s.Sources) == 1:
		return nil // not for the driver, or a single compile
	case slices.ContainsFunc(s.words, func(p part) bool { return p.role == forLink }):
		return nil // clang reports once that it is unused
	}
	return s
}

// option reads an option that is neither -x nor -o. It reports whether the command can still
// be taken apart.
func (s *Several) option(c class, words []string, arg string) bool {
	p := part{words: words}
	switch c {
	case unknown, isQuery, isPreprocess, isDependencies, modeSyntax, toolDir, hereToolPath, specFile, hereSpecs:
		return false
	case optInfo:
		if strings.Contains(arg, "=") {
			return false // appended to: if the whole command had to run here after all, lines would be there twice
		}
	case modeCompile, modeAssembly:
		s.Links = false
	case dependAuto:
		s.deps = true
	case dependFile:
		s.file = true
		if isDevice(arg) {
			return false
		}
	case dependTo:
		s.target = true
	case wp:
		if arg == "" {
			return false // clang passes on something that is not an option
		}
	}
	if s.driver.Family == Clang {
		switch {
		case strings.HasSuffix(words[0], "use-linker-plugin"):
			// Clang reports it as unused for a compile, unlike other words that the linker reads.
		case c == linker:
			p.role = forLink
		case c == wa || c == xasm || slices.Contains(unusedInLink[:], words[0]) || strings.HasPrefix(words[0], "-F"):
			p.role = forUnits
		}
	}
	s.add(p)
	return true
}

// unusedInLink lists the compiler's options that clang's driver reports as unused where there
// are only objects. It accepts all others in either case.
var unusedInLink = [...]string{
	"-Qn", "-Qy", "-gcodeview", "-nobuiltininc", "-nostdinc", "-nostdinc++", "-nostdlibinc", "-undef",
}

func (s *Several) add(p part) { s.words = append(s.words, p) }

// linkable reports whether a command with p can be a compile and a link: no file is named after
// the program, and no object differs from what -c would make.
func (p *part) linkable(d Driver) bool {
	if p.role == forUnit {
		return true
	}
	switch row := find(p.words[0]); row.class(d.Family) {
	case both, warning, debug, preproc, macro, compileOn, linker, drop, depend, dependAuto, dependFile, dependTo,
		plainText, compDir, debugRoot, incDir, search, searchGCC, include, inputFile, wa, xasm, arch, sanitize:
		return true
	case wp, xpre:
		// clang puts the target after -o into the file that these options request.
		return !strings.Contains(p.words[len(p.words)-1], "-M")
	case xclang:
		return true
	}
	return false
}

// Unit returns the compile of source i, as the words after the compiler's name. If the command
// links, the object is written to object, which must be absolute.
func (s *Several) Unit(i int, object string) []string {
	argv := make([]string, 0, 2*len(s.words)+8)
	if s.Links {
		argv = append(argv, "-c", "-o", object)
		argv = s.depend(argv, s.Sources[i])
	}
	math, libs := s.libraries()
	n := -1
	for k, p := range s.words {
		switch p.role {
		case forUnit:
			n++
			if n != i {
				continue
			}
			if p.x != "" {
				argv = append(argv, "-x", p.x)
			}
		case forLink, forNone:
			continue
		}
		if k != math {
			argv = append(argv, p.words...)
		}
	}
	return append(argv, libs...)
}

// libraries returns the libraries that g++ adds where it links: gcc 16 tells the compiler proper of them, which writes that into debug
// information. math is the index among s.words of the last -lm, which g++ leaves out, as its own follows; -1 if there is none.
func (s *Several) libraries() (math int, libs []string) {
	math = -1
	if !s.Links || !s.driver.CXX || s.driver.Family != GCC {
		return math, nil
	}
	for k, p := range s.words {
		switch strings.Join(p.words, "") {
		case "-nostdlib", "-nodefaultlibs", "-nostdlib++", "-r":
			return -1, nil
		case "-lm":
			math = k
		}
	}
	return math, []string{"-lstdc++", "-lm"}
}

// depend adds what the driver derives from the command's own -o: the dependency file, and the
// target in it.
func (s *Several) depend(argv []string, source string) []string {
	if !s.deps {
		return argv
	}
	target := s.Output
	if target == "" {
		target = stem(source) + ".o"
	}
	if !s.file {
		argv = append(argv, "-MF", swapSuffix(target, ".d"))
	}
	if !s.target {
		argv = append(argv, "-MQ", target)
	}
	return argv
}

// Linked returns the objects and libraries that the command names as files. ok is false if the driver may have something to say
// about the link before it compiles anything.
func (s *Several) Linked() (files []string, ok bool) {
	for _, p := range s.words {
		switch w := p.words[0]; {
		case p.role != forLink || w == "-o":
		case !strings.HasPrefix(w, "-"):
			files = append(files, w)
		case !slices.ContainsFunc(quietLinks[:], func(name string) bool { return strings.HasPrefix(w, name) }):
			return nil, false
		}
	}
	return files, true
}

// quietLinks are beginnings of options for the linker that clang's driver passes on as they are.
var quietLinks = [...]string{"-o", "-l", "-L", "-Wl,", "-shared", "-static", "-pie", "-no-pie", "-rdynamic"}

// Link returns the link of the objects, one for each source, as the words after the compiler's
// name.
func (s *Several) Link(objects []string) []string {
	argv := make([]string, 0, 2*len(s.words))
	for _, p := range s.words {
		switch p.role {
		case forUnit:
			argv = append(argv, objects[0])
			objects = objects[1:]
		case forAll, forLink:
			argv = append(argv, p.words...)
		}
	}
	return argv
}
