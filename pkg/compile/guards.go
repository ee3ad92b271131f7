package compile

// guards finds statements after if, else, for, while and switch that a compiler would
// warn of just for their position. The compilers do not do that in text with line markers:
// at the first marker gcc gives up -Wmisleading-indentation, and clang -Wempty-body. The
// search is not exact, but finds all that the compilers warn of.
//
// System headers are left out, as the compilers leave them out.
type guards struct {
	lexer
	family Family
	dos    []int // positions of the whiles met so far that belong to do ... while
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

// check examines one guard, and leaves the lexer where it was.
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

// expression skips to the end of any other statement: past its semicolon, or to the brace
// that closes the enclosing block. A block led by a macro, as in
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
