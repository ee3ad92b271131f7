package compile

import "strings"

// Bounds of a command that comes from another host. Linux does not start programs with more
// bytes than maxCommand.
const (
	maxWords   = 1 << 15
	maxCommand = 2 << 20 // bytes
)

// TooLong names what exceeds a bound in a command that comes from another host, or returns "".
func TooLong(argv []string) string {
	sum := 0
	for _, w := range argv {
		sum += len(w) + 1
	}
	switch {
	case len(argv) > maxWords:
		return "too many words"
	case sum > maxCommand:
		return "too long"
	}
	return ""
}

// NamesFile returns a word of a text-form command that may name a file, or "" if there is
// none. Such a word has a slash, and is not text that is only compared with paths or written
// into the object. The last two words are not examined: they are the mode and the source,
// which the host has added.
func (p *Plan) NamesFile() string {
	for _, o := range p.options[:max(len(p.options)-2, 0)] {
		w := o.words[0]
		if o.mapped() || !strings.Contains(strings.Join(o.words, " "), "/") {
			continue
		}
		return w
	}
	return ""
}

// mapped reports whether paths in an option are not names of files.
func (o *option) mapped() bool {
	switch o.value {
	case pathText, macroText, seed:
		return true
	case flagValue:
		name, _, _ := strings.Cut(o.words[0], "=")
		return strings.HasSuffix(name, "-prefix-map") || name == "-finstrument-functions-exclude-file-list"
	}
	return false
}

// CompilerName reports whether argv0 is acceptable as a compiler's name: a path or a name of
// plain characters.
func CompilerName(argv0 string) bool {
	name := base(argv0)
	return name != "" && strings.IndexByte(letterBytes+digitBytes, name[0]) >= 0 &&
		onlyOf(name, letterBytes+digitBytes+"_.+-", maxWord) && plain(argv0, maxPath) && argv0[0] != '@'
}
