package compile

import "strings"

// Unwrap returns the command that a shell script runs if the script does nothing but start a
// compiler with additional words. text is the script, args are its arguments. ok is false for
// any other script, and for arguments that it rejects. getenv looks up a variable of the script's environment.
//
// It knows scripts with one command around "$@", as musl-gcc is one, and Debian's c89 and c99.
func Unwrap(text string, args []string, getenv func(string) (string, bool)) (argv []string, ok bool) {
	first, rest, _ := strings.Cut(text, "\n")
	if !isShell(first) {
		return nil, false
	}
	var lines []string
	for line := range strings.SplitSeq(rest, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && line != "set -e" && line != "set -u" && line != "set -eu" {
			lines = append(lines, line)
		}
	}
	switch {
	case len(lines) == 1:
		return unwrapCommand(lines[0], args, getenv)
	case len(lines) > 1 && strings.Join(lines[1:], "\n") == debianC99 && lines[0] == "extra_flag=-std=c99":
		return standard("-std=c99", args, func(w string) bool {
			return w == "-std=c99" || w == "-std=c9x" || w == "-std=iso9899:1999" || w == "-std=iso9899:199x"
		})
	case len(lines) > 1 && strings.Join(lines[1:], "\n") == debianC89 && lines[0] == "extra_flag=-std=c89":
		return standard("-std=c89", args, func(w string) bool {
			return w == "-ansi" || w == "-std=c89" || w == "-std=iso9899:1990"
		})
	}
	return nil, false
}

// isShell reports whether line is the first line of a shell script.
func isShell(line string) bool {
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) != 1 {
		return false
	}
	switch words[0] {
	case "/bin/sh", "/usr/bin/sh", "/bin/dash", "/usr/bin/dash", "/bin/bash", "/usr/bin/bash":
		return true
	}
	return false
}

// unwrapCommand parses a command of plain words, of variables with defaults and, once, "$@".
func unwrapCommand(line string, args []string, getenv func(string) (string, bool)) (argv []string, ok bool) {
	words := strings.Fields(line)
	if len(words) > 0 && words[0] == "exec" {
		words = words[1:]
	}
	seen := false
	for i, w := range words {
		switch {
		case w == `"$@"` || w == `${1+"$@"}`:
			if seen || i == 0 {
				return nil, false
			}
			seen = true
			argv = append(argv, args...)
		default:
			v, ok := expandWord(w, getenv)
			if !ok || i == 0 && (v == "" || v[0] == '-' || strings.Contains(v, "=")) {
				return nil, false
			}
			argv = append(argv, v)
		}
	}
	return argv, seen
}

// expandWord returns what a shell makes of a word that is plain, or a variable with a plain default, in double quotes or not:
// "${REALGCC:-gcc}". Shells have variables of their own, so it must be one that names a compiler.
func expandWord(w string, getenv func(string) (string, bool)) (value string, ok bool) {
	quoted := len(w) > 1 && w[0] == '"' && w[len(w)-1] == '"'
	if quoted {
		w = w[1 : len(w)-1]
	}
	inner, is := strings.CutPrefix(w, "${")
	if !is {
		return w, plainWord(w)
	}
	name, rest, ok := strings.Cut(strings.TrimSuffix(inner, "}"), "-")
	name, orEmpty := strings.CutSuffix(name, ":")
	if !ok || !strings.HasSuffix(inner, "}") || !plainWord(rest) || !onlyOf(name, letterBytes+digitBytes+"_", maxWord) ||
		!strings.Contains(name, "CC") && !strings.Contains(name, "CXX") && !strings.Contains(name, "CLANG") {
		return "", false
	}
	value, set := getenv(name)
	if !set || value == "" && orEmpty {
		return rest, true
	}
	return value, quoted || plainWord(value)
}

// plainWord reports whether a shell takes a word literally.
func plainWord(w string) bool {
	for i := 0; i < len(w); i++ {
		c := w[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_@%+=:,./-", c) >= 0) {
			return false
		}
	}
	return w != ""
}

// standard puts an option for the language standard before args, unless one of them is that
// option already. Other standards are rejected.
func standard(option string, args []string, same func(string) bool) (argv []string, ok bool) {
	argv = []string{"gcc", option}
	for _, w := range args {
		switch {
		case same(w):
			argv = []string{"gcc"}
		case strings.HasPrefix(w, "-std=") || w == "-ansi":
			return nil, false
		}
	}
	return append(argv, args...), true
}

// Debian's scripts from the first line of code on, without indentation.
const (
	debianC99 = `for i; do
case "$i" in
-std=c9[9x]|-std=iso9899:199[9x])
extra_flag=
;;
-std=*|-ansi)
echo >&2 "` + "`basename $0`" + ` called with non ISO C99 option $i"
exit 1
;;
esac
done
exec gcc $extra_flag ${1+"$@"}`
	debianC89 = `for i; do
case "$i" in
-ansi|-std=c89|-std=iso9899:1990)
extra_flag=
;;
-std=*)
echo >&2 "` + "`basename $0`" + ` called with non ANSI/ISO C option $i"
exit 1
;;
esac
done
exec gcc $extra_flag ${1+"$@"}`
)
