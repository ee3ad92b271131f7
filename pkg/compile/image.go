package compile

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// A precompiled header is an image of a compiler's memory, and no machine takes one from another. A host makes it
// itself, by the command that has made the one here.

// Image is a precompiled header that a command makes.
type Image struct {
	Language string        // of the header's text
	Outputs  []unit.Output // the first one is the image
}

// makes returns what the command makes from a header, or nil if a host could not do the same.
func (p *parser) makes(getenv func(string) (string, bool)) *Image {
	switch {
	case p.headerIn == "", p.sources > 1, p.inputs > 0, p.stdin, p.assembly, p.Modules(), p.Syntax, p.llvm, p.native:
		return nil
	case p.reason != "", p.names != "", p.pending != "", p.symbol, p.outputs > 1, p.outputs == 1 && p.output == "":
		return nil
	case p.extra.made != 0, len(p.extra.files) > 0, p.extra.profile, p.usage, len(p.Images) > 0, len(p.ToolDirs()) > 0, len(p.SpecFiles()) > 0, len(p.Plugins()) > 0, p.unfit(getenv) != "", p.rootedWhole() != "":
		return nil
	case isProbe(p.Source), isDevice(p.output):
		return nil
	}
	name := p.output
	if name == "" {
		if p.Driver.Family == Clang {
			return nil // what it appends depends on its version
		}
		name = p.Source + ".gch"
	}
	m := &Image{Language: p.headerIn}
	// The names of the other outputs are derived as for an object.
	p.Language = p.headerIn
	p.name()
	m.Outputs = p.Outputs
	m.Outputs[0].Name = name
	p.Outputs, p.Language = nil, langHeader
	return m
}

// FromHeader reports whether the command compiles a header.
func (p *Plan) FromHeader() bool { return p.Language == langHeader }

// Header returns p as a plan whose source is text of the header's language. It is for a plan with Makes.
func (p *Plan) Header() *Plan {
	h := *p
	h.Language = p.Makes.Language
	h.Local, h.Reason = false, ""
	return &h
}

// image records a precompiled header that the command names.
func (p *parser) image(name string) {
	if name == "" || isDevice(name) {
		p.refuse(reason.Stdin)
		return
	}
	p.Images = append(p.Images, name)
	p.sourcesOnly(hereOf[herePCH])
}

// forwardedName reads the argument of an option that stands after -Xclang.
func (p *parser) forwardedName(name string) {
	option := p.names
	p.names = ""
	switch {
	case option == "-mllvm":
		if !codeOnly(name) {
			p.refuse(reason.UnknownOption + "-mllvm," + optionName(name))
		}
	case option == "-fdebug-compilation-dir":
		p.compDir = true
		p.sourcesOnly(textOf[textCommandLine]) // the driver does not know of it
		if !pathText.fits("", name) || name == "" || name[0] == '-' || name[0] == '@' {
			p.refuse(reason.UnknownOption + option)
		}
	case !path.fits("", name), name == "", isDevice(name), name[0] == '@', name[0] == '-':
		p.refuse(reason.UnknownOption + option)
	case option == "-include-pch":
		p.image(name)
	default:
		p.forced = append(p.forced, name)
		p.sourcesOnly(hereOf[herePCH]) // the driver does not know of it
	}
}

// forwardedWords reports whether a word after -Xclang says nothing of where headers are, except for what forced and Images
// have.
func (p *Plan) forwardedWords() bool {
	names := false
	for _, o := range p.options {
		if o.class != xclang {
			continue
		}
		switch w := o.arg; {
		case names:
			names = false
		case w == "-include", w == "-include-pch", w == "-mllvm", w == "-fdebug-compilation-dir":
			names = true
		case w == "-emit-pch":
		case strings.HasPrefix(w, "-"):
			return false
		}
	}
	return true
}
