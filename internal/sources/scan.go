package sources

import (
	"bytes"
	"slices"
	"strings"
)

// Reason is the reason why a compile must run here: a word to follow "not-reproducible:".
type Reason string

func (r Reason) Error() string { return string(r) }

// Reasons.
const (
	ErrTooBig     = Reason("too-big") // too big, rather than not reproducible
	ErrChanged    = Reason("changed")
	ErrFile       = Reason("file")
	ErrPaths      = Reason("paths")
	ErrPCH        = Reason("pch")
	ErrTime       = Reason("time")
	ErrHasInclude = Reason("has-include")
	ErrIncbin     = Reason("incbin")
	ErrPragma     = Reason("pragma")
)

// Text is one file while it is scanned.
type Text struct {
	name    string
	dir     string // of name, with a trailing slash; or empty
	realDir string // the same for the target of name, if that is a link; otherwise dir
	b       []byte
	asm     bool // assembly: comments look different
	defined [numClocks]bool

	plain, raw reading // of b, without and with raw strings
	condition  int     // end of the first #if, or of what looks like one; 0: not looked for yet
}

// NewText returns the text b of the file name. asm says that it is assembly.
func NewText(name string, b []byte, asm bool) *Text {
	dir := name[:strings.LastIndexByte(name, '/')+1]
	return &Text{name: name, dir: dir, realDir: dir, b: b, asm: asm, plain: reading{text: b}, raw: reading{text: b, raws: true}}
}

// Notes receives what a Scanner finds in a text that no list of files shows. The first error ends the
// scan.
type Notes interface {
	// Header is called with a header's name where a compiler tests whether the file exists
	// (__has_include), or with content reads it as data (#embed, __has_embed).
	Header(t *Text, name string, quoted, content bool) error
	// Assembly is called with a file that the assembler reads: as data (.incbin), or with more as
	// assembly (.include).
	Assembly(name string, more bool) error
	// Line is called with a file that a line directive names: messages may quote it. Unsure says that
	// there may be further such files.
	Line(name string)
	Unsure()
	// Alias is called with a macro that stands for __has_include.
	Alias(macro string)
	// Once says that t has #pragma once, Import that some text has an #import.
	Once(t *Text)
	Import()
	// System says that the text may say of itself that it is one of the system's headers.
	System()
	// Renames says that a text may make header names stand for others.
	Renames()
	// Clock reports the use of a macro with the time of the compile that the text has not defined
	// itself.
	Clock(c Clock) error
	// Doubt reports anything else about which a scan cannot be certain.
	Doubt(r Reason) error
}

// Clock is a macro whose value is the time of the compile.
type Clock uint8

// Clocks, in the order of Options.Clock.
const (
	Time Clock = iota
	Date
	Timestamp
	numClocks
)

// Scanner scans texts. It is for one goroutine at a time.
type Scanner struct{ finder finder }

// NewScanner returns a Scanner.
func NewScanner() *Scanner {
	s := new(Scanner)
	s.finder.init()
	return s
}

// Scan scans t for what a list of files cannot show, and tells n.
func (s *Scanner) Scan(t *Text, n Notes) error { return s.finder.scan(t, n) }

func (f *finder) scan(t *Text, n Notes) error {
	var err error
	f.find(t.b, func(tok token, at int) bool {
		err = t.judge(tok, at, n)
		return err == nil
	})
	if err == nil {
		err = f.scanCut(t, n)
	}
	if err == nil {
		t.lines(n)
	}
	return err
}

// scanCut looks for tokens that are split by a line continuation.
func (f *finder) scanCut(t *Text, n Notes) error {
	whole, cuts := joinCut(t.b)
	if len(cuts) == 0 {
		return nil
	}
	x := NewText(t.name, whole, t.asm)
	x.realDir = t.realDir
	var err error
	f.find(whole, func(tok token, at int) bool {
		i, _ := slices.BinarySearch(cuts, at+1)
		if i < len(cuts) && cuts[i] < at+len(tokenWords[tok].text) {
			err = x.judge(tok, at, n)
		}
		return err == nil
	})
	return err
}

// judge examines one token.
func (t *Text) judge(tok token, at int, n Notes) error {
	after := t.b[at+len(tokenWords[tok].text):]
	switch tok {
	case tokTime, tokDate, tokTimestamp:
		return t.clock(tok, at, after, n)
	case tokHasInclude:
		return t.asks(at, bytes.TrimPrefix(after, []byte("_next")), false, n)
	case tokHasEmbed:
		return t.asks(at, after, true, n)
	case tokIncbin, tokAsmInclude:
		return t.assembler(tok, at, after, n)
	case tokDependency, tokPCH:
		before := bytes.TrimRight(t.b[max(0, at-16):at], " \t")
		if bytes.HasSuffix(before, []byte("GCC")) && t.place(at) != inComment {
			return n.Doubt(ErrPragma) // it compares the times of files, or reads one
		}
	case tokOnce:
		n.Once(t)
	case tokImport:
		n.Import()
	case tokIncludeAlias:
		n.Renames()
	case tokSystem:
		n.System()
	}
	return nil
}

// place returns what at is in. It is slow, and meant for the few places that would keep a compile here.
func (t *Text) place(at int) place {
	if t.asm {
		return inCode
	}
	p := t.plain.place(at)
	if p != t.raw.place(at) {
		return unclear
	}
	return p
}

// inRaw reports whether at is in a raw string. If the compiler knows no raw strings, the place is in the
// same string, or the opening is an error.
func (t *Text) inRaw(at int) bool {
	if t.raw.place(at) != inString || !t.raw.raw {
		return false
	}
	_, closed := plainEnd(t.b, t.raw.from)
	return !closed || t.plain.place(at) == inString && t.plain.from == t.raw.from
}

// clock examines __TIME__ and the like: the host compiles at another moment. If the command or this file
// defines the name, it is a macro like any other.
func (t *Text) clock(tok token, at int, after []byte, n Notes) error {
	if at > 0 && isWord(t.b[at-1]) || len(after) > 0 && isWord(after[0]) {
		return nil
	}
	switch kind, rest := directive(t.b, at); {
	case len(kind) == 0 || len(skipBlank(rest)) != len(t.b)-at:
	case string(kind) == "define":
		// Under a condition it may not count.
		t.defined[tok] = t.place(at) == inCode && t.certainAt(at)
		return nil
	case string(kind) == "undef":
		t.defined[tok] = false
		return nil
	}
	if t.defined[tok] {
		return nil
	}
	// #pragma push_macro("__TIME__"), also in a _Pragma: its later value is not tracked.
	if before := bytes.TrimRight(t.b[max(0, at-32):at], "\"\\( \t"); bytes.HasSuffix(before, []byte("_macro")) && t.place(at) != inComment {
		return n.Clock(Clock(tok))
	}
	if p := t.place(at); p == inComment || p == inString {
		return nil
	}
	return n.Clock(Clock(tok))
}

// certainAt reports whether what is at at counts whatever the conditions: there is no #if before.
func (t *Text) certainAt(at int) bool {
	if t.condition == 0 {
		t.condition = 1 + len(t.b)
		for from := 0; ; {
			i := bytes.Index(t.b[from:], []byte("if"))
			if i < 0 {
				break
			}
			from += i + 2
			if before := bytes.TrimRight(t.b[:from-2], " \t\f\v"); len(before) == 0 || !isWord(before[len(before)-1]) {
				t.condition = from
				break
			}
		}
	}
	return at < t.condition
}

// asks examines __has_include(<x>), or another word that tests for a file, at at in t, with what follows
// it. embed says that the file's content counts, too.
func (t *Text) asks(at int, after []byte, embed bool, n Notes) error {
	if at > 0 && isWord(t.b[at-1]) || len(after) > 0 && isWord(after[0]) {
		return nil
	}
	kind, rest := directive(t.b, at)
	define := string(kind) == "define"
	var macro, params []byte // defined by this directive; params starts at the parenthesis, if there is one
	if define {
		macro, params = cutWord(skipBlank(rest))
		if len(macro) > 0 && &macro[0] == &t.b[at] {
			return nil // it is the name being defined
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
			return nil // a test whether it is defined
		}
		if testsDefined(t.b[:at]) {
			return nil
		}
		if params != nil || embed {
			return n.Doubt(ErrHasInclude)
		}
		n.Alias(string(macro))
		return nil
	}
	name, quoted, ok := headerName(operand)
	if ok && define && quoted && name[0] != '/' {
		ok = false // it is looked for beside the file that uses the macro
	}
	if ok && (params == nil || !mentions(params, name)) {
		return n.Header(t, name, quoted, embed)
	}
	switch {
	case t.place(at) == inComment:
		return nil
	case params != nil && !embed && passesOn(params, operand):
		n.Alias(string(macro))
		return nil
	}
	return n.Doubt(ErrHasInclude)
}

// testsDefined reports whether a word that follows before is the operand of the operator defined.
func testsDefined(before []byte) bool {
	before = bytes.TrimRight(before, " \t")
	before = bytes.TrimRight(bytes.TrimSuffix(before, []byte("(")), " \t")
	rest, ok := bytes.CutSuffix(before, []byte("defined"))
	return ok && (len(rest) == 0 || !isWord(rest[len(rest)-1]))
}

// mentions reports whether a word of a header's name may be one of the parameters "(x, ...".
func mentions(params []byte, name string) bool {
	end := bytes.IndexByte(params, ')')
	if end < 0 {
		return true
	}
	for len(name) > 0 {
		word, rest := cutWord([]byte(name))
		if len(word) > 0 && bytes.Contains(params[:end], word) {
			return true
		}
		name = string(rest[min(len(rest), 1):])
	}
	return false
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

// assembler examines .incbin and .include: the assembler reads a file. They are in the strings of an asm
// statement, or on their own in assembly.
func (t *Text) assembler(tok token, at int, after []byte, notes Notes) error {
	if len(after) > 0 && isWord(after[0]) {
		return nil
	}
	rest := bytes.TrimLeft(after, " \t")
	escaped := bytes.HasPrefix(rest, []byte(`\"`))
	if escaped {
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0] != '"' {
		// A struct member of that name, a word in a comment, or a name made by macros.
		if !t.asm && t.place(at) == inCode {
			// Before a word it will become a string.
			for rest = skipSpace(after); len(rest) > 0 && rest[0] == '\n'; {
				rest = skipSpace(rest[1:])
			}
			if len(rest) == 0 || !isWord(rest[0]) {
				return nil
			}
		} else if tok == tokAsmInclude && (len(rest) == 0 || bytes.IndexByte([]byte(`\%<`), rest[0]) < 0) || t.place(at) == inComment {
			return nil
		}
		return notes.Doubt(ErrIncbin)
	}
	name := rest[1:]
	n := bytes.IndexAny(name, "\"\n")
	closed := n >= 0 && name[n] == '"'
	if closed {
		name = name[:n]
		if escaped {
			name = bytes.TrimSuffix(name, []byte(`\`))
		}
	}
	if !closed || len(name) == 0 || bytes.ContainsAny(name, `\%`) || escaped && len(name) == n || !escaped && !t.asm && t.place(at) != inCode && !t.inRaw(at) {
		if t.place(at) == inComment {
			return nil
		}
		return notes.Doubt(ErrIncbin)
	}
	return notes.Assembly(string(name), tok == tokAsmInclude)
}
