package sources

import (
	"bytes"
	"slices"
	"syscall"
)

// maxAliases bounds the other names for __has_include in one compile.
const maxAliases = 32

// Alias records another name for __has_include:
//
//	#define HAS_INCLUDE      __has_include
//	#define HAS_INCLUDE_(x)  __has_include(x)
//
// It may be used in a file that was scanned before.
func (p *pack) Alias(name string) {
	if !slices.Contains(p.others, name) {
		p.others = append(p.others, name)
	}
}

// passesOn reports whether a macro with the parameters params, "(x) ...", passes on its only one: operand is
// "x)...".
func passesOn(params, operand []byte) bool {
	x, rest := cutWord(skipBlank(params[1:]))
	if after, ok := bytes.CutPrefix(rest, []byte("...")); ok && len(x) == 0 {
		x, rest = []byte("__VA_ARGS__"), after
	}
	if rest = skipBlank(rest); len(x) == 0 || len(rest) == 0 || rest[0] != ')' {
		return false
	}
	y, rest := cutWord(operand)
	rest = skipBlank(rest)
	return bytes.Equal(x, y) && len(rest) > 0 && rest[0] == ')'
}

// scanAliases looks for the other names in all files, including those already written. It may find further
// names.
func (p *pack) scanAliases() error {
	for i := 0; i < len(p.others); i++ {
		if i == maxAliases {
			return ErrHasInclude
		}
		// One by one: hardly any compile has more than one.
		at := p.o.Off
		for k := range p.Files {
			f := &p.Files[k]
			if f.Len == 0 {
				continue
			}
			b, err := p.content(at, f.Len)
			if err != nil {
				return err
			}
			if err := NewText(f.Name, b, p.o.Asm).Uses(p.others[i], p); err != nil {
				return err
			}
			at += f.Len
		}
	}
	return nil
}

// Uses tells n what t asks by a macro that stands for __has_include.
func (t *Text) Uses(macro string, n Notes) error {
	if err := t.uses(macro, nil, n); err != nil {
		return err
	}
	whole, cuts := joinCut(t.b)
	if len(cuts) == 0 {
		return nil
	}
	x := NewText(t.name, whole, t.asm)
	x.realDir = t.realDir
	return x.uses(macro, cuts, n)
}

// uses does that for the words of t that a line continuation in cuts splits; nil: all words.
func (t *Text) uses(macro string, cuts []int, n Notes) error {
	for from := 0; ; {
		i := bytes.Index(t.b[from:], []byte(macro))
		if i < 0 {
			return nil
		}
		at := from + i
		from = at + len(macro)
		if k, _ := slices.BinarySearch(cuts, at+1); cuts != nil && (k == len(cuts) || cuts[k] >= from) {
			continue
		}
		if is := t.place(at); is == inCode || is == unclear {
			if err := t.asks(at, t.b[from:], false, n); err != nil {
				return err
			}
		}
	}
}

// content returns n packed bytes at off of the slot. While they are in the buffer, it returns the buffer's own
// memory.
func (p *pack) content(off, n uint64) ([]byte, error) {
	if off >= p.base {
		return p.buf[off-p.base:][:n], nil
	}
	b := make([]byte, n)
	for done := 0; done < len(b); {
		m, err := syscall.Pread(p.o.FD, b[done:], int64(off)+int64(done))
		switch {
		case err == syscall.EINTR:
		case err != nil || m == 0:
			return nil, ErrTooBig
		default:
			done += m
		}
	}
	return b, nil
}
