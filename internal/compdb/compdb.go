// Package compdb reads compilation databases (compile_commands.json) as clang's tools do.
//
// It is linked into the wrapper, which must start fast. It knows no more of JSON than build systems write: clang reads these
// files as YAML, so what the two languages might take differently is not read at all.
package compdb

import (
	"path"
	"strings"
)

// Entry is how one file is compiled.
type Entry struct {
	Directory string
	Words     []string // the compiler first
}

// Find returns the entry of a file in the text of a database. file and the names of the entry must be the same absolute name,
// without dots. ok is false if there is no such entry, or several, or if it is not certain how clang would read the text.
func Find(text, file string) (e Entry, ok bool) {
	s := scanner{text: text}
	var found object
	n := 0
	s.list('[', ']', func() {
		o := s.object()
		if s.bad || !o.names(file) {
			return
		}
		found = o
		n++
	})
	s.blanks()
	if s.bad || s.at != len(text) || n != 1 || found.file.text() != file {
		return Entry{}, false
	}
	words := make([]string, 0, len(found.arguments))
	for _, w := range found.arguments {
		words = append(words, w.text())
	}
	if found.has&hasCommand != 0 {
		if words, ok = Split(found.command.text()); !ok {
			return Entry{}, false
		}
	}
	return Entry{found.directory.text(), words}, true
}

// object is one entry as it stands in the text.
type object struct {
	has                      uint8
	directory, file, command raw
	arguments                []raw
}

// What an object has. All but its output, and one of the two kinds of commands, must be there.
const (
	hasDirectory = 1 << iota
	hasFile
	hasCommand
	hasArguments
	hasOutput
)

// names reports whether clang may take o for the entry of a file: clang leaves out dots in names, or does not, by its version.
func (o *object) names(file string) bool {
	name := o.file.text()
	if name == file {
		return true
	}
	base := file[strings.LastIndexByte(file, '/')+1:]
	if !strings.HasSuffix(name, base) {
		return false
	}
	if !strings.HasPrefix(name, "/") {
		name = o.directory.text() + "/" + name
	}
	return path.Clean("/"+name) == file
}

// Split splits a command into words, as clang does for systems other than Windows.
func Split(command string) (words []string, ok bool) {
	for i := 0; i < len(command); {
		if command[i] == ' ' {
			i++
			continue
		}
		var w []byte
		quote := byte(0)
		for ; i < len(command) && (quote != 0 || command[i] != ' '); i++ {
			switch c := command[i]; {
			case c == '\\' && quote != '\'':
				if i++; i == len(command) {
					return nil, false
				}
				w = append(w, command[i])
			case c == quote:
				quote = 0
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			default:
				w = append(w, c)
			}
		}
		if quote != 0 || len(w) == 0 {
			return nil, false
		}
		words = append(words, string(w))
	}
	return words, true
}
