package compile

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// partition reports whether the command is the compile of one partition of a link by gcc with LTO, as lto-wrapper has make run it,
// with nothing but an object to write. The compiler reads its input and no other file, except what assembly in it includes.
func (p *parser) partition() bool {
	if p.Driver.Family != GCC || p.Language != langLTO || !p.ltrans || !p.compile || p.assembly || p.Syntax || p.cppOnly || p.output == "" {
		return false
	}
	return !p.native && !p.modules.on && !p.usage && p.extra.made == 0 && p.extra.format == "" && !p.extra.profile && len(p.extra.files) == 0 &&
		len(p.extra.deps) == 0 && len(p.Inputs) == 0 && !p.deps && len(p.Plugins()) == 0
}

// links returns the reason for which the command, which links, runs here. Where clang's words ask for LTO that the linker does by itself
// it is one of its own.
func (p *parser) links() string {
	why := reason.Link
	if p.Driver.Family != Clang {
		return why
	}
	for _, o := range p.options {
		switch w := o.words[0]; {
		case w == "-fno-lto":
			why = reason.Link
		case w == "-flto=thin":
			why = reason.LinkThin
		case w == "-flto", strings.HasPrefix(w, "-flto="):
			why = reason.LinkFull
		}
	}
	leaves := func(w string) bool {
		return strings.Contains(w, "thinlto-distributor") || strings.Contains(w, "thinlto-index-only") || strings.HasPrefix(w, "--config")
	}
	if why == reason.LinkThin && slices.ContainsFunc(p.argv, leaves) {
		return reason.Link // it leaves the compiles to another program, or a file may say so
	}
	return why
}
