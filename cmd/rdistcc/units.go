package main

import (
	"bytes"
	"strings"
)

// unitWarning is what clang says where a text imports a compiled header, after the place.
const unitWarning = ": warning: the implementation of header units is in an experimental phase [-Wexperimental-header-units]"

const includedFrom = "In file included from "

// onlyUnits reports whether a compiler's messages are nothing but warnings of clang's that header units are experimental, each with
// the line that it is about, and their number at last. They quote no file but the one that is being read, which a host has.
func onlyUnits(words []byte) bool {
	n := 0
	for rest := words; ; n++ {
		for strings.HasPrefix(string(rest), includedFrom) {
			line, after, ok := bytes.Cut(rest, []byte("\n"))
			if place, colon := strings.CutSuffix(string(line), ":"); !ok || !colon || strings.Contains(place, ": ") {
				return false
			}
			rest = after
		}
		var lines [3]string
		for i := range lines {
			line, after, ok := bytes.Cut(rest, []byte("\n"))
			if !ok {
				return false
			}
			lines[i], rest = string(line), after
			if i == 0 && len(rest) == 0 { // the last line
				words, count := strings.CutSuffix(lines[0], " generated.")
				return n > 0 && count && (words == "1 warning" || strings.HasSuffix(words, " warnings") && !strings.Contains(words, ":"))
			}
		}
		at, warning := strings.CutSuffix(lines[0], unitWarning)
		number, _, quoted := strings.Cut(lines[1], " | ")
		blank, caret := strings.CutSuffix(lines[2], "^")
		_, blank, bar := strings.Cut(blank, " | ")
		if !warning || !isPlace(at) || !quoted || strings.Trim(number, " 0123456789") != "" || !caret || !bar || strings.Trim(blank, " ") != "" {
			return false
		}
	}
}

// isPlace reports whether a message is about a line and a column of a file, and has nothing before them.
func isPlace(s string) bool {
	rest := strings.TrimRight(s, "0123456789")
	rest = strings.TrimRight(strings.TrimSuffix(rest, ":"), "0123456789")
	return rest != s && strings.HasSuffix(rest, ":") && len(rest) > 1 && !strings.Contains(rest, ": ")
}
