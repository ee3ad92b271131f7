package compile

import "bytes"

// guards finds statements behind if, else, for, while and switch that a compiler
// would warn of by their place alone, which it does not do in text with line
// markers: gcc gives up -Wmisleading-indentation, clang -Wempty-body, at the
// first of them. It is not exact, but whatever the compilers warn of is found.
//
// Headers of the system are left out, as the compilers leave them out.
type guards struct {
	lexer
	family Family
	dos    []int // where the whiles of do ... while stand that have been met
}

// suspicious reports whether text has such a statement.
func suspicious(text []byte, f Family) bool {
	g := guards{lexer: lexer{text: text, fresh: true}, family: f}
	for {
		t := g.next()
		switch t.kind {
		case tokenEnd:
			return false
		case tokenKeyword:
			if g.check(t) {
				return true
			}
		}
	}
}

// check looks at one guard, and leaves the lexer where it was.
func (g *guards) check(guard token) bool {
	back := g.lexer
	defer func() { g.lexer = back }()
	switch guard.word {
	case wordDo:
		if end := g.statement(g.next()); end.word == wordWhile {
			g.dos = append(g.dos, end.at)
		}
		return false
	case wordWhile:
		for _, at := range g.dos {
			if at == guard.at {
				return false
			}
		}
	case wordSwitch:
		if g.family == GCC {
			return false
		}
	case wordOther:
		return false
	}
	last := guard // the token before the body
	body := g.next()
	if guard.word != wordElse {
		for body.kind == tokenWord || body.kind == tokenOther && body.punct == '!' { // constexpr, consteval, co_await
			body = g.next()
		}
		if body.kind != tokenOther || body.punct != '(' {
			return false
		}
		last = g.group()
		body = g.next()
	}
	if body.kind == tokenEnd || body.punct == '{' || guard.word == wordElse && body.word == wordIf {
		return false
	}
	empty := body.punct == ';'
	if g.family == Clang {
		if !empty || body.line != last.line || guard.word == wordElse {
			return false
		}
		next := g.next()
		if guard.word != wordFor && guard.word != wordWhile {
			return next.word != wordElse
		}
		return next.punct == '{' || next.kind != tokenEnd && g.column(next) > g.column(guard)
	}
	next := g.statement(body)
	if next.kind == tokenEnd || next.punct == '}' || next.punct == ';' || next.word == wordElse {
		return false
	}
	indent, column := g.indent(guard), g.column(next)
	switch {
	case next.line == body.line:
		return guard.line < body.line || g.column(guard) == indent
	case g.indent(next) < column:
		return false
	case empty:
		return column > indent || next.punct == '{' && column == indent
	}
	return column == g.column(body) && column != indent
}

// statement skips the statement that begins with t, and returns what follows.
func (g *guards) statement(t token) token {
	for depth := 0; depth < 1000; depth++ { // labels and nested guards
		switch {
		case t.kind == tokenEnd || t.punct == '}':
			return t
		case t.punct == ';':
			return g.next()
		case t.punct == '{':
			g.group()
			return g.next()
		case t.kind == tokenKeyword && t.word == wordDo:
			end := g.statement(g.next())
			if end.word != wordWhile {
				return end
			}
			g.dos = append(g.dos, end.at)
			t = end
			for t.kind != tokenEnd && t.punct != ';' && t.punct != '}' {
				if t = g.next(); t.punct == '(' {
					g.group()
				}
			}
			if t.punct == ';' {
				return g.next()
			}
			return t
		case t.kind == tokenKeyword && t.word == wordElse:
			t = g.next()
		case t.kind == tokenKeyword && t.word != wordOther:
			isIf := t.word == wordIf
			for t = g.next(); t.kind == tokenWord || t.punct == '!'; {
				t = g.next()
			}
			if t.punct != '(' {
				return t
			}
			g.group()
			t = g.statement(g.next())
			if !isIf || t.word != wordElse {
				return t
			}
			t = g.next()
		default:
			return g.expression(t)
		}
	}
	return token{kind: tokenEnd}
}

// expression skips to the end of anything else: behind its semicolon, or at the
// brace that closes the block around it. The block that a macro leads, as in
//
//	list_for_each(x, list) { ... }
//
// ends a statement too.
func (g *guards) expression(t token) token {
	plain := t.kind == tokenWord // only words and groups so far
	for ; ; t = g.next() {
		switch {
		case t.kind == tokenEnd || t.punct == '}':
			return t
		case t.punct == ';':
			return g.next()
		case t.punct == '{' && plain:
			g.group()
			return g.next()
		case t.punct == '(' || t.punct == '[' || t.punct == '{':
			g.group()
		case t.kind == tokenOther:
			plain = false
		}
	}
}

// group skips to the bracket that closes the one just read, and returns it.
func (g *guards) group() token {
	for depth := 1; ; {
		t := g.next()
		switch t.punct {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth == 0 {
				return t
			}
		}
		if t.kind == tokenEnd {
			return t
		}
	}
}

// lexer cuts preprocessed text into tokens, without system headers, directives
// and comments. Columns count from 0, tabs go to multiples of 8.
type lexer struct {
	text  []byte
	at    int
	line  int
	start int  // of the line
	fresh bool // nothing but blanks so far on the line
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

// column of a token.
func (l *lexer) column(t token) int { return columns(l.text[t.start:t.at]) }

// indent is the column of the first token on t's line.
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

// literal skips a string or character constant; one that is not closed ends
// with its line.
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

// number skips a number with the ' that C++ lets it hold.
func (l *lexer) number() {
	for ; l.at < len(l.text); l.at++ {
		c := l.text[l.at]
		if !isWord(c) && c != '.' && (c != '\'' || l.at+1 == len(l.text) || !isWord(l.text[l.at+1])) {
			return
		}
	}
}

// skipTo goes behind the next end at or after from, counting lines.
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

// skipLine goes to the end of the line, and of those that continue it.
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

// directive skips a line that begins with #; a marker that enters a system
// header takes with it all up to the next one that does not.
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
