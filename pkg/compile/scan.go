package compile

import "bytes"

// ScanText looks for what cannot travel in the text that the local half wrote, or
// in a source that is preprocessed already: it returns the reason to compile here,
// or "". It does not tell code from comments and strings, so it errs on the side
// of compiling here.
//
// Every pass is a search for a few bytes; 10 MB take some milliseconds.
func (p *Plan) ScanText(text []byte) (reason string) {
	if what := scanText(text, p.Source); what != "" {
		return ReasonNotReproducible + what
	}
	if p.macros && p.Driver.Family == GCC && !p.Raw && !bytes.Contains(text, []byte("#define ")) {
		return ReasonNotReproducible + "macros" // an older gcc, or the traditional preprocessor
	}
	if p.lto && p.Driver.Family == Clang && hasAsm(text) {
		return ReasonNotReproducible + "lto"
	}
	if p.places && suspicious(text, p.Driver.Family) {
		return ReasonDiagnostics
	}
	return ""
}

// scanText returns the word behind "not-reproducible:", or "".
func scanText(text []byte, source string) string {
	var c clock
	// The text lies under the source's base name over there.
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
	if what := scan(text, "embed", func(at int) string { return embedded(text, at) }); what != "" {
		return what
	}
	return scan(text, "#undef ", func(at int) string { return popped(text, at) })
}

// scan calls judge with every place of token until it has a word.
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

// clockMacros are left in the text when directives alone are processed, and
// would be what the other machine makes of them.
var clockMacros = [...]struct{ name, what string }{
	{"__DATE__", "time"},
	{"__TIME__", "time"},
	{"__TIMESTAMP__", "time"},
	{"__BASE_FILE__", "base-file"},
}

// clock judges those macros.
type clock struct {
	named     bool // __BASE_FILE__ is the same over there
	redefined [len(clockMacros)]bool
}

// judge looks at an identifier that ends at end. A name that the text defines
// itself, as -D__DATE__= does, is a macro like any other.
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

// assemblerFile judges ".inc...": the assembler's .incbin and .include read a
// file that only this machine has. A member of that name has no string behind it.
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

// pragma judges "GCC" at a place in text.
//
// "target" and "optimize" change macros as they are met, but gcc -E does not
// heed them: a condition behind them may come out differently. The headers of
// the compiler itself are written so that this does not matter.
func pragma(text []byte, at int) string {
	rest := text[at+len("GCC"):]
	if len(rest) == 0 || rest[0] != ' ' && rest[0] != '\t' {
		return ""
	}
	rest = bytes.TrimLeft(rest[:min(len(rest), 64)], " \t")
	switch {
	case bytes.HasPrefix(rest, []byte("pch_preprocess")):
		return "pch"
	case bytes.HasPrefix(rest, []byte("target")), bytes.HasPrefix(rest, []byte("optimize")):
		if before := bytes.TrimRight(text[max(0, at-64):at], " \t"); !bytes.HasSuffix(before, []byte("pragma")) && !bytes.HasSuffix(before, []byte(`("`)) {
			return "" // prose
		}
		if !inSystemHeader(text[:at]) {
			return "pragma"
		}
	case bytes.HasPrefix(rest, []byte("diagnostic")):
		for _, w := range preprocessorWarnings {
			if bytes.Contains(rest, []byte(w)) && !bytes.Contains(rest, []byte("ignored")) {
				return "pragma"
			}
		}
	}
	return ""
}

// preprocessorWarnings are given by the half that runs here, or by neither, and
// gcc -E does not heed the pragmas that turn them on.
var preprocessorWarnings = [...]string{"-Wundef", "-Wexpansion-to-defined", "-Wendif-labels", "-Wunused-macros", "-Wcpp", "-Wmisleading-indentation"}

// popped judges an "#undef " that gcc -fdirectives-only wrote for a
//
//	#pragma pop_macro("X")
//
// It blanks the pragma, marks the line, and forgets to define the macro again:
//
//	|       |
//	|# 6 "a.c"|
//	|#undef X|
func popped(text []byte, at int) string {
	if at == 0 || text[at-1] != '\n' {
		return ""
	}
	line := bytes.LastIndexByte(text[:at-1], '\n') + 1
	marker := text[line : at-1]
	if len(marker) < 3 || marker[0] != '#' || marker[1] != ' ' || marker[2] < '0' || marker[2] > '9' || line == 0 {
		return ""
	}
	if flags := marker[bytes.LastIndexByte(marker, '"')+1:]; bytes.Contains(flags, []byte(" 1")) || bytes.Contains(flags, []byte(" 2")) {
		return "" // begin and end of a file
	}
	blank := text[bytes.LastIndexByte(text[:line-1], '\n')+1 : line-1]
	if len(blank) > 0 && len(bytes.TrimLeft(blank, " ")) == 0 {
		return "pragma"
	}
	return ""
}

// inSystemHeader reports whether the last line marker before the end of text has flag 3.
func inSystemHeader(text []byte) bool {
	for {
		i := bytes.LastIndex(text, []byte("\n# "))
		if i < 0 {
			return false
		}
		line := text[i+3:]
		if len(line) > 0 && '0' <= line[0] && line[0] <= '9' {
			if end := bytes.IndexByte(line, '\n'); end >= 0 {
				line = line[:end]
			}
			quote := bytes.LastIndexByte(line, '"')
			return quote >= 0 && bytes.Contains(line[quote:], []byte(" 3"))
		}
		text = text[:i]
	}
}

// hasAsm reports whether text has assembly for clang to note the place of: the
// offset in the text gets into bitcode. A declaration's label has none.
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

// embedded judges "embed": the directive reads a file.
func embedded(text []byte, at int) string {
	before := bytes.TrimRight(text[max(0, at-16):at], " \t")
	if after := text[at+len("embed"):]; len(before) > 0 && before[len(before)-1] == '#' && (len(after) == 0 || !isWord(after[0])) {
		return "embed"
	}
	return ""
}
