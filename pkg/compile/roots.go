package compile

import "strings"

// Roots are the directories below which clang's driver looks for an installation of gcc, and for the headers
// of the system, because the command says so. What it finds, by files that no list names, says where the compiler
// looks for headers by itself. They are as typed.
func (p *Plan) Roots() (dirs []string) {
	if !p.rooted {
		return nil
	}
	for _, o := range p.options {
		if o.class == searchGCC {
			dirs = append(dirs, o.arg)
		}
	}
	return dirs
}

// rootedWhole says what speaks against the sources form of a command with Roots, or "".
func (p *parser) rootedWhole() string {
	if p.rooted && (raw(p.Language) || p.ownAs() == gnuAs) { // whose assembler is looked for below them
		return "toolchain"
	}
	return p.Sources
}

// fastMath reports whether the command has words with which a file of gcc's, where clang's driver finds it,
// decides what a denormal number counts as. Text travels without the words that say where that is.
func (p *parser) fastMath() bool {
	for _, o := range p.options {
		switch w := o.words[0]; {
		case w == "-Ofast", w == "-ffast-math", w == "-funsafe-math-optimizations", strings.HasPrefix(w, "-ffp-model"):
			return true
		}
	}
	return false
}

// Sysroots are the directories that the command names for headers and libraries of the system (--sysroot, -isysroot),
// as typed. A compiler may give the headers below them without the links that lead there.
func (p *Plan) Sysroots() (dirs []string) {
	for _, o := range p.options {
		if w := o.words[0]; o.arg != "" && (strings.HasPrefix(w, "--sysroot") || strings.HasPrefix(w, "-isysroot")) {
			dirs = append(dirs, o.arg)
		}
	}
	return dirs
}
