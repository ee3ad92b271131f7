package compdb

import "strings"

// raw is a string as it stands in the text, without its quotes.
type raw string

// text returns what r means. A scanner lets only two escapes pass.
func (r raw) text() string {
	if strings.IndexByte(string(r), '\\') < 0 {
		return string(r)
	}
	out := make([]byte, 0, len(r))
	for i := 0; i < len(r); i++ {
		if r[i] == '\\' {
			i++
		}
		out = append(out, r[i])
	}
	return string(out)
}

// scanner reads JSON of a simple kind: ASCII, without tabulators, and with no escapes but \" and \\.
type scanner struct {
	text string
	at   int
	bad  bool // nothing is read any more
}

// next skips blanks and returns the character after them, or 0.
func (s *scanner) next() byte {
	s.blanks()
	if s.bad || s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

func (s *scanner) blanks() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n') {
		s.at++
	}
}

// take reads one character.
func (s *scanner) take(c byte) {
	if s.next() != c {
		s.bad = true
		return
	}
	s.at++
}

// list reads what is between two characters, with commas; each reads one of the elements.
func (s *scanner) list(first, last byte, each func()) {
	s.take(first)
	if s.next() == last {
		s.at++
		return
	}
	for !s.bad {
		each()
		if s.next() == last {
			s.at++
			return
		}
		s.take(',')
	}
}

// str reads a string.
func (s *scanner) str() raw {
	s.take('"')
	if s.bad {
		return ""
	}
	for i := s.at; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			r := raw(s.text[s.at:i])
			s.at = i + 1
			return r
		case c < ' ' || c > '~':
			s.bad = true
			return ""
		case c == '\\':
			if i++; i == len(s.text) || s.text[i] != '"' && s.text[i] != '\\' {
				s.bad = true
				return ""
			}
		}
	}
	s.bad = true
	return ""
}

// object reads an entry.
func (s *scanner) object() (o object) {
	s.list('{', '}', func() {
		key := s.str()
		s.take(':')
		var is uint8
		switch key {
		case "directory":
			is, o.directory = hasDirectory, s.str()
		case "file":
			is, o.file = hasFile, s.str()
		case "command":
			is, o.command = hasCommand, s.str()
		case "arguments":
			is = hasArguments
			s.list('[', ']', func() { o.arguments = append(o.arguments, s.str()) })
		case "output":
			is = hasOutput
			s.str()
		default: // clang takes such a file for none
			s.bad = true
		}
		s.bad = s.bad || o.has&is != 0
		o.has |= is
	})
	if o.has&^hasOutput != hasDirectory|hasFile|hasCommand && o.has&^hasOutput != hasDirectory|hasFile|hasArguments {
		s.bad = true
	}
	return o
}
