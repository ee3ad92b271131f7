package compile

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Shared returns Preprocess with placeholders for what differs from source to source (package
// driver), and what to put there, so that one answer of the driver serves all commands with
// the same options. ok is false where names are part of other words, or where the driver does
// more: then the driver must be run.
func (p *Plan) Shared(major int) (words []string, n driver.Names, ok bool) {
	if p.Local || p.Raw || p.assembles() || p.Driver.Family != GCC {
		return nil, n, false
	}
	words = p.textForm(words, major)
	for d := p.depend(nil); len(d) > 0; d = d[2:] {
		words = append(words, d[0], placeholder(&n, d[0], d[1]))
	}
	n.Source = p.Source
	for _, o := range p.options {
		switch {
		case !o.class.here(GCC), o.class == source, o.class == language:
		case o.class == dependFile, o.class == dependTo:
			name := o.words[len(o.words)-1]
			if len(o.words) == 1 {
				name = name[len("-MF"):]
			}
			if n.Target != "" && o.class == dependTo || n.Deps != "" && o.class == dependFile {
				return nil, n, false // several targets, or a second file
			}
			words = append(words, o.words[0][:len("-MF")], placeholder(&n, o.words[0], name))
		case strings.HasPrefix(o.words[0], "-Wp,"), o.words[0] == "-Xpreprocessor":
			return nil, n, false
		default:
			words = append(words, o.words...)
		}
	}
	for _, w := range words {
		if strings.Contains(w, "@rdistcc-") && w != driver.Deps && w != driver.Target {
			return nil, n, false
		}
	}
	return append(words, "-x", p.Language, driver.Source), n, true
}

// SharedList returns List with a placeholder for the source, as Shared does for Preprocess.
func (p *Plan) SharedList(major int) (words []string, n driver.Names, ok bool) {
	if p.Local || p.Raw || p.assembles() || p.Driver.Family != GCC {
		return nil, n, false
	}
	words = p.listForm(nil, major)
	n.Source = p.Source
	for _, o := range p.options {
		switch {
		case o.class == source, o.class == language:
		case o.class == wp, o.class == xpre:
			return nil, n, false
		case goes[o.class]&toList != 0:
			words = append(words, o.words...)
		}
	}
	for _, w := range words {
		if strings.Contains(w, "@rdistcc-") {
			return nil, n, false
		}
	}
	return append(words, "-x", p.Language, driver.Source), n, true
}

// SharedWhole returns Whole with placeholders, as Shared does for Preprocess. The words come in
// another order than typed, which a driver does not mind: it sorts them by kind.
func (p *Plan) SharedWhole() (words []string, n driver.Names, ok bool) {
	if p.Local || p.Driver.Family != GCC || len(p.Outputs) == 0 && !p.Syntax || p.modules.on {
		return nil, n, false
	}
	if p.Expand || p.Syntax && p.output == "" || p.assembles() {
		return nil, n, false // the names that the driver derives depend on that of the source; there may be no cc1
	}
	words = make([]string, 0, len(p.argv)+4)
	sourced := false
	for _, o := range p.options {
		switch o.class {
		case source:
			sourced = true
		case language:
			if sourced {
				return nil, n, false // without effect, and warned of
			}
		case output:
		case dependFile, dependTo:
			if n.Target != "" && o.class == dependTo || n.Deps != "" && o.class == dependFile {
				return nil, n, false // several targets, or a second file
			}
			words = append(words, o.words[0][:len("-MF")], placeholder(&n, o.words[0], o.arg))
		default:
			words = append(words, o.words...)
		}
	}
	n.Source = p.Source
	if !hasEnding(base(n.Source), "") {
		return nil, n, false
	}
	for _, w := range words {
		if strings.Contains(w, "@rdistcc-") && w != driver.Deps && w != driver.Target {
			return nil, n, false
		}
	}
	if p.output != "" {
		// The driver derives names from those that look like its own.
		want := ".o"
		if len(p.Outputs) > 0 && p.Outputs[0].Kind == unit.OutputAssembly {
			want = ".s"
		}
		if n.Output = p.output; !hasEnding(base(n.Output), want) {
			return nil, n, false
		}
		words = append(words, "-o", driver.Output)
	}
	return append(words, "-x", p.Language, driver.Source), n, true
}

// hasEnding reports whether a file's name has something before its extension, and whether that
// extension is ending or, if ending is "", any.
func hasEnding(name, ending string) bool {
	i := strings.LastIndexByte(name, '.')
	return i > 0 && i < len(name)-1 && (ending == "" || name[i:] == ending)
}

// placeholder records the name that a dependency option gives, and returns its placeholder.
func placeholder(n *driver.Names, option, name string) string {
	if strings.HasPrefix(option, "-MF") {
		n.Deps = name
		return driver.Deps
	}
	n.Target = name
	return driver.Target
}
