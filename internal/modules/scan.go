package modules

import "strings"

// Unit is what the module directives of a source say.
type Unit struct {
	Module  string   // name of the module that it belongs to, with its partition, such as "a.b:part"; "": none
	Writes  bool     // a compile writes the compiled module: the unit is an interface or a partition
	Imports []string // names of modules that it imports, with their partitions
	Headers []Header // headers that it imports
	Unsure  bool     // it declares different modules, depending on conditions
}

// Header is a header that a source imports.
type Header struct {
	Name   string
	Quoted bool // "x", not <x>
}

// Scan reads the directives of a source, whatever the conditions around them.
func Scan(text string) Unit {
	s := scanner{text: text}
	s.all()
	return s.unit
}

// scanner reads a text from one line to the next.
type scanner struct {
	text string
	at   int
	unit Unit
}

// all reads the whole text. Module directives are lines of their own.
func (s *scanner) all() {
	first := true // in the line
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '\n':
			s.at++
			first = true
		case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v':
			s.at++
		case s.splice():
		case s.comment():
		case first && (c == 'i' || c == 'm' || c == 'e'):
			s.directive()
			first = false
		case c == '"' || c == '\'':
			s.literal(c)
			first = false
		default:
			s.at++
			first = false
		}
	}
}

// splice skips a line continuation.
func (s *scanner) splice() bool {
	rest := s.text[s.at:]
	switch {
	case strings.HasPrefix(rest, "\\\n"):
		s.at += 2
	case strings.HasPrefix(rest, "\\\r\n"):
		s.at += 3
	default:
		return false
	}
	return true
}

// comment skips a comment. The end of a line that ends it is left.
func (s *scanner) comment() bool {
	rest := s.text[s.at:]
	switch {
	case strings.HasPrefix(rest, "//"):
		for s.at < len(s.text) && s.text[s.at] != '\n' {
			if !s.splice() {
				s.at++
			}
		}
	case strings.HasPrefix(rest, "/*"):
		if n := strings.Index(rest[2:], "*/"); n >= 0 {
			s.at += n + 4
		} else {
			s.at = len(s.text)
		}
	default:
		return false
	}
	return true
}

// literal skips a string or a character constant, raw ones too, or one sign that is neither.
func (s *scanner) literal(quote byte) {
	before := s.text[:s.at]
	s.at++
	if quote == '\'' && len(before) > 0 && isWord(before[len(before)-1]) && !strings.HasSuffix(before, "u8") && !strings.HasSuffix(before, "L") &&
		!strings.HasSuffix(before, "U") && !strings.HasSuffix(before, "u") {
		return // between digits
	}
	if quote == '"' && strings.HasSuffix(before, "R") {
		if n := strings.IndexByte(s.text[s.at:min(len(s.text), s.at+17)], '('); n >= 0 {
			end := ")" + s.text[s.at:s.at+n] + "\""
			if k := strings.Index(s.text[s.at:], end); k >= 0 {
				s.at += k + len(end)
				return
			}
		}
	}
	for s.at < len(s.text) && s.text[s.at] != '\n' {
		switch c := s.text[s.at]; {
		case c == '\\' && s.at+1 < len(s.text):
			s.at += 2
		case c == quote:
			s.at++
			return
		default:
			s.at++
		}
	}
}

// blanks skips white space, comments and line continuations.
func (s *scanner) blanks() {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == ' ' || c == '\t' || c == '\r' || s.splice() || strings.HasPrefix(s.text[s.at:], "/*") && s.comment():
			if c == ' ' || c == '\t' || c == '\r' {
				s.at++
			}
		default:
			return
		}
	}
}

// word reads a word.
func (s *scanner) word() string {
	from := s.at
	for s.at < len(s.text) && isWord(s.text[s.at]) {
		s.at++
	}
	return s.text[from:s.at]
}

// directive reads a line that may be a module directive.
func (s *scanner) directive() {
	w := s.word()
	export := w == "export"
	if export {
		s.blanks()
		w = s.word()
	}
	if w != "import" && w != "module" {
		return
	}
	s.blanks()
	if w == "import" {
		s.imported()
		return
	}
	name := s.name()
	switch {
	case name == "" || name[0] == ':' || name[0] == '.': // of the global fragment, or the private one
		return
	case s.unit.Module != "" && s.unit.Module != name:
		s.unit.Unsure = true
	}
	part := strings.Contains(name, ":")
	if s.unit.Module == name && s.unit.Writes != (export || part) {
		s.unit.Unsure = true
	}
	s.unit.Module, s.unit.Writes = name, export || part
	if !s.unit.Writes {
		s.add(name)
	}
}

// imported reads what follows the word import.
func (s *scanner) imported() {
	if s.at == len(s.text) {
		return
	}
	if c := s.text[s.at]; c == '<' || c == '"' {
		end := byte('>')
		if c == '"' {
			end = c
		}
		rest := s.text[s.at+1:]
		if n := strings.IndexAny(rest, string(end)+"\n"); n > 0 && rest[n] == end {
			s.unit.Headers = append(s.unit.Headers, Header{rest[:n], c == '"'})
			s.at += n + 2
		}
		return
	}
	name := s.name()
	if strings.HasPrefix(name, ":") {
		module, _, _ := strings.Cut(s.unit.Module, ":")
		name = module + name
	}
	if name != "" && name[0] != ':' {
		s.add(name)
	}
}

// name reads the name of a module, and skips the blanks in it. It returns "" if the line is no directive.
func (s *scanner) name() string {
	var name []byte
	for s.blanks(); s.at < len(s.text); s.blanks() {
		c := s.text[s.at]
		switch {
		case isWord(c):
			if len(name) > 0 && isWord(name[len(name)-1]) {
				return "" // two words
			}
			name = append(name, s.word()...)
		case c == '.' || c == ':':
			if len(name) > 0 && name[len(name)-1] == ':' {
				return "" // a scope
			}
			name = append(name, c)
			s.at++
		case c == ';' || c == '[' || c == '\n':
			return string(name)
		default:
			return ""
		}
	}
	return string(name)
}

// add records an import once.
func (s *scanner) add(name string) {
	for _, have := range s.unit.Imports {
		if have == name {
			return
		}
	}
	s.unit.Imports = append(s.unit.Imports, name)
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '$' || c >= 0x80
}
