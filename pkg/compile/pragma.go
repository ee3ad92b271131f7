package compile

import (
	"bytes"
	"strconv"
	"strings"
)

// pragma examines a "GCC" in text.
//
// "target" and "optimize" change macros from there on, but gcc -E ignores them: a
// condition that follows may come out differently. The compiler's own headers are
// written so that this does not matter.
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

// preprocessorWarnings are given by the local half or by neither, and gcc -E ignores the
// pragmas that turn them on.
var preprocessorWarnings = [...]string{"-Wundef", "-Wexpansion-to-defined", "-Wendif-labels", "-Wunused-macros", "-Wcpp", "-Wmisleading-indentation"}

// popped examines an "#undef " that gcc -fdirectives-only wrote for a
//
//	#pragma pop_macro("X")
//
// gcc blanks the pragma, marks the line, and forgets to define the macro again:
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

// inSystemHeader reports whether the last line marker in text has flag 3.
func inSystemHeader(text []byte) bool {
	marker, _ := lastMarker(text)
	_, _, system, _ := parseMarker(marker)
	return system
}

// poisoned looks for
//
//	#pragma GCC poison X
//
// which gcc -fdirectives-only obeys and blanks, so that the other half would not know of it.
// Other pragmas, above all once, leave the same blanks. So the source is consulted, unless it
// is a system header. Relative names are seen from dir.
func poisoned(text []byte, dir string) bool {
	const pragma = 7 // number of blanks, at least
	var name string
	var source []byte
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte("\n       "))
		if i < 0 {
			return false
		}
		line := at + i + 1
		at = line + pragma
		for at < len(text) && text[at] == ' ' {
			at++
		}
		if at < len(text) && text[at] != '\n' {
			continue
		}
		marker, from := lastMarker(text[:line])
		number, file, system, ok := parseMarker(marker)
		if system {
			continue
		}
		if !ok {
			return true
		}
		if file != name || source == nil {
			path := file
			if path[0] != '/' {
				path = dir + "/" + path
			}
			all, ok := readFile(path)
			if !ok {
				return true
			}
			name, source = file, []byte(all)
		}
		was, ok := nthLine(source, number+bytes.Count(text[from:line], []byte{'\n'}))
		if !ok || bytes.Contains(was, []byte("poison")) {
			return true
		}
	}
}

// expanded examines a "pragma ..." in which clang's compiler expands macros but clang -E does
// not: a macro in it would end up in the object as a symbol's name.
func expanded(text []byte) string {
	rest := bytes.TrimLeft(text[len("pragma "):min(len(text), 64)], " \t")
	if bytes.HasPrefix(rest, []byte("weak")) || bytes.HasPrefix(rest, []byte("redefine_extname")) {
		return "pragma"
	}
	return ""
}

// swallowed looks for
//
//	#pragma redefine_extname X Y
//	#pragma message "text"
//
// which gcc -fdirectives-only leaves out together with their lines, so that only the sources
// show them. System headers have none here. Relative names are seen from dir.
func swallowed(text []byte, dir string) bool {
	seen := make(map[string]struct{})
	for at := 0; ; {
		if at > 0 || !bytes.HasPrefix(text, []byte("# ")) {
			i := bytes.Index(text[at:], []byte("\n# "))
			if i < 0 {
				return false
			}
			at += i + 1
		}
		marker, _, _ := bytes.Cut(text[at:], []byte("\n"))
		at += len(marker)
		if len(marker) < 3 || marker[2] < '0' || marker[2] > '9' {
			continue
		}
		_, file, system, ok := parseMarker(marker)
		if _, again := seen[file]; again || system || !ok || file[0] == '<' {
			continue
		}
		seen[file] = struct{}{}
		if file[0] != '/' {
			file = dir + "/" + file
		}
		// A file that does not exist is only named by a #line.
		source, _ := readFile(file)
		if strings.Contains(source, "redefine_extname") || hasMessage(source) {
			return true
		}
	}
}

// hasMessage reports whether source may have a #pragma message, or a _Pragma("message ...").
func hasMessage(source string) bool {
	for {
		_, rest, ok := strings.Cut(source, "ragma")
		if !ok {
			return false
		}
		source = rest
		if strings.HasPrefix(strings.TrimLeft(rest, " \t(\"\\"), "message") {
			return true
		}
	}
}

// lastMarker returns the last line marker in text, and where the line after it begins.
func lastMarker(text []byte) (marker []byte, next int) {
	for end := len(text); ; {
		i := bytes.LastIndex(text[:end], []byte("\n# "))
		line := text[i+1:]
		if len(line) > 2 && line[0] == '#' && '0' <= line[2] && line[2] <= '9' {
			n := bytes.IndexByte(line, '\n')
			if n < 0 {
				n = len(line) - 1
			}
			return line[:n], i + 1 + n + 1
		}
		if i < 0 {
			return nil, 0
		}
		end = i
	}
}

// parseMarker parses # 12 "name" 1 3. ok is false for a name with escapes.
func parseMarker(marker []byte) (number int, file string, system, ok bool) {
	open, quote := bytes.IndexByte(marker, '"'), bytes.LastIndexByte(marker, '"')
	if open < 3 || quote <= open {
		return 0, "", false, false
	}
	system = bytes.Contains(marker[quote:], []byte(" 3"))
	file = string(marker[open+1 : quote])
	number, err := strconv.Atoi(string(bytes.TrimRight(marker[2:open], " ")))
	return number, file, system, err == nil && file != "" && bytes.IndexByte(marker[open+1:quote], '\\') < 0
}

// nthLine returns line n of text; the first is 1.
func nthLine(text []byte, n int) ([]byte, bool) {
	for ; n > 1; n-- {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			return nil, false
		}
		text = text[i+1:]
	}
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	return line, n == 1
}
