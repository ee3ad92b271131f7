package driver

import (
	"slices"
	"strings"
)

// SearchWords returns the words with which a driver prints, on standard error and for ParseSearch, where it
// looks for headers of a language by itself.
func SearchWords(language string) []string {
	return []string{"-E", "-v", "-x", language, "/dev/null"}
}

// TidySearchWords is SearchWords for clang-tidy, given words for the driver in it.
func TidySearchWords(words []string, language string) []string {
	return slices.Concat([]string{"--quiet", "--config={}", "--checks=-*,misc-unused-parameters", "/dev/null", "--"}, words, []string{"-v", "-x", language})
}

// ParseSearch reads what a gcc or clang prints for SearchWords. It returns the directories of the search
// list, in order, or nil if text has no such list, or one with more in it than directories for headers.
//
//	|#include "..." search starts here:
//	|#include <...> search starts here:
//	| /usr/include
//	|End of search list.
func ParseSearch(text string) []string {
	const begin, end = "#include \"...\" search starts here:\n", "\nEnd of search list.\n"
	i := strings.Index(text, begin)
	if i < 0 {
		return nil
	}
	text = text[i+len(begin)-1:] // including the newline, as the list may be empty
	i = strings.Index(text, end)
	if i < 0 {
		return nil
	}
	dirs := []string{}
	for line := range strings.SplitSeq(text[:i], "\n") {
		switch {
		case strings.HasSuffix(line, " (framework directory)"), strings.HasSuffix(line, " (headermap)"):
			return nil // names stand for other files there
		case strings.HasPrefix(line, " "):
			dirs = append(dirs, line[1:])
		}
	}
	return dirs
}

// ParseMissing returns, from the text that ParseSearch reads, the directories that would be in the search
// list if they existed.
//
//	|ignoring nonexistent directory "/usr/local/include/x86_64-linux-gnu"
func ParseMissing(text string) []string { return quoted(text, "ignoring nonexistent directory") }

// ParseTwice returns, from the same text, the directories that are in the search list under another name.
//
//	|ignoring duplicate directory "/usr/include/x86_64-linux-gnu"
func ParseTwice(text string) []string { return quoted(text, "ignoring duplicate directory") }

// quoted returns what is in quotes after a prefix of lines.
func quoted(text, begin string) (all []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, begin+` "`); ok && strings.HasSuffix(rest, `"`) {
			all = append(all, rest[:len(rest)-1])
		}
	}
	return all
}

// ParseInstallations returns, from what clang prints with -v, its target and the directories of the
// installations of gcc that it has found.
//
//	|Target: x86_64-pc-linux-gnu
//	|Found candidate GCC installation: /usr/lib/gcc/x86_64-linux-gnu/12
func ParseInstallations(text string) (target string, dirs []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(line, "Target: "); ok && target == "" {
			target = v
		} else if v, ok := strings.CutPrefix(line, "Found candidate GCC installation: "); ok {
			dirs = append(dirs, v)
		}
	}
	return target, dirs
}
