package compile

import (
	pathname "path" // path is a kind of value here
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// moduleWords holds what a command says about modules.
type moduleWords struct {
	on     bool     // gcc: -fmodules-ts
	mapper string   // gcc: the file of -fmodule-mapper=, or ""
	prefix string   // gcc: what its lines begin with
	files  []string // clang: compiled modules
	units  []string // clang: compiled headers
	dirs   []string // clang: directories with compiled modules
	to     string   // clang: the file of -fmodule-output=, or ""
	writes int      // clang: how often -fmodule-output was given
	only   bool     // clang: --precompile, which makes a compiled module and nothing from it
	makes  bool     // clang: the command makes a compiled module, and then an object from that unless only is set
	unit   bool     // gcc: the command compiles a header to a module
	header bool     // clang: the compiled module is that of a header
	asked  bool     // -fmodule-header; with gcc, any source is compiled to a module, too
	way    string   // how the header is looked for: "user", "system", or "": it is named
	said   string   // the same, by -fmodule-header=
	search Search   // where, unless it is named
}

// Modules reports whether the command may read or write compiled modules. Which ones, FindModules tells.
func (p *Plan) Modules() bool { return p.modules.on }

// MakesModule reports whether the command makes a compiled module of clang's, as its main output or beside it. The module
// tells in which directories the compiler looks for headers, and so they have to be the same on a host (modules.Search).
func (p *Plan) MakesModule() bool { return p.modules.makes }

// moduleOption records an option about modules.
func (p *parser) moduleOption(c class, arg string) {
	p.modules.on = true
	switch c {
	case moduleFile:
		name, file, named := strings.Cut(arg, "=")
		switch {
		case !named && name != "" && !isDevice(name):
			p.modules.units = append(p.modules.units, name)
		case !named || name == "" || file == "" || isDevice(file):
			p.refuse(reason.NotReproducible + hereOf[hereModules])
		default:
			p.modules.files = append(p.modules.files, file)
		}
	case moduleDir:
		if arg == "" || isDevice(arg) {
			p.refuse(reason.NotReproducible + hereOf[hereModules])
			return
		}
		p.modules.dirs = append(p.modules.dirs, arg)
	case moduleTo:
		p.modules.to = arg
		p.modules.writes++
	case moduleMapper:
		// Programs and sockets are asked as the compile goes on.
		name, prefix, _ := strings.Cut(arg, "?")
		if name == "" || strings.IndexByte("<=|@", name[0]) >= 0 || strings.IndexByte(name, ':') >= 0 || strings.IndexByte(prefix, '?') >= 0 || isDevice(name) {
			p.refuse(reason.NotReproducible + hereOf[hereModules])
			return
		}
		p.modules.mapper, p.modules.prefix = name, prefix
	case moduleHeader:
		p.modules.asked = true
		if arg != "" && arg != wayUser && arg != waySystem || p.modules.said != "" && arg != "" && arg != p.modules.said {
			p.refuse(reason.NotReproducible + hereOf[hereModules])
			return
		}
		if arg != "" {
			p.modules.said = arg
		}
	}
}

// unfitModules reports whether a command with modules must run here.
func (p *parser) unfitModules(getenv func(string) (string, bool)) bool {
	if !p.modules.on && !p.modules.only {
		return false
	}
	p.modules.on = true
	if getenv != nil {
		if _, set := getenv("CXX_MODULE_MAPPER"); set {
			return true
		}
	}
	switch p.Language {
	case langModule:
		return p.modules.asked || !p.makesModule()
	case langCompiled:
		return p.modules.asked || p.modules.writes > 0 || p.deps || p.depFile || p.severalSteps()
	}
	return p.modules.asked && !p.modules.unit && !p.modules.header || raw(p.Language) || p.extra.wants(saveTemps) || p.Driver.Family == Clang && p.Language != langCXX || p.modules.writes > 0
}

// makesModule takes a command whose source clang compiles to a module and then, unless the module is all that is asked for,
// to an object. It reports whether the command may run elsewhere.
func (p *parser) makesModule() bool {
	m := &p.modules
	switch {
	case m.only && (m.writes > 0 || p.assembly || p.output == ""):
		return false
	case !m.only && m.writes != 1 || p.severalSteps():
		return false // otherwise the object has the name of a temporary file
	case m.only:
		m.to = p.output
	case m.to == "" && p.output == "":
		return false
	case m.to == "":
		m.to = swapSuffix(p.output, ".pcm")
	}
	if isDevice(m.to) || m.to == p.output && !m.only || m.to == p.Source {
		return false
	}
	m.makes = true
	p.Language = langCXX // what it is but for what becomes of it
	return true
}

// severalSteps reports whether a command that compiles a module, or makes an object from one, asks for more than that, so that
// both steps would write it, or another program reads what the compiler writes.
func (p *parser) severalSteps() bool {
	e := &p.extra
	return p.Syntax || p.Expand || p.llvm || p.lto || p.native || p.ownAs() != clangAs ||
		e.made != 0 || len(e.files) > 0 || e.traces != "" || e.log || p.usage
}

// Limits of what is read to find modules.
const (
	maxModules = 1024    // compiled modules of one command
	maxNames   = 1 << 20 // bytes of names of modules that it may import
	maxParts   = 16384   // files that clang's are made of
	maxListed  = 20000   // files and directories that are looked at to find compiled modules and headers
)

// FindModules completes the Plan of a command with modules, of C++ or of LLVM's IR, by the compiled modules that it reads and writes. It
// reads the source, files that map names, and compiled modules, all as seen from dir. why is the reason if the
// command has to run here.
//
// It reads files, so it must be given nothing but the user's own words.
//
// own returns where the compiler looks for C++ headers by itself, given the words that choose that, in order; nil if that is
// not known. It is called only for a header unit that is looked for.
func (p *Plan) FindModules(dir string, own func(words []string) []string) (why string) {
	if !p.Local && p.Language == langIR {
		return p.findIR(dir)
	}
	if p.Local || !p.modules.on {
		return ""
	}
	f := moduleFinder{p: p, dir: dir, own: own, seen: make(map[string]struct{})}
	find := f.gcc
	if p.Driver.Family == Clang {
		find = f.clang
	}
	if !find() {
		return reason.NotReproducible + hereOf[hereModules]
	}
	slices.Sort(f.found)
	p.Inputs = append(slices.Clip(p.Inputs), f.found...)
	p.Imports = len(f.found) > 0 || p.modules.makes
	return ""
}

// moduleFinder finds the compiled modules of a command.
type moduleFinder struct {
	p        *Plan
	dir      string
	own      func(words []string) []string
	found    []string // what may be read, as the compiler spells it
	seen     map[string]struct{}
	modules  int // that were read
	listed   int
	compiled []string // headers that gcc has compiled
}

// path returns a name as seen from the working directory.
func (f *moduleFinder) path(name string) string {
	if strings.HasPrefix(name, "/") || f.dir == "" {
		return name
	}
	return f.dir + "/" + name
}

// add records a file that may be read, whether it exists or not. It reports whether it is a new one.
func (f *moduleFinder) add(name string) bool {
	if _, known := f.seen[name]; known || name == "" {
		return false
	}
	f.seen[name] = struct{}{}
	f.found = append(f.found, name)
	return true
}

// gcc finds the compiled modules of a command of gcc's. It reports whether it has.
func (f *moduleFinder) gcc() bool {
	p := f.p
	if p.modules.unit && !f.header() {
		return false
	}
	source, ok := readUpTo(f.path(p.SourceFile()), maxRead)
	if !ok {
		return !p.modules.unit // the compiler has its own message for that
	}
	u := modules.Scan(source)
	p.Headers = u.Headers
	if u.Unsure || p.modules.unit && u.Module != "" {
		return false
	}
	m := modules.Default()
	if name := p.modules.mapper; name != "" {
		text, ok := readUpTo(f.path(name), maxRead)
		if !ok {
			return false
		}
		m = modules.ParseMapper(text, p.modules.prefix)
		f.add(name)
	}
	for _, name := range u.Imports {
		if file, ok := m.File(name); ok {
			f.imports(m, file)
		}
	}
	// Whether a header that is included has been compiled, gcc finds out by itself.
	for _, file := range m.Named() {
		f.imports(m, file)
	}
	top, ok := ListDir("/")
	if !ok {
		return false
	}
	for _, dir := range m.HeaderDirs(top) {
		if !f.headers(m, dir) {
			return false
		}
	}
	if p.modules.unit {
		if u.Module, ok = f.names(m); !ok {
			return false
		}
	} else if u.Writes {
		file, ok := m.File(u.Module)
		if !ok || isDevice(file) || file == p.Outputs[0].Name {
			return false
		}
		p.Outputs = append(slices.Clip(p.Outputs), unit.Output{Kind: unit.OutputModule, Name: file})
	}
	return len(f.found) <= maxModules && f.rules(m, &u)
}

// rules records what gcc may name in the rules for make of a unit, if the command has it write any. It reports whether
// the names are few enough.
func (f *moduleFinder) rules(m *modules.Mapper, u *modules.Unit) bool {
	if !slices.ContainsFunc(f.p.Outputs, func(o unit.Output) bool { return o.Kind == unit.OutputDependency }) {
		return true
	}
	r := &f.p.ModuleRules
	switch {
	case f.p.modules.unit:
		r.Module, r.File = u.Module, f.p.Outputs[0].Name
	case u.Writes:
		r.Module, r.File = u.Module, f.p.Outputs[len(f.p.Outputs)-1].Name
	}
	r.Imports = append(slices.Clip(u.Imports), m.Headers(f.compiled)...)
	size := 0
	for _, name := range r.Imports {
		size += len(name)
	}
	return len(r.Imports) <= maxModules && size <= maxNames
}

// clang finds the compiled modules of a command of clang's, and the files that they are made of. It reports whether
// it has.
func (f *moduleFinder) clang() bool {
	if f.p.modules.header && f.p.modules.way != "" && f.own != nil && !f.header() { // only the manager knows all directories
		return false
	}
	if f.p.Language == langCompiled && !f.clangs(f.p.Source, noHeader) {
		return false
	}
	for _, file := range f.p.modules.files {
		if !f.clangs(file, noHeader) {
			return false
		}
	}
	for _, file := range f.p.modules.units {
		if !f.clangs(file, onlyHeader) {
			return false
		}
	}
	for _, dir := range f.p.modules.dirs {
		names, ok := ListDir(f.path(dir))
		if f.listed += len(names); !ok || f.listed > maxListed {
			return false
		}
		for _, name := range names {
			if f.written(dir + "/" + name) { // what was there before is not read
				continue
			}
			if strings.HasSuffix(name, ".pcm") && !f.clangs(strings.TrimRight(dir, "/")+"/"+name, anyKind) {
				return false
			}
		}
	}
	return len(f.found) <= maxParts
}

// written reports whether a name is that of the compiled module that the command makes.
func (f *moduleFinder) written(name string) bool {
	return f.p.modules.makes && pathname.Clean(f.path(name)) == pathname.Clean(f.path(f.p.modules.to))
}

// Kinds of modules compiled by clang that clangs takes.
const (
	anyKind = iota
	noHeader
	onlyHeader
)

// clangs adds a module compiled by clang, what it is made of, and the modules that it imports. It reports whether
// all of them are what they should be.
func (f *moduleFinder) clangs(file string, kind int) bool {
	if isDevice(file) || f.modules > maxModules {
		return false
	}
	if !f.add(file) && kind == anyKind {
		return true
	}
	f.modules++
	c, ok := clangModule(f.path(file))
	if !ok || kind == onlyHeader && c.Header == "" || kind == noHeader && c.Header != "" {
		return false
	}
	f.p.NewModules = f.p.NewModules || c.Newer
	if c.Header != "" && !f.unit(&c) {
		return false
	}
	for _, name := range c.Files {
		if isDevice(name) { // it has another content by now
			return false
		}
		f.add(name)
	}
	for _, name := range c.Imports {
		if !f.clangs(name, anyKind) {
			return false
		}
	}
	return true
}

// unit takes a header that clang has compiled. clang knows the header by the name under which it was found, as seen from the
// working directory; there, it must be the same file. It reports whether it is.
func (f *moduleFinder) unit(c *modules.Compiled) bool {
	var st, main syscall.Stat_t
	if syscall.Stat(f.path(c.Header), &st) != nil || syscall.Stat(c.Main, &main) != nil || st.Dev != main.Dev || st.Ino != main.Ino {
		return false
	}
	f.add(c.Header)
	f.p.Units = true
	return true
}

// clangModule returns what a module compiled by clang says of itself. ok is false if the file is none that is known.
func clangModule(name string) (c modules.Compiled, ok bool) {
	opened(name, func(read func(b []byte, off int64) bool, size int64) { c, ok = modules.Clang(read, size) })
	return c, ok
}

// imports adds a compiled module and those that it imports.
func (f *moduleFinder) imports(m *modules.Mapper, file string) {
	if len(f.found) > maxModules || !f.add(file) {
		return
	}
	for _, file := range m.Imports(readme(f.path(file))) {
		f.imports(m, file)
	}
}

// readme returns what a compiled module says of itself, or "" if the file is none.
func readme(name string) (text string) {
	opened(name, func(read func(b []byte, off int64) bool, _ int64) { text, _ = modules.Readme(read) })
	return text
}

// opened calls do with a file, if it is a regular one: read fills b from an offset, and reports whether it could.
func opened(name string, do func(read func(b []byte, off int64) bool, size int64)) {
	fd, st, ok := openRegular(name)
	if !ok {
		return
	}
	defer func() { _ = syscall.Close(fd) }()
	do(func(b []byte, off int64) bool {
		for {
			n, err := syscall.Pread(fd, b, off)
			if err != syscall.EINTR {
				return err == nil && n == len(b)
			}
		}
	}, st.Size)
}

// headers adds all compiled headers below a directory, with what they import. It reports whether it has seen all.
func (f *moduleFinder) headers(m *modules.Mapper, dir string) bool {
	var st syscall.Stat_t
	if syscall.Stat(f.path(dir), &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return true
	}
	names, ok := ListDir(f.path(dir))
	if f.listed += len(names); !ok || f.listed > maxListed {
		return false
	}
	for _, name := range names {
		name = dir + "/" + name
		switch {
		case strings.HasSuffix(name, ".gcm"):
			f.compiled = append(f.compiled, name)
			f.imports(m, name)
		case !f.headers(m, name):
			return false
		}
	}
	return true
}

// ListDir returns the names in a directory, without "." and "..". ok is false if it cannot be read.
func ListDir(dir string) (names []string, ok bool) {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, false
	}
	defer func() { _ = syscall.Close(fd) }()
	buf := make([]byte, 8<<10)
	for {
		n, err := syscall.ReadDirent(fd, buf)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, false
		case n <= 0:
			return names, true
		}
		_, _, names = syscall.ParseDirent(buf[:n], -1, names)
	}
}
