package compile

import "strings"

// Coloured returns args plus the word that makes the compiler colour its messages, as it would
// by itself on a terminal. It returns args unchanged if the command settles that itself, or
// records its words in a file.
func Coloured(args []string, family Family, term string) []string {
	if term == "" || term == "dumb" {
		return args
	}
	for _, w := range args {
		if strings.Contains(w, "diagnostics") || strings.Contains(w, "record") || strings.HasPrefix(w, "-MJ") {
			return args
		}
	}
	word := "-fdiagnostics-color=always"
	if family == Clang {
		word = "-fcolor-diagnostics"
	}
	return append([]string{word}, args...)
}
