package outputs

import (
	"path"
	"strings"

	"github.com/rdistcc/rdistcc/internal/modules"
)

// CheckRules compares a file of make's rules with what a compiler writes with -MD: rules without recipes,
// assignments or directives. The targets must be those that the command names, each prerequisite a file
// that the compile may have read. They may be followed by empty rules, from -MP, for prerequisites only. An
// additional name would make make run what the makefile says for it.
//
// Behind these rules there may be those that gcc adds for the modules of m, and its variable.
//
// target reports whether a word, as it appears in the file, may be a target; file reports the same of a
// name that may be a prerequisite, unquoted.
func CheckRules(text string, m modules.Rules, target, file func(name string) bool) error {
	seen := make(map[string]bool) // prerequisites
	about := newModuleLines(&m)
	for first := true; len(text) > 0; {
		var line string
		line, text = logicalLine(text)
		if strings.Trim(line, " ") == "" {
			continue
		}
		if line[0] == '\t' {
			return forged("a recipe among make's rules")
		}
		if is, err := about.special(line, target); err != nil {
			return err
		} else if is {
			continue
		}
		words, colon, err := ruleWords(line)
		if err != nil {
			return err
		}
		if colon < 0 {
			return forged("a line that is no rule among make's")
		}
		if colon == 0 && !target("") { // -MT ""
			return forged("a rule without a target among make's")
		}
		targets, files := words[:colon], words[colon:]
		if first { // it always has the source
			targets = about.others(targets)
		} else if is, err := about.rule(targets, files, target); err != nil {
			return err
		} else if is {
			continue
		}
		first = false
		if len(files) == 0 && len(targets) == 1 && seen[unquote(targets[0])] {
			continue // -MP
		}
		for _, w := range targets {
			if !target(w) {
				return doubt("a rule for what the command does not name")
			}
		}
		for _, w := range files {
			name := unquote(w)
			if !seen[name] && !file(name) {
				return doubt("a rule that depends on what the compile did not read")
			}
			seen[name] = true
		}
	}
	return nil
}

// logicalLine removes the first line, with its continuation lines, from text.
func logicalLine(text string) (line, rest string) {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '\n')
		if i < 0 {
			return b.String() + text, ""
		}
		part := text[:i]
		text = text[i+1:]
		if !strings.HasSuffix(part, "\\") || strings.HasSuffix(part, "\\\\") {
			return b.String() + part, text
		}
		b.WriteString(part[:len(part)-1])
		b.WriteByte(' ')
	}
}

// ruleWords splits a line at unquoted spaces; the first colon words are targets, -1: there is no colon.
// Anything that make would treat as more than names is an error, except a percent sign, though it has a
// meaning to make: compilers do not quote it.
func ruleWords(line string) (words []string, colon int, err error) {
	start := -1
	colon = -1
	end := func(i int) {
		if start >= 0 {
			words = append(words, line[start:i])
			start = -1
		}
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		next := byte(0)
		if i+1 < len(line) {
			next = line[i+1]
		}
		switch {
		case c == ' ':
			end(i)
			continue
		case c == ':' && colon < 0 && (next == ' ' || next == 0):
			end(i)
			colon = len(words)
			continue
		case c == '\\' && (next == ' ' || next == '#' || next == ':' || next == '\\'):
			if start < 0 {
				start = i
			}
			i++
			continue
		case c == '\\' && next == 0:
			return nil, 0, doubt("a line of make's rules that ends in backslashes")
		case c == '$' && next == '$':
			if start < 0 {
				start = i
			}
			i++
			continue
		case c == '$' && colon >= 0:
			return nil, 0, forged("a variable among make's rules")
		case c == ';', c == '|', c == '#', c == '\t', c == '`', c < ' ', c == 0x7f:
			return nil, 0, doubt("an unusual character among make's rules")
		case c == '=':
			return nil, 0, doubt("an assignment among make's rules")
		}
		if start < 0 {
			start = i
		}
	}
	end(len(line))
	return words, colon, nil
}

// unquote returns the name that a word of a rule stands for. Backslashes before a space are doubled, and
// the space has one more; elsewhere they stand for themselves.
func unquote(w string) string {
	if !strings.ContainsAny(w, `\$`) {
		return w
	}
	b := make([]byte, 0, len(w))
	slashes := 0 // right before w[i]
	for i := 0; i < len(w); i++ {
		switch c := w[i]; {
		case c == '\\':
			slashes++
			continue
		case slashes > 0 && c == ' ':
			slashes /= 2
		case slashes > 0 && (c == '#' || c == ':'):
			slashes--
		case c == '$' && i+1 < len(w) && w[i+1] == '$':
			i++
		}
		for ; slashes > 0; slashes-- {
			b = append(b, '\\')
		}
		b = append(b, w[i])
	}
	for ; slashes > 0; slashes-- {
		b = append(b, '\\')
	}
	return string(b)
}

// Targets returns the words that a command's rules may have as targets, as they appear in the file: what it
// names by -MT and -MQ, or the main output, as typed or by default.
func Targets(args []string, output, source string) map[string]bool {
	out := make(map[string]bool)
	add := func(name string) {
		out[name] = true
		out[strings.NewReplacer(" ", `\ `, "#", `\#`, "$", "$$").Replace(name)] = true
	}
	args = withForwarded(args)
	for i := 0; i < len(args); i++ {
		w := args[i]
		for _, flag := range [...]string{"-MT", "-MQ", "-o"} {
			switch {
			case w == flag && i+1 < len(args):
				i++
				for _, name := range strings.Fields(args[i]) { // -MT "a b" makes two of it
					add(name)
				}
				add(args[i])
			case strings.HasPrefix(w, flag) && len(w) > len(flag):
				add(w[len(flag):])
			}
		}
	}
	stems := []string{path.Base(source)}
	if output != "" {
		add(output)
		add(path.Base(output))
		stems = append(stems, output, path.Base(output))
	}
	for _, name := range stems {
		add(strings.TrimSuffix(name, path.Ext(name)) + ".o")
	}
	return out
}

// withForwarded returns args with the words for the preprocessor among them: those of -Wp,A,B and -Xpreprocessor A.
func withForwarded(args []string) (all []string) {
	for i, w := range args {
		if list, ok := strings.CutPrefix(w, "-Wp,"); ok {
			all = append(all, strings.Split(list, ",")...)
		} else if w != "-Xpreprocessor" || i+1 == len(args) {
			all = append(all, w)
		}
	}
	return all
}
