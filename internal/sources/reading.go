package sources

import "bytes"

// place is how a compiler reads a place in a text.
type place uint8

const (
	inCode place = iota
	inComment
	inString
	unclear // compilers, or their standards, differ
)

// reading finds out what places of a text are, as long as all compilers must agree. If asked in the order
// of the text, it reads the text once. What can be read in two ways is unclear: to the end of its line, as
// after a quote that is not closed or may be a digit separator; or to the end of the text, where it could
// open or close a comment, or makes the line itself doubtful (trigraphs, blanks after a backslash, a lone
// carriage return). A text that may be C or C++ gets two readings, with and without raw strings.
type reading struct {
	text []byte
	raws bool // strings may be raw

	from, end int // extent of what was read last
	kind      place
	raw       bool // it is a raw string

	line      int  // start of the line of end, including the lines that it continues
	angle     int  // its last < not followed by >, or -1
	known     bool // directive is valid
	directive bool // the line is a directive
}

// place returns what at is in.
func (r *reading) place(at int) place {
	if at < r.from || r.end == 0 {
		*r = reading{text: r.text, raws: r.raws, angle: -1}
		if bytes.Contains(r.text, []byte("??/")) || bytes.Count(r.text, []byte("\r")) != bytes.Count(r.text, []byte("\r\n")) {
			r.lose()
		}
	}
	for r.end <= at && r.end < len(r.text) {
		r.next()
	}
	return r.kind
}

// lose gives up on the rest of the text.
func (r *reading) lose() { r.from, r.end, r.kind = r.end, len(r.text), unclear }

// next reads a comment, a string, or code up to the next one.
func (r *reading) next() {
	text, i := r.text, r.end
	r.raw = false
	for ; i < len(text); i++ {
		switch c := text[i]; c {
		case '\n':
			if !continued(text, i) {
				r.line, r.angle, r.known = i+1, -1, false
			}
			continue
		case '<':
			r.angle = i
			continue
		case '>':
			r.angle = -1
			continue
		case '\\':
			if !oddCut(text[i:]) {
				continue
			}
		case '*':
			if !bytes.HasPrefix(text[i+1:], []byte("/")) {
				continue
			}
		case '/':
			if rest := text[i+1:]; len(rest) == 0 || rest[0] != '/' && rest[0] != '*' && !cut(rest) {
				continue
			}
		case '"', '\'':
		default:
			continue
		}
		break
	}
	if i > r.end || i == len(text) {
		r.from, r.end, r.kind = r.end, i, inCode
		return
	}
	switch c := text[i]; {
	case c == '"' || c == '\'':
		r.literal(c)
	case c == '/' && text[i+1] == '/':
		end := lineEnd(text, i)
		if s := text[i:min(len(text), end+1)]; r.inName() || hasOddCut(s) || bytes.Contains(s, []byte("*/")) {
			r.lose()
			return
		}
		r.from, r.end, r.kind = i, end, inComment
	case c == '/' && text[i+1] == '*':
		end := len(text)
		body := text[i+2:]
		if n := bytes.Index(body, []byte("*/")); n >= 0 {
			body, end = body[:n], i+2+n+2
		}
		if r.inName() || endsInPieces(body) {
			r.lose()
			return
		}
		r.from, r.end, r.kind = i, end, inComment
	default:
		r.lose() // the end of a comment whose start was not seen, or something split by continuations
	}
}

// literal reads a string or a character constant.
func (r *reading) literal(quote byte) {
	text, i := r.text, r.end
	before := word(text, i)
	if i > 0 && text[i-1] == '\n' && continued(text, i-1) {
		r.lose() // it may be raw
		return
	}
	if r.raws && quote == '"' && bytes.HasSuffix(before, []byte("R")) {
		switch end, ok := rawEnd(text, i); {
		case ok:
			r.from, r.end, r.kind, r.raw = i, end, inString, true
			return
		case isRaw(text, i):
			r.lose()
			return
		}
	}
	end, closed := plainEnd(text, i)
	odd := !closed || bytes.IndexByte(text[i:end], '\\') >= 0 && r.isDirective() || r.inName()
	if quote == '\'' && !odd {
		switch string(before) {
		case "", "L", "u", "U", "u8":
		default:
			odd = true // perhaps a digit separator
		}
	}
	if !odd {
		if hasOddCut(text[i:end]) {
			r.lose()
			return
		}
		r.from, r.end, r.kind = i, end, inString
		return
	}
	end = lineEnd(text, i)
	s := text[i:min(len(text), end+1)]
	if hasOddCut(s) || bytes.Contains(s, []byte("/*")) || bytes.Contains(s, []byte("*/")) || r.raws && bytes.Contains(s, []byte(`R"`)) {
		r.lose()
		return
	}
	r.from, r.end, r.kind = i, end, unclear
}

// word returns the end of the word before i, as much of it as may be a string prefix.
func word(text []byte, i int) []byte {
	n := i
	for n > max(0, i-4) && isWord(text[n-1]) {
		n--
	}
	return text[n:i]
}

// isDirective reports whether the current line is a directive.
func (r *reading) isDirective() bool {
	if !r.known {
		line := skipSpace(r.text[r.line:])
		r.known, r.directive = true, bytes.HasPrefix(line, []byte("#")) || bytes.HasPrefix(line, []byte("%:")) || bytes.HasPrefix(line, []byte("??="))
	}
	return r.directive
}

// inName reports whether what comes next may be within a header's name in <>.
func (r *reading) inName() bool {
	return r.angle >= 0 && r.isDirective() && bytes.IndexByte(r.text[r.end:lineEnd(r.text, r.end)], '>') >= 0
}

// oddCut reports whether s begins with a line continuation in a form that not all standards accept.
func oddCut(s []byte) bool { return cut(s) && s[1] != '\n' && s[1] != '\r' }

// hasOddCut reports whether s has such a continuation, or one after another backslash.
func hasOddCut(s []byte) bool {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return false
		}
		if s = s[i:]; oddCut(s) || len(s) > 2 && s[1] == '\\' && cut(s[1:]) {
			return true
		}
		s = s[1:]
	}
}

// endsInPieces reports whether the end sign of a comment may be split by a line continuation.
func endsInPieces(body []byte) bool {
	for {
		i := bytes.Index(body, []byte("*\\"))
		if i < 0 {
			return false
		}
		if body = body[i+1:]; cut(body) {
			return true
		}
	}
}
