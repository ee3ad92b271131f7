package modules

import "strings"

// Mapper says, as gcc does, which files modules are compiled to.
type Mapper struct {
	root  string            // directory of files whose names are relative; "": the working directory
	names map[string]string // nil: gcc's own mapping of all names
}

// Default returns gcc's mapping if there is no other.
func Default() *Mapper { return &Mapper{root: "gcm.cache"} }

// ParseMapper reads a file that maps names. prefix is the first word of its lines, or "".
//
//	$root DIRECTORY
//	NAME FILE
func ParseMapper(text, prefix string) *Mapper {
	m := &Mapper{names: make(map[string]string)}
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), prefix)
		if !ok || prefix != "" && line != "" && line[0] != ' ' && line[0] != '\t' {
			continue
		}
		line = strings.TrimLeft(line, " \t")
		name, file, _ := strings.Cut(strings.Replace(line, "\t", " ", 1), " ")
		switch file = strings.TrimLeft(file, " \t"); {
		case name == "":
			continue
		case name == "$root":
			m.root = file
			if len(file) > 1 {
				m.root = strings.TrimSuffix(file, "/")
			}
			if m.root == "." { // gcc leaves it out of names
				m.root = ""
			}
			continue
		case file == "":
			file = defaultName(name)
		}
		if _, there := m.names[name]; !there {
			m.names[name] = file
		}
	}
	return m
}

// defaultName returns gcc's own name for the compiled form of a module or of a header.
func defaultName(module string) string {
	if module[0] == '/' || module[0] == '.' {
		return headerName(module)
	}
	return strings.ReplaceAll(module, ":", "-") + ".gcm"
}

// headerName returns gcc's own name for the compiled form of a header: a leading "." becomes ",", and each ".." too.
func headerName(header string) string {
	if header[0] == '/' {
		header = "." + strings.ReplaceAll(header+"/", "/../", "/,,/")
		return strings.ReplaceAll(header[:len(header)-1], "/../", "/,,/") + ".gcm" // "/../../" too
	}
	parts := strings.Split(header, "/")
	for i, p := range parts {
		if p == ".." || p == "." && i == 0 {
			parts[i] = strings.ReplaceAll(p, ".", ",")
		}
	}
	return strings.Join(parts, "/") + ".gcm"
}

// HeaderName returns gcc's name of the module that a header is compiled to. file is the header as it is named, or as it is
// found: the directory as typed, a slash, and the name.
func HeaderName(file string) string {
	if file[0] == '/' || strings.HasPrefix(file, ".//") {
		return file
	}
	return "./" + strings.TrimPrefix(file, "./")
}

// File returns the file that a module, or a header as gcc has found it, is compiled to. ok is false if the
// mapping has none.
func (m *Mapper) File(name string) (file string, ok bool) {
	if name == "" {
		return "", false
	}
	if m.names == nil {
		return m.in(defaultName(name)), true
	}
	file, ok = m.names[name]
	return m.in(file), ok
}

// in returns a file's name as seen from the working directory.
func (m *Mapper) in(file string) string {
	if m.root == "" || strings.HasPrefix(file, "/") {
		return file
	}
	return m.root + "/" + file
}

// Named returns the files that the mapping has for headers, without order.
func (m *Mapper) Named() (files []string) {
	for name, file := range m.names {
		if name[0] == '/' || name[0] == '.' {
			files = append(files, m.in(file))
		}
	}
	return files
}

// HeaderDirs returns directories below which all compiled headers lie that gcc finds by itself. top are the names in
// the file system's root.
func (m *Mapper) HeaderDirs(top []string) (dirs []string) {
	for _, name := range append([]string{",", ",,"}, top...) {
		dirs = append(dirs, m.in(name))
	}
	return dirs
}

// Imports returns what a module that gcc has compiled imports, as its Readme says: for each import the file that the mapping
// has, if it has one, and the file that gcc had recorded.
func (m *Mapper) Imports(readme string) (files []string) {
	for readme != "" {
		line, rest, _ := strings.Cut(readme, "\x00")
		readme = rest
		kind, line, _ := strings.Cut(line, ": ")
		if k := strings.LastIndexByte(line, ' '); (kind == "import" || kind == "export") && k > 0 {
			if file, ok := m.names[line[:k]]; ok {
				files = append(files, m.in(file))
			}
			files = append(files, m.in(line[k+1:]))
		}
	}
	return files
}
