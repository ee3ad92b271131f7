package compile

import (
	"bytes"
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TidyFamily is the word for clang-tidy where compilers have the names of their families.
const TidyFamily = "clang-tidy"

// TidyConfig is the name of the files in which clang-tidy looks for its configuration: in the directory of each file that it
// reads, and in those above it.
const TidyConfig = ".clang-tidy"

// hereTidy is the word after "not-reproducible:" for a run of clang-tidy of which it is not certain what it reads.
const hereTidy = "clang-tidy"

// UnknownTidy is the reason why clang-tidy runs here if it is not certain what it would read.
const UnknownTidy = reason.NotReproducible + hereTidy

// tidyWords is what a command of clang-tidy says of the compile that it looks at.
type tidyWords struct {
	compile []string // words for clang's driver, as clang-tidy makes them of the command's
	config  string   // file with the configuration, as typed; "": none is named
	bin     bool     // its driver is to take itself for one in tidyDir
}

// CompileWords returns the words from which a compiler takes macros and directories: those of the whole command, or for
// clang-tidy those of the compile that it looks at.
func (p *Plan) CompileWords() []string {
	if p.Driver.Tidy {
		return p.tidy.compile
	}
	return p.argv
}

// tidyLooks returns the words of the command without those that have it write a file.
func (p *Plan) tidyLooks() (argv []string) {
	for i := 0; i < len(p.argv); i++ {
		w := p.argv[i]
		if w == "--" {
			return append(argv, p.argv[i:]...)
		}
		switch name, _, valued := strings.Cut(strings.TrimLeft(w, "-"), "="); {
		case w[0] != '-' || name != "export-fixes":
			argv = append(argv, w)
		case !valued:
			i++
		}
	}
	return argv
}

// ConfigFile returns the file, as typed, that clang-tidy is told to take its configuration from, or "".
func (p *Plan) ConfigFile() string { return p.tidy.config }

// parseTidy reads the words after the name of clang-tidy:
//
//	[option...] FILE -- [compiler] FLAG...
//
// What clang-tidy does to the flags, parseTidy does too: it leaves out outputs, rules for make, and the compiler's name.
// The rest must be a compile that could run elsewhere, with -fsyntax-only.
func parseTidy(argv []string, d Driver, getenv func(string) (string, bool)) Plan {
	t := tidy{Plan: Plan{Driver: d, argv: argv}}
	flags := t.own(argv)
	if t.reason == "" {
		t.flags(flags)
	}
	if t.reason == "" {
		t.whole(getenv)
	}
	if t.reason != "" {
		turn := TurnLocal
		if t.reason == reason.Query {
			turn = TurnNone
		}
		return Plan{Driver: d, argv: argv, Source: t.Source, Local: true, Reason: t.reason, Turn: turn}
	}
	return t.Plan
}

// tidy is the Plan of a command of clang-tidy that is being built.
type tidy struct {
	Plan
	before, flagged, after []string // words of the compile: by --extra-arg-before, after "--", by --extra-arg
	fixes                  string   // file of --export-fixes
	build                  string   // directory of -p
	sources                int
	cxx, twice             bool
	reason                 string // the first one to stay here
}

func (t *tidy) refuse(why string) {
	if t.reason == "" {
		t.reason = why
	}
}

// own reads the words for clang-tidy itself, and returns those after "--".
func (t *tidy) own(argv []string) (flags []string) {
	for i := 0; i < len(argv); i++ {
		w := argv[i]
		switch {
		case w == "--":
			if t.sources != 1 {
				t.refuse(reason.NotReproducible + "several-sources")
			}
			return argv[i+1:]
		case w == "" || strings.HasPrefix(w, "@"):
			t.refuse(reason.NotReproducible + "response-file")
		case w == "-":
			t.refuse(reason.Stdin)
		case w[0] != '-':
			t.Source = w
			t.sources++
		default:
			name, value, valued := strings.Cut(strings.TrimPrefix(w[1:], "-"), "=")
			if (name == "p" || name == "config-file" || name == "export-fixes") && !valued && i+1 < len(argv) {
				i++
				value, valued = argv[i], true
			}
			t.option(name, value, valued)
		}
	}
	t.refuse(hereDatabase)
	return nil
}

// option reads one option of clang-tidy's.
func (t *tidy) option(name, value string, valued bool) {
	fits := valued && plain(macroBlanks.Replace(value), maxText)
	switch name {
	case "checks", "warnings-as-errors", "header-filter", "exclude-header-filter", "line-filter":
	case "config":
		if !ModestTidyConfig([]byte(value)) {
			t.refuse(UnknownTidy)
		}
	case "p": // not looked at where there is "--"
		t.build, t.twice = value, t.twice || t.build != "" || value == ""
	case "quiet", "use-color", "system-headers", "allow-no-checks", "allow-enabling-analyzer-alpha-checkers":
		fits = !valued || onlyOf(value, letterBytes+digitBytes, maxWord)
	case "config-file":
		fits = fits && value != "" && !isDevice(value) && t.tidy.config == ""
		t.tidy.config = value
	case "export-fixes":
		fits = fits && (strings.HasSuffix(value, ".yaml") || strings.HasSuffix(value, ".yml")) && !isDevice(value) && t.fixes == "" && len(value) <= maxPath
		t.fixes = value
	case "extra-arg":
		t.after = append(t.after, value)
	case "extra-arg-before":
		t.before = append(t.before, value)
	case "fix", "fix-errors", "fix-notes":
		t.refuse(reason.NotReproducible + "fix")
		return
	case "list-checks", "dump-config", "verify-config", "explain-config", "help", "help-hidden", "help-list", "help-list-hidden", "version":
		t.refuse(reason.Query)
		return
	case "load":
		t.refuse(reason.NotReproducible + hereOf[herePlugin])
		return
	default:
		fits = false
	}
	if !fits {
		t.refuse(reason.UnknownOption + "--" + optionName(name))
	}
}

// flags reads the words after "--". clang-tidy takes away what is not for a compile of its source, wherever the word stands.
func (t *tidy) flags(words []string) {
	compiler := ""
	if len(words) > 1 && words[0] == installDir && words[1] == tidyDir {
		t.tidy.bin, words = true, words[2:]
	}
	if len(words) > 0 && !strings.HasPrefix(words[0], "-") && words[0] != t.Source && CompilerName(words[0]) {
		compiler, words = words[0], words[1:]
	}
	for i := 0; i < len(words); {
		w := words[i]
		switch {
		case w == t.Source:
			i++
			continue
		case strings.HasPrefix(w, "@"):
			t.refuse(reason.NotReproducible + "response-file")
			return
		case w == "" || w[0] != '-' || w == "-":
			t.refuse(reason.NotReproducible + "several-sources")
			return
		case w == "--":
			t.refuse(reason.UnknownOption + w)
			return
		}
		row, arg, more := lookup(w, Clang)
		n := 1
		if more {
			n = 2
		}
		if row != nil && i+n > len(words) {
			t.refuse(reason.UnknownOption + optionName(w))
			return
		}
		c := unknown
		if row != nil {
			c = row.class(Clang)
		}
		if n == 2 && (words[i+1] == t.Source || words[i+1] == compiler) {
			t.refuse(UnknownTidy) // clang-tidy takes it for the file
			return
		}
		switch {
		case c == output && arg == "" && n == 1, c == wp && strings.Contains(w, ",-M"), strings.HasPrefix(w, "-save-temps"), strings.HasPrefix(w, "--save-temps"):
			t.refuse(reason.UnknownOption + optionName(w))
			return
		case c == output, c == modeCompile, c == depend, c == dependAuto, c == dependFile, c == dependTo:
		default:
			t.flagged = append(t.flagged, words[i:i+n]...)
		}
		i += n
	}
}

// whole makes the plan of what has been read.
func (t *tidy) whole(getenv func(string) (string, bool)) {
	words := make([]string, 0, len(t.before)+len(t.flagged)+len(t.after)+2)
	for _, w := range t.before {
		words = t.mode(words, w)
	}
	for _, w := range t.flagged {
		words = t.mode(words, w)
	}
	words = append(words, t.Source)
	for _, w := range t.after {
		words = t.mode(words, w)
	}
	words = append(words, "-fsyntax-only")
	p := Parse(words, Driver{Family: Clang, CXX: t.cxx}, getenv)
	switch {
	case p.Local:
		t.refuse(p.Reason)
		return
	case p.Source != t.Source, p.Raw, p.assembles(), !p.Syntax, len(p.Outputs) > 0, len(p.Images) > 0, p.Makes != nil, p.modules.on, p.native, p.rooted,
		p.Sources != "", len(p.Plugins()) > 0, len(p.SpecFiles()) > 0, len(p.ToolDirs()) > 0:
		t.refuse(UnknownTidy)
		return
	}
	for _, name := range tidyVariables {
		if getenv != nil {
			if value, set := getenv(name); set && !FitsTidyEnvironment(name, value) {
				t.refuse(reason.NotReproducible + "environment")
				return
			}
		}
	}
	t.tidy.compile = words
	p.Driver, p.argv, p.tidy = t.Driver, t.argv, t.tidy
	p.Text = hereTidy
	p.places = false
	if t.tidy.config != "" {
		p.Inputs = append(p.Inputs, t.tidy.config)
	}
	if t.fixes != "" {
		p.Outputs = []unit.Output{{Kind: unit.OutputSide, Name: t.fixes, Optional: true}}
	}
	t.Plan = p
}

// mode appends a word for the driver, except the one that says how it is called: CMake has clang-tidy look at C++ in this way.
func (t *tidy) mode(words []string, w string) []string {
	if mode, ok := strings.CutPrefix(w, "--driver-mode="); ok {
		if mode != "g++" && mode != "gcc" || t.cxx {
			t.refuse(reason.UnknownOption + "--driver-mode")
		}
		t.cxx = mode == "g++"
		return words
	}
	return append(words, w)
}

// tidyVariables go along with clang-tidy in addition to what goes along with sources: some fixes, which its messages show,
// have the user's name.
var tidyVariables = [...]string{"USER", "USERNAME"}

// GoesWithTidy reports whether a variable goes along with a run of clang-tidy.
func GoesWithTidy(name string) bool {
	return name == tidyVariables[0] || name == tidyVariables[1] || GoesWithSources(name)
}

// FitsTidyEnvironment is FitsEnvironment for the variables of GoesWithTidy.
func FitsTidyEnvironment(name, value string) bool {
	if name == tidyVariables[0] || name == tidyVariables[1] {
		return onlyOf(value, letterBytes+digitBytes+"_.-@", maxWord)
	}
	return FitsEnvironment(name, value)
}

// ModestTidyConfig reports whether a configuration of clang-tidy's adds no words to the compile, which nothing would have
// checked, and names no files. YAML can spell a key in several ways, but only with a backslash.
func ModestTidyConfig(text []byte) bool {
	for _, s := range [...]string{"ExtraArgs", ":Config", "model-path", "ctu-", "\x00", `\x`, `\u`, `\U`, "\\\n", "\\\r"} {
		if bytes.Contains(text, []byte(s)) {
			return false
		}
	}
	return true
}
