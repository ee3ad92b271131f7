package compile

import "strings"

// SearchWords returns the words of a command that may decide in which ways the compiler looks for headers, without the names of
// what it finds there: commands with the same words search alike, as far as the command decides that.
func (p *Plan) SearchWords() (words []string) {
	var f forwardFilter
	for _, o := range p.options {
		switch {
		case o.class == wp:
			if w := f.joined(o.words[0]); w != "" && !strings.HasPrefix(w, "-Wp,-D") && !strings.HasPrefix(w, "-Wp,-U") {
				words = append(words, w)
			}
		case o.class == xpre:
			if w := o.words[1]; f.keep(w) && !strings.HasPrefix(w, "-D") && !strings.HasPrefix(w, "-U") {
				words = append(words, o.words...)
			}
		case goes[o.class]&toList == 0, o.class == source, o.class == language, o.class == macro:
		case o.class == incDir, o.class == include, o.class == lto:
			words = appendNew(words, strings.TrimSuffix(o.words[0], o.arg))
		case o.class == both && !choosesTarget(o.words[0]):
			name, _, _ := strings.Cut(o.words[0], "=") // some have a value of its own for each source
			words = append(words, name)
		default:
			words = append(words, o.words...)
		}
	}
	return words
}

// choosesTarget reports whether an option says what to compile for, or by which standard.
func choosesTarget(w string) bool {
	return strings.HasPrefix(w, "-m") || strings.HasPrefix(w, "--target") || strings.HasPrefix(w, "-std") || strings.HasPrefix(w, "--std")
}

// appendNew appends w unless it is the last of words: how many directories there are does not matter.
func appendNew(words []string, w string) []string {
	if n := len(words); n > 0 && words[n-1] == w {
		return words
	}
	return append(words, w)
}
