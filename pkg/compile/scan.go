package compile

import (
	"bytes"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// ScanText looks for what cannot travel, in the text that the local half wrote or in a
// source that is preprocessed already. It returns the reason to compile here, or "". It does
// not tell code from comments and strings, and so errs on the side of compiling here. dir is
// the working directory.
//
// Every pass searches for a few bytes; 10 MB take some milliseconds.
func (p *Plan) ScanText(text []byte, dir string) (why string) {
	if what := scanText(text, p.Source); what != "" {
		return reason.NotReproducible + what
	}
	if len(p.Precompiled(dir)) > 0 || p.Driver.Family == GCC && LoadsHeader(text) {
		return reason.NotReproducible + "pch"
	}
	if p.macros && p.Driver.Family == GCC && !p.Raw && !bytes.Contains(text, []byte("#define ")) {
		return reason.NotReproducible + "macros" // an older gcc, or the traditional preprocessor
	}
	if p.lto && p.Driver.Family == Clang && hasAsm(text) {
		return reason.NotReproducible + "lto"
	}
	if p.Driver.Family == Clang && !p.Raw && !p.rewrite && scan(text, "pragma ", func(at int) string { return expanded(text[at:]) }) != "" {
		return reason.NotReproducible + "pragma"
	}
	if p.Driver.Family == GCC && !p.Raw && (poisoned(text, dir) || swallowed(text, dir)) {
		return reason.NotReproducible + "pragma"
	}
	if p.places && suspicious(text, p.Driver.Family) {
		return reason.Diagnostics
	}
	return ""
}

// Precompiled returns the precompiled headers that clang may use in place of those that -include
// names: neither the text nor a list of files shows that. dir is the working directory.
func (p *Plan) Precompiled(dir string) (names []string) {
	if p.Driver.Family != Clang {
		return nil
	}
	for _, o := range p.options {
		if o.class != include || strings.Contains(o.words[0], "-imacros") {
			continue
		}
		name := o.arg
		if !strings.HasPrefix(name, "/") {
			name = dir + "/" + name
		}
		for _, suffix := range [...]string{".pch", ".gch"} {
			if syscall.Access(name+suffix, 0) == nil {
				names = append(names, name+suffix)
			}
		}
	}
	return names
}

// scanText returns the word after "not-reproducible:", or "".
func scanText(text []byte, source string) string {
	var c clock
	// On the host the text has the source's base name.
	c.named = source == base(source)
	if what := scan(text, "E__", func(at int) string { return c.judge(text, at+3) }); what != "" {
		return what
	}
	if what := scan(text, "STAMP__", func(at int) string { return c.judge(text, at+7) }); what != "" {
		return what
	}
	if what := scan(text, ".inc", func(at int) string { return assemblerFile(text[at:]) }); what != "" {
		return what
	}
	if what := scan(text, "GCC", func(at int) string { return pragma(text, at) }); what != "" {
		return what
	}
	// The first letter is left out, as it is the most frequent one there is.
	if what := scan(text, "mbed", func(at int) string { return embedded(text, at-1) }); what != "" {
		return what
	}
	return scan(text, "#undef ", func(at int) string { return popped(text, at) })
}

// scan calls judge with every position of token until judge returns a reason.
func scan(text []byte, token string, judge func(at int) string) string {
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(token))
		if i < 0 {
			return ""
		}
		if what := judge(from + i); what != "" {
			return what
		}
		from += i + len(token)
	}
}

// clockMacros stay in the text when directives alone are processed, and would then be
// expanded by the other machine.
var clockMacros = [...]struct{ name, what string }{
	{"__DATE__", "time"},
	{"__TIME__", "time"},
	{"__TIMESTAMP__", "time"},
	{"__BASE_FILE__", "base-file"},
}

// clock examines those macros.
type clock struct {
	named     bool // __BASE_FILE__ is the same on the host
	redefined [len(clockMacros)]bool
}

// judge examines an identifier that ends at end. A name that the text defines itself, as
// -D__DATE__= does, is a macro like any other.
func (c *clock) judge(text []byte, end int) string {
	if end < len(text) && isWord(text[end]) {
		return ""
	}
	for i, m := range clockMacros {
		start := end - len(m.name)
		if start < 0 || string(text[start:end]) != m.name || start > 0 && isWord(text[start-1]) {
			continue
		}
		switch directive := bytes.TrimRight(text[:start], " \t"); {
		case bytes.HasSuffix(directive, []byte("#define")):
			c.redefined[i] = true
		case m.what == "base-file" && c.named:
		case !c.redefined[i], bytes.HasSuffix(directive, []byte("#undef")):
			return m.what
		}
	}
	return ""
}

func isWord(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c >= 0x80
}

// assemblerFile examines ".inc...": the assembler's .incbin and .include read a file that only
// this machine has. A struct member of that name is not followed by a string.
func assemblerFile(rest []byte) string {
	for _, name := range [...]string{".incbin", ".include"} {
		if !bytes.HasPrefix(rest, []byte(name)) {
			continue
		}
		rest = rest[len(name):]
		if name == ".incbin" && (len(rest) == 0 || !isWord(rest[0])) {
			return "incbin"
		}
		for len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t') {
			rest = rest[1:]
		}
		if len(rest) > 0 && (rest[0] == '"' || rest[0] == '\\' || rest[0] == '%' || rest[0] == '<') {
			return "incbin"
		}
	}
	return ""
}

// hasAsm reports whether text has assembly whose position clang records: the offset in the text
// gets into bitcode. For a declaration's label it records none.
func hasAsm(text []byte) bool {
	return scan(text, "asm", func(at int) string {
		rest := bytes.TrimPrefix(text[at+len("asm"):], []byte("__"))
		if len(rest) > 0 && isWord(rest[0]) || at > 0 && text[at-1] != '_' && isWord(text[at-1]) {
			return ""
		}
		before := bytes.TrimRight(bytes.TrimRight(text[:at], "_"), " \t\n")
		rest = bytes.TrimLeft(rest, " \t\n_")
		switch {
		case bytes.HasPrefix(rest, []byte("volatile")), len(before) == 0, bytes.HasSuffix(before, []byte("else")), bytes.HasSuffix(before, []byte("do")):
			return "asm"
		case before[len(before)-1] == ')', isWord(before[len(before)-1]):
			return "" // a label
		}
		return "asm"
	}) != ""
}

// embedded examines "embed": the directive reads a file.
func embedded(text []byte, at int) string {
	if at < 0 || text[at] != 'e' {
		return ""
	}
	before := bytes.TrimRight(text[max(0, at-16):at], " \t")
	if after := text[at+len("embed"):]; len(before) > 0 && before[len(before)-1] == '#' && (len(after) == 0 || !isWord(after[0])) {
		return "embed"
	}
	return ""
}
