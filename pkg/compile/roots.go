package compile

import (
	pathname "path"
	"strings"
	"syscall"
)

// Roots returns the directories, as typed, below which the command makes clang's driver look for an
// installation of gcc and for system headers. What the driver finds there, by files that no list
// names, decides where the compiler itself looks for headers.
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

// rootedWhole returns the reason why a command with Roots cannot use the sources form, or "".
func (p *parser) rootedWhole() string {
	if p.rooted && (raw(p.Language) || p.ownAs() == gnuAs) { // its assembler is looked for below the roots
		return "toolchain"
	}
	return p.Sources
}

// fastMath reports whether, by the command's words, a file of gcc's decides how denormal numbers are
// treated if clang's driver finds it. Text travels without the words that say where that file is.
func (p *parser) fastMath() bool {
	for _, o := range p.options {
		switch w := o.words[0]; {
		case w == "-Ofast", w == "-ffast-math", w == "-funsafe-math-optimizations", strings.HasPrefix(w, "-ffp-model"):
			return true
		}
	}
	return false
}

// Sysroots returns the directories, as typed, that the command names for system headers and libraries
// (--sysroot, -isysroot). A compiler may list the headers below them with the links on the way
// resolved.
func (p *Plan) Sysroots() (dirs []string) {
	for _, o := range p.options {
		if w := o.words[0]; o.arg != "" && (strings.HasPrefix(w, "--sysroot") || strings.HasPrefix(w, "-isysroot")) {
			dirs = append(dirs, o.arg)
		}
	}
	return dirs
}

// mapsByLinks reports whether the command has gcc follow links in the directories of its maps (-fcanon-prefix-map), and one of these
// may lead somewhere. Hosts have the links on the way to what a compile reads, and no others.
func (p *Plan) mapsByLinks() bool {
	follows, links := false, false
	for _, o := range p.options {
		switch w := o.words[0]; {
		case o.class == textDirectory:
			follows = true
		case strings.Contains(w, "prefix-map="):
			_, m, _ := strings.Cut(w, "=")
			if i := strings.LastIndexByte(m, '='); i >= 0 { // gcc parts them at the last one
				links = links || m[0] != '/' || pathname.Clean(m[:i]) != m[:i] || hasLink(m[:i])
			}
		}
	}
	return follows && links
}

// hasLink reports whether an absolute path or a directory on its way is a symbolic link.
func hasLink(name string) bool {
	var buf [1]byte
	for i := 1; i <= len(name); i++ {
		if i == len(name) || name[i] == '/' {
			if _, err := syscall.Readlink(name[:i], buf[:]); err == nil {
				return true
			}
		}
	}
	return false
}
