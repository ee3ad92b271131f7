package compile

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/reason"
)

// maxIR is how much bitcode of one command is read to find what it reads, in bytes.
const maxIR = 64 << 20

// unfitIR reports whether a command whose source is LLVM's IR must run here.
func (p *parser) unfitIR() bool {
	suffix := ".o"
	if p.assembly {
		suffix = ".s"
	}
	switch {
	case p.Driver.Family != Clang || p.Syntax || p.modules.on || p.native || len(p.Images) > 0:
		return true
	case p.outputs == 0 && (p.llvm || strings.HasSuffix(p.Source, suffix)), p.output == p.Source, p.ownAs() != clangAs:
		return true // the output may be the source; or temporary files have names of their own
	case p.extra.wants(saveTemps), p.extra.wants(coverage), p.extra.wants(callGraph), p.extra.log, p.extra.traces != "":
		return true // versions differ in what they write
	}
	for _, o := range p.options {
		if o.class == wa || o.class == xasm {
			return true // directories with files that assembly in it may include
		}
	}
	return false
}

// takeObject takes what is for the linker otherwise for the source of a command with an index of ThinLTO, as clang does: linkers
// that compile in several places write such commands. findIR looks whether it is LLVM's IR.
func (p *parser) takeObject() {
	if p.Driver.Family != Clang || p.index == "" || p.sources > 0 || p.inputs != 1 || p.stdin || !p.compile && !p.assembly {
		return
	}
	for _, o := range p.options {
		if o.class == source {
			p.Source, p.Language, p.sources, p.inputs = o.arg, langIR, 1, 0
		}
	}
}

// findIR completes the Plan of a command whose source is LLVM's IR by the modules that an index of ThinLTO names: the
// compiler may import functions of these. why is the reason if the command has to run here.
func (p *Plan) findIR(dir string) (why string) {
	f := moduleFinder{p: p, dir: dir, seen: make(map[string]struct{})}
	read := int64(0)
	look := func(name string) (c modules.Bitcode, bitcode, ok bool) {
		ok = true // a missing file, for which the compiler has its own message
		opened(f.path(name), func(from func(b []byte, off int64) bool, size int64) {
			var head [4]byte
			if read += size; size == 0 || read <= maxIR && from(head[:min(size, 4)], 0) && head[0] < 0x7f && string(head[:2]) != "BC" {
				return // text, in which files are found like in C; or an empty index
			}
			bitcode = true
			if c, ok = modules.ReadBitcode(from, size); read > maxIR || c.Reads {
				ok = false
			}
		})
		return c, bitcode, ok
	}
	if _, _, ok := look(p.Source); !ok {
		return reason.NotReproducible + "language"
	}
	if p.index == "" || p.index == "/dev/null" {
		return ""
	}
	if !isThere(f.path(p.index)) { // clang says so, reports success, and leaves an empty object
		return reason.NotReproducible + hereOf[hereInputFile]
	}
	index, _, ok := look(p.index)
	if !ok || len(index.Paths) > maxModules {
		return reason.NotReproducible + hereOf[hereInputFile]
	}
	for _, name := range index.Paths {
		if strings.HasSuffix(name, ")") || isDevice(name) || !f.add(name) {
			return reason.NotReproducible + hereOf[hereInputFile] // a member of an archive, or twice
		}
		if _, bitcode, ok := look(name); !ok || !bitcode {
			return reason.NotReproducible + hereOf[hereInputFile]
		}
	}
	slices.Sort(f.found)
	p.Inputs = append(slices.Clip(p.Inputs), f.found...)
	return ""
}
