package driver

import "strings"

// SearchWords are the words with which a driver says where it looks for headers
// of a language by itself: on standard error, for ParseSearch.
func SearchWords(language string) []string {
	return []string{"-E", "-v", "-x", language, "/dev/null"}
}

// ParseSearch reads what a gcc or clang says for SearchWords: the directories of
// its search list, in order. It is nil where there is no such list in text.
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
	text = text[i+len(begin)-1:] // with the newline, as there may be nothing
	i = strings.Index(text, end)
	if i < 0 {
		return nil
	}
	dirs := []string{}
	for line := range strings.SplitSeq(text[:i], "\n") {
		if strings.HasPrefix(line, " ") {
			dirs = append(dirs, line[1:])
		}
	}
	return dirs
}

// ParseMissing reads, of what ParseSearch reads, the directories that would be in the search
// list if they were there.
//
//	|ignoring nonexistent directory "/usr/local/include/x86_64-linux-gnu"
func ParseMissing(text string) []string {
	var dirs []string
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, `ignoring nonexistent directory "`); ok && strings.HasSuffix(rest, `"`) {
			dirs = append(dirs, rest[:len(rest)-1])
		}
	}
	return dirs
}
