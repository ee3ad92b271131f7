package sources

import (
	"bytes"
	"strconv"
	"strings"
)

// Reason is why a compile must run here: a word for "not-reproducible:".
type Reason string

func (r Reason) Error() string { return string(r) }

// Reasons.
const (
	ErrTooBig     = Reason("too-big") // not reproducible is the wrong word for it
	ErrChanged    = Reason("changed")
	ErrFile       = Reason("file")
	ErrPaths      = Reason("paths")
	ErrPCH        = Reason("pch")
	ErrTime       = Reason("time")
	ErrHasInclude = Reason("has-include")
	ErrIncbin     = Reason("incbin")
	ErrPragma     = Reason("pragma")
)

// text is one file while it is looked at.
type text struct {
	name    string
	dir     string // of name, with a slash at its end; or empty
	realDir string // the same of what name, a link, leads to; or dir
	b       []byte
	asm     bool // assembly: comments are others
	defined [3]bool
}

func newText(name string, b []byte, asm bool) *text {
	dir := name[:strings.LastIndexByte(name, '/')+1]
	return &text{name: name, dir: dir, realDir: dir, b: b, asm: asm}
}

// scan looks for what a list of files cannot know. file is what name leads to.
func (p *pack) scan(name, file string, b []byte) error {
	t := newText(name, b, p.o.Asm)
	t.realDir = file[:strings.LastIndexByte(file, '/')+1]
	var err error
	p.finder.find(b, func(tok token, at int) bool {
		err = p.judge(t, tok, at)
		return err == nil
	})
	if err == nil {
		p.marks(t)
	}
	if _, once := p.onces[base(name)]; once {
		p.noteOnce(file)
	}
	return err
}

// judge looks at one token.
func (p *pack) judge(t *text, tok token, at int) error {
	after := t.b[at+len(tokenWords[tok].text):]
	switch tok {
	case tokTime, tokDate, tokTimestamp:
		return p.clock(t, tok, at, after)
	case tokHasInclude, tokHasEmbed:
		return p.hasInclude(t, tok, at, after)
	case tokIncbin, tokAsmInclude:
		return p.assembler(t, tok, at, after)
	case tokDependency, tokPCH:
		before := bytes.TrimRight(t.b[max(0, at-16):at], " \t")
		if bytes.HasSuffix(before, []byte("GCC")) && t.place(at) != inComment {
			return ErrPragma // it compares the times of files, or reads one
		}
	case tokOnce:
		p.noteOnce(t.name)
	case tokImport:
		p.imports = true
	}
	return nil
}

func (t *text) place(at int) place {
	if t.asm {
		return inCode
	}
	return placeOf(t.b, at)
}

// clock judges __TIME__ and the like: the moment of the compile is another one over
// there. A name that the command or this file defines is a macro like any other.
func (p *pack) clock(t *text, tok token, at int, after []byte) error {
	if p.o.Clock[tok] || at > 0 && isWord(t.b[at-1]) || len(after) > 0 && isWord(after[0]) {
		return nil
	}
	switch before := bytes.TrimRight(t.b[max(0, at-32):at], " \t"); {
	case bytes.HasSuffix(before, []byte("define")):
		t.defined[tok] = true
		return nil
	case bytes.HasSuffix(before, []byte("undef")):
		t.defined[tok] = false
		return nil
	}
	if t.defined[tok] || t.place(at) != inCode {
		return nil
	}
	return ErrTime
}

// hasInclude judges __has_include(<x>): a file that is there and is not read is not
// in the list. Wherever the compiler may look, what exists is packed.
func (p *pack) hasInclude(t *text, tok token, at int, after []byte) error {
	if tok == tokHasInclude {
		after = bytes.TrimPrefix(after, []byte("_next"))
	}
	return p.asks(t, at, after, tok == tokHasEmbed)
}

// asks judges a word that asks for a file, at a place in t and with what follows it.
// embed: what is in the file counts, too.
func (p *pack) asks(t *text, at int, after []byte, embed bool) error {
	if at > 0 && isWord(t.b[at-1]) || len(after) > 0 && isWord(after[0]) {
		return nil
	}
	kind, rest := directive(t.b, at)
	define := string(kind) == "define"
	var macro, params []byte // that this defines; params from the parenthesis on, if it has some
	if define {
		macro, params = cutWord(skipBlank(rest))
		if len(macro) > 0 && &macro[0] == &t.b[at] {
			return nil // it is what is defined
		}
		if len(params) == 0 || params[0] != '(' {
			params = nil
		}
	}
	operand := skipBlank(after)
	if len(operand) > 0 && operand[0] == '(' {
		operand = skipBlank(operand[1:])
	} else if len(operand) == 0 || operand[0] != '<' && operand[0] != '"' {
		if !define || t.place(at) == inComment {
			return nil // is it defined?
		}
		if params != nil || embed {
			return ErrHasInclude
		}
		p.alias(macro)
		return nil
	}
	name, quoted, ok := headerName(operand)
	if ok && params == nil {
		return p.candidates(t, name, quoted, embed)
	}
	switch {
	case t.place(at) == inComment:
		return nil
	case params != nil && !embed && passesOn(params, operand):
		p.alias(macro)
		return nil
	}
	return ErrHasInclude
}

// headerName reads <name> or "name".
func headerName(b []byte) (name string, quoted, ok bool) {
	if len(b) < 3 || b[0] != '<' && b[0] != '"' {
		return "", false, false
	}
	end := byte('>')
	if b[0] == '"' {
		end = '"'
	}
	n := bytes.IndexAny(b[1:min(len(b), 4096)], string([]byte{end, '\n'}))
	if n <= 0 || b[1+n] != end {
		return "", false, false
	}
	return string(b[1 : 1+n]), end == '"', true
}

// candidates packs every file that a header's name in t may mean. content: also
// what is in it.
func (p *pack) candidates(t *text, name string, quoted, content bool) error {
	if name[0] == '/' {
		return p.candidate(name, content)
	}
	if quoted {
		for _, dir := range [...]string{t.dir, t.realDir} {
			if err := p.candidate(dir+name, content); err != nil {
				return err
			}
		}
	}
	// The rest of the search is the same wherever the name stands.
	key := "<" + name
	if content {
		key = "@" + name
	}
	if p.wasAsked(key) {
		return nil
	}
	dirs, known := p.searchList()
	if !known {
		return ErrHasInclude
	}
	for _, dir := range dirs {
		if err := p.candidate(join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}

// wasAsked says whether it was asked for key before.
func (p *pack) wasAsked(key string) bool {
	_, was := p.asked[key]
	p.asked[key] = struct{}{}
	return was
}

// join is the name of a file in dir, as a compiler spells it.
func join(dir, name string) string {
	switch {
	case dir == "." || dir == "":
		return "./" + name
	case dir[len(dir)-1] == '/':
		return dir + name
	}
	return dir + "/" + name
}

// assembler judges .incbin and .include: the assembler reads a file. They stand in
// the strings of an asm statement, or for themselves in assembly.
func (p *pack) assembler(t *text, tok token, at int, after []byte) error {
	if len(after) > 0 && isWord(after[0]) {
		return nil
	}
	rest := bytes.TrimLeft(after, " \t")
	escaped := bytes.HasPrefix(rest, []byte(`\"`))
	if escaped {
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0] != '"' {
		// A member of that name, a word in a comment, a name that is made of macros.
		if tok == tokAsmInclude && (len(rest) == 0 || bytes.IndexByte([]byte(`\%<`), rest[0]) < 0) || t.place(at) == inComment {
			return nil
		}
		if tok == tokIncbin && !t.asm && t.place(at) == inCode {
			return nil
		}
		return ErrIncbin
	}
	name := rest[1:]
	n := bytes.IndexAny(name, "\"\n")
	if n >= 0 && name[n] == '"' {
		name = name[:n]
		if escaped {
			name = bytes.TrimSuffix(name, []byte(`\`))
		}
	}
	if n <= 0 || len(name) == 0 || bytes.ContainsAny(name, `\%`) || escaped && len(name) == n || !escaped && !t.asm && t.place(at) == inString && !p.rawString(t, at) {
		if t.place(at) == inComment {
			return nil
		}
		return ErrIncbin
	}
	if p.o.AsmDirs {
		return ErrIncbin
	}
	for _, dir := range append([]string{""}, p.o.Dirs...) {
		file := string(name)
		if dir != "" && file[0] != '/' {
			file = join(dir, file)
		}
		if err := p.further(file, tok == tokAsmInclude); err != nil {
			return err
		}
	}
	return nil
}

// rawString reports whether the string around at is one in which a quote stands for itself.
func (p *pack) rawString(t *text, at int) bool {
	i := bytes.LastIndex(t.b[:at], []byte(`R"`))
	return i >= 0 && at < literalEnd(t.b, i+1)
}

// marks looks at the directives that name files for messages or for data:
//
//	#line 7 "x.y"    # 7 "x.y"    #embed <x>
func (p *pack) marks(t *text) {
	for from := 0; ; {
		i := bytes.IndexByte(t.b[from:], '#')
		if i < 0 || from+i+8 > len(t.b) {
			return
		}
		at := from + i
		from = at + 1
		c := t.b[from]
		for n := from; c == ' ' || c == '\t'; {
			if n++; n >= len(t.b) {
				return
			}
			c, from = t.b[n], n
		}
		switch {
		case c != 'l' && c != 'e' && (c < '0' || c > '9') || !opensLine(t.b, at):
		case c != 'l' && c != 'e':
			p.mark(t, t.b[from:])
		case c == 'l' && bytes.HasPrefix(t.b[from:], []byte("line")) && from+4 < len(t.b) && !isWord(t.b[from+4]):
			p.mark(t, skipBlank(t.b[from+4:]))
		case c == 'e' && bytes.HasPrefix(t.b[from:], []byte("embed")):
			p.embed(t, skipBlank(t.b[from+5:]))
		}
	}
}

// opensLine reports whether there are only blanks before at in its line.
func opensLine(b []byte, at int) bool {
	for at--; at >= 0 && (b[at] == ' ' || b[at] == '\t'); at-- {
	}
	return at < 0 || b[at] == '\n'
}

// maxMarks is how many files may be packed for the sake of messages alone.
const maxMarks = 64

// mark packs the file that a line directive names: its lines are quoted in messages.
func (p *pack) mark(t *text, rest []byte) {
	n := 0
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	rest = skipBlank(rest[n:])
	if n > 0 && (len(rest) == 0 || rest[0] == '\n' || rest[0] == '\r' || rest[0] == '/') {
		return // a number alone
	}
	name, quoted, ok := headerName(rest)
	if n == 0 || !ok || !quoted {
		p.Unsure = p.Unsure || len(rest) > 0 && (isWord(rest[0]) || rest[0] == '"') // a macro, perhaps
		return
	}
	if strings.IndexByte(name, '\\') >= 0 {
		var err error
		if name, err = strconv.Unquote(`"` + name + `"`); err != nil {
			p.Unsure = true
			return
		}
	}
	if name[0] == '<' || p.known(name) {
		return
	}
	if p.marked >= maxMarks {
		p.Unsure = true
		return
	}
	p.marked++
	if p.further(name, false) != nil {
		p.Unsure = true
	}
}

// embed packs what #embed may read. Compilers list it, those that we have seen.
func (p *pack) embed(t *text, rest []byte) {
	if name, quoted, ok := headerName(rest); ok && p.candidates(t, name, quoted, true) != nil {
		p.Unsure = true
	}
}
