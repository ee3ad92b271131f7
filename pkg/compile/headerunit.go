package compile

import (
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// A header unit of gcc's is a header that has been compiled to a module. There is no object. The compiled module has the name of
// the header, as gcc finds it.

// Ways to look for a header that is compiled: as for #include "x", or as for #include <x>.
const (
	wayUser   = "user"
	waySystem = "system"
)

// unnamedUnit stands for the compiled module of a header, until FindModules knows its name.
const unnamedUnit = "gcm.cache/header.gcm"

// wayOf returns how a header is looked for in the language that -x names; "": it is named.
func wayOf(x string) string {
	switch x {
	case "c++-user-header":
		return wayUser
	case "c++-system-header":
		return waySystem
	}
	return ""
}

// HeaderUnit reports whether the command compiles a header to a module with gcc. That is then its main output, under a name
// that FindModules finds.
func (p *Plan) HeaderUnit() bool { return p.modules.unit }

// SourceFile returns the file that is compiled: the Source, or the header of that name that FindModules has found.
func (p *Plan) SourceFile() string {
	if p.header != "" {
		return p.header
	}
	return p.Source
}

// headerUnit takes a command of gcc's with modules that compiles a header, unless it has to run here.
func (p *parser) headerUnit(getenv func(string) (string, bool)) {
	m, e := &p.modules, &p.extra
	if p.headerIn == "" && m.way != "" {
		p.headerIn = langCXX
	}
	if p.headerIn != langCXX || m.said != "" && m.way != "" && m.said != m.way || p.assembly || p.Syntax || p.cppOnly || p.depOnly || p.lto || p.usage ||
		p.sources > 1 || p.inputs > 0 || p.outputs > 1 || e.made != 0 || len(e.files) > 0 || e.traces != "" || e.profile || e.log {
		p.refuse(reason.NotReproducible + hereOf[hereModules])
		m.way = ""
	}
	if m.said != "" {
		m.way = m.said
	}
	m.unit, p.Language = true, langCXX
	if m.way == "" {
		return
	}
	var ok bool
	if m.search, ok = p.Search(getenv); !ok || len(p.Sysroots()) > 0 || strings.HasPrefix(p.Source, "/") {
		p.refuse(reason.NotReproducible + hereOf[hereModules])
	}
}

// clangUnit takes a command of clang's that compiles a header to a module, unless it has to run here. The module is all that
// there is, under the name after -o.
func (p *parser) clangUnit(getenv func(string) (string, bool)) {
	m := &p.modules
	named := m.way != "" // by -x
	if named {
		p.headerIn = langCXX
	}
	switch {
	case !p.Driver.CXX, p.headerIn != langCXX, named && m.said != "", !named && p.x != "",
		p.compile || p.assembly || p.cppOnly || p.depOnly || p.deps || p.depFile || m.writes > 0 || p.severalSteps(),
		p.sources > 1, p.inputs > 0, p.outputs != 1, p.output == "", isDevice(p.output), p.output == p.Source:
		p.refuse(reason.NotReproducible + hereOf[hereModules])
	}
	if m.said != "" {
		m.way = m.said
	}
	m.header, m.only, m.makes, m.on, m.to, p.Language = true, true, true, true, p.output, langCXX
	if m.way == "" {
		return
	}
	var ok bool
	if m.search, ok = p.Search(getenv); !ok || len(p.Sysroots()) > 0 || strings.HasPrefix(p.Source, "/") {
		p.refuse(reason.NotReproducible + hereOf[hereModules])
	}
}

// header finds the header that is compiled. It reports whether it is certain which one that is.
func (f *moduleFinder) header() bool {
	p := f.p
	if p.modules.way == "" {
		return !f.exists(p.Source + ".gch") // which gcc might use
	}
	s := &p.modules.search
	var own []string
	if f.own != nil {
		own = f.own(s.Ask)
	}
	if own == nil {
		return false
	}
	var dirs []string
	clang := p.Driver.Family == Clang
	if p.modules.way == wayUser {
		if clang {
			// It is in the working directory, whatever else leads there.
			if name := "./" + p.Source; f.exists(name) {
				p.header = name
				return true
			}
		}
		dirs = append(dirs, s.Quote...)
	}
	for _, list := range [...][]string{s.Angle, s.System, own, s.After} {
		dirs = append(dirs, list...)
	}
	for i, dir := range dirs {
		var st, other syscall.Stat_t
		switch {
		case syscall.Stat(f.path(dir), &st) != nil:
			continue
		case st.Mode&syscall.S_IFMT != syscall.S_IFDIR:
			if clang { // which may take it for a map of headers
				return false
			}
			continue
		}
		name := strings.TrimSuffix(dir, "/") + "/" + p.Source
		if !f.exists(name) {
			if f.exists(name + ".gch") {
				return false
			}
			continue
		}
		for _, later := range dirs[i+1:] { // gcc may leave out the first one
			if syscall.Stat(f.path(later), &other) == nil && other.Dev == st.Dev && other.Ino == st.Ino {
				return false
			}
		}
		p.header = name
		return !f.exists(name + ".gch")
	}
	return false
}

// names gives the main output its name, by a mapping, and returns the module's. ok is false if there is none.
func (f *moduleFinder) names(m *modules.Mapper) (module string, ok bool) {
	p := f.p
	module = modules.HeaderName(p.SourceFile())
	file, ok := m.File(module)
	if !ok || isDevice(file) || file == p.SourceFile() || slices.ContainsFunc(p.Outputs, func(o unit.Output) bool { return o.Name == file }) {
		return "", false
	}
	p.Outputs = slices.Clone(p.Outputs)
	p.Outputs[0].Name = file
	return module, true
}

// exists reports whether there is a file of a name, whatever it is.
func (f *moduleFinder) exists(name string) bool {
	var st syscall.Stat_t
	return syscall.Stat(f.path(name), &st) == nil
}
