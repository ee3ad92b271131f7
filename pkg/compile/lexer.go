package compile

import "bytes"

// lexer splits preprocessed text into tokens, skipping system headers, directives
// and comments. Columns count from 0, tabs go to multiples of 8.
type lexer struct {
	text  []byte
	at    int
	line  int
	start int  // of the line
	fresh bool // only blanks so far on the line
}

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenKeyword
	tokenOther
)

type token struct {
	kind  tokenKind
	word  keyword
	punct byte // of tokenOther; 0 for literals
	at    int
	line  int
	start int // of its line
}

type keyword uint8

const (
	wordOther keyword = iota
	wordIf
	wordElse
	wordFor
	wordWhile
	wordDo
	wordSwitch
)

// next reads one token.
func (l *lexer) next() token {
	for l.at < len(l.text) {
		c := l.text[l.at]
		switch {
		case c == '\n':
			l.at++
			l.newline()
		case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v':
			l.at++
		case c == '\\' && l.at+1 < len(l.text) && l.text[l.at+1] == '\n':
			l.at += 2
			l.line++
			l.start = l.at
		case c == '#' && l.fresh:
			l.directive()
		case c == '/' && l.at+1 < len(l.text) && l.text[l.at+1] == '/':
			l.skipLine()
		case c == '/' && l.at+1 < len(l.text) && l.text[l.at+1] == '*':
			l.skipTo(l.at+2, []byte("*/"))
		default:
			return l.token(c)
		}
	}
	return token{kind: tokenEnd, at: l.at, line: l.line}
}

func (l *lexer) newline() {
	l.line++
	l.start, l.fresh = l.at, true
}

func (l *lexer) token(c byte) token {
	t := token{kind: tokenOther, at: l.at, line: l.line, start: l.start}
	l.fresh = false
	switch {
	case c == '"' || c == '\'':
		l.literal(c)
	case '0' <= c && c <= '9':
		l.number()
	case isWord(c):
		for l.at < len(l.text) && isWord(l.text[l.at]) {
			l.at++
		}
		t.kind = tokenWord
		w := l.text[t.at:l.at]
		if len(w) > len("switch") {
			return t
		}
		switch string(w) {
		case "if":
			t.kind, t.word = tokenKeyword, wordIf
		case "else":
			t.kind, t.word = tokenKeyword, wordElse
		case "for":
			t.kind, t.word = tokenKeyword, wordFor
		case "while":
			t.kind, t.word = tokenKeyword, wordWhile
		case "do":
			t.kind, t.word = tokenKeyword, wordDo
		case "switch":
			t.kind, t.word = tokenKeyword, wordSwitch
		case "R", "LR", "uR", "UR", "u8R":
			if l.at < len(l.text) && l.text[l.at] == '"' {
				l.rawString()
				t.kind = tokenOther
			}
		}
	default:
		l.at++
		t.punct = c
	}
	return t
}

// column returns the column of a token.
func (l *lexer) column(t token) int { return columns(l.text[t.start:t.at]) }

// indent returns the column of the first token on t's line.
func (l *lexer) indent(t token) int {
	line := l.text[t.start : t.at+1]
	return columns(line[:len(line)-len(bytes.TrimLeft(line, " \t\f\v"))])
}

func columns(s []byte) int {
	n := 0
	for _, c := range s {
		if c == '\t' {
			n |= 7
		}
		n++
	}
	return n
}

// literal skips a string or character constant. An unterminated one ends with its line.
func (l *lexer) literal(quote byte) {
	for l.at++; l.at < len(l.text); l.at++ {
		switch l.text[l.at] {
		case quote:
			l.at++
			return
		case '\\':
			if l.at++; l.at < len(l.text) && l.text[l.at] == '\n' {
				l.line++
				l.start = l.at + 1
			}
		case '\n':
			return
		}
	}
	l.at = min(l.at, len(l.text))
}

// rawString skips the rest of R"delimiter( ... )delimiter".
func (l *lexer) rawString() {
	open := bytes.IndexByte(l.text[l.at:], '(')
	if open < 0 || open > 17 {
		l.literal('"')
		return
	}
	end := append([]byte{')'}, l.text[l.at+1:l.at+open]...)
	l.skipTo(l.at+open+1, append(end, '"'))
}

// number skips a number, including the ' that C++ allows in it.
func (l *lexer) number() {
	for ; l.at < len(l.text); l.at++ {
		c := l.text[l.at]
		if !isWord(c) && c != '.' && (c != '\'' || l.at+1 == len(l.text) || !isWord(l.text[l.at+1])) {
			return
		}
	}
}

// skipTo skips past the next occurrence of end at or after from, counting lines.
func (l *lexer) skipTo(from int, end []byte) {
	i := bytes.Index(l.text[min(from, len(l.text)):], end)
	to := len(l.text)
	if i >= 0 {
		to = from + i + len(end)
	}
	if n := bytes.Count(l.text[l.at:to], []byte{'\n'}); n > 0 {
		l.line += n
		l.start = l.at + bytes.LastIndexByte(l.text[l.at:to], '\n') + 1
	}
	l.at = to
}

// skipLine skips to the end of the line and of its continuation lines.
func (l *lexer) skipLine() {
	for {
		i := bytes.IndexByte(l.text[l.at:], '\n')
		if i < 0 {
			l.at = len(l.text)
			return
		}
		l.at += i
		if i == 0 || l.text[l.at-1] != '\\' {
			return
		}
		l.at++
		l.newline()
	}
}

// directive skips a line that begins with #. A marker that enters a system header also skips
// everything up to the next marker that does not.
func (l *lexer) directive() {
	for {
		from := l.at
		l.skipLine()
		line := l.text[from:l.at]
		if len(line) < 3 || line[1] != ' ' || line[2] < '0' || line[2] > '9' {
			return
		}
		quote := bytes.LastIndexByte(line, '"')
		if quote < 0 || !bytes.Contains(line[quote:], []byte(" 3")) {
			return
		}
		for {
			i := bytes.Index(l.text[l.at:], []byte("\n# "))
			if i < 0 {
				l.at = len(l.text)
				return
			}
			l.at += i + 1
			if l.at+2 < len(l.text) && '0' <= l.text[l.at+2] && l.text[l.at+2] <= '9' {
				break
			}
		}
		l.newline()
	}
}
