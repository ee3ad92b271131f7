package modules

import "strings"

// Rules are the names that gcc may add to the rules for make of a unit. The zero value has none.
type Rules struct {
	Module  string   // that the compile writes, with its partition; "": none
	File    string   // that it writes it to
	Imports []string // names of modules and headers that it may import
}

// Headers returns the names, as gcc has them, of the headers that it may import if those in files have been compiled.
func (m *Mapper) Headers(files []string) (names []string) {
	for name := range m.names {
		if name[0] == '/' || name[0] == '.' {
			names = append(names, name)
		}
	}
	if m.names != nil {
		return names
	}
	for _, file := range files {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(file, ".gcm"), m.root+"/"); ok {
			names = append(names, headerOf(name))
		}
	}
	return names
}

// headerOf is the inverse of headerName, for a name without its suffix.
func headerOf(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		if p == ",," || p == "," && i == 0 {
			parts[i] = strings.ReplaceAll(p, ",", ".")
		}
	}
	name = strings.Join(parts, "/")
	if parts[0] == "." || parts[0] == ".." {
		return name
	}
	return "/" + name
}
