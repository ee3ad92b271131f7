package compile

import (
	"slices"
	"strings"
	"syscall"
)

// Limits of what is read. Files beyond them are left to the compiler.
const (
	maxRead  = 4 << 20 // bytes of one file
	maxFiles = 64      // response files of one command
)

// Expand replaces every word @FILE by the words in FILE, as gcc and clang do. They are
// separated by white space; a backslash quotes the next character, and ' and " keep words
// together. A file may name others, seen from the working directory. A file that cannot be
// read stays a word, and Parse then keeps the command here. Expand returns argv itself if it
// names no file.
//
// It reads files, so it must be given nothing but the user's own words.
func Expand(argv []string) []string { return ExpandIn("", argv) }

// ExpandIn is Expand for a command that runs in the directory dir.
func ExpandIn(dir string, argv []string) []string {
	files := maxFiles
	return expand(dir, argv, &files)
}

func expand(dir string, argv []string, files *int) []string {
	for i, w := range argv {
		if len(w) < 2 || w[0] != '@' {
			continue
		}
		if *files--; *files < 0 {
			return argv
		}
		name := w[1:]
		if dir != "" && name[0] != '/' {
			name = dir + "/" + name
		}
		text, ok := readFile(name)
		if !ok {
			continue
		}
		words, ok := splitResponse(text)
		if !ok {
			continue
		}
		inner := expand(dir, words, files)
		rest := expand(dir, argv[i+1:], files)
		all := make([]string, 0, i+len(inner)+len(rest))
		return append(append(append(all, argv[:i]...), inner...), rest...)
	}
	return argv
}

// ExpandAssembler replaces every @FILE in a word -Wa,A,B by the words in FILE, as gcc's assembler does, under the conditions of
// Expand.
func ExpandAssembler(argv []string) []string {
	files := maxFiles
	all := argv
	for i, w := range argv {
		if !strings.HasPrefix(w, "-Wa,") || !strings.Contains(w, ",@") {
			continue
		}
		words := strings.Split(w, ",")
		inner := expand("", words, &files)
		if len(inner) == 1 || slices.ContainsFunc(inner[1:], func(w string) bool { return w == "" || w[0] == '@' || strings.Contains(w, ",") }) {
			continue // nothing but the file can say that
		}
		if &all[0] == &argv[0] {
			all = slices.Clone(argv)
		}
		all[i] = strings.Join(inner, ",")
	}
	return all
}

// readFile reads a whole regular file.
func readFile(name string) (string, bool) { return readUpTo(name, maxRead) }

// readUpTo reads a whole regular file of at most most bytes.
func readUpTo(name string, most int64) (string, bool) {
	fd, st, ok := openRegular(name)
	if !ok {
		return "", false
	}
	defer func() { _ = syscall.Close(fd) }()
	if st.Size > most {
		return "", false
	}
	buf := make([]byte, st.Size)
	for n := 0; n < len(buf); {
		m, err := syscall.Read(fd, buf[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || m <= 0 {
			return "", false
		}
		n += m
	}
	return string(buf), true
}

// openRegular opens a file if it is a regular one. It does not even open a pipe: whoever writes to it would take that for
// the compiler, and what is written would be gone.
func openRegular(name string) (fd int, st syscall.Stat_t, ok bool) {
	regular := func() bool { return st.Mode&syscall.S_IFMT == syscall.S_IFREG }
	if syscall.Stat(name, &st) != nil || !regular() {
		return 0, st, false
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, st, false
	}
	if syscall.Fstat(fd, &st) != nil || !regular() { // it has just been replaced
		_ = syscall.Close(fd)
		return 0, st, false
	}
	return fd, st, true
}

// splitResponse splits a response file into words, as both libiberty's buildargv and
// LLVM's TokenizeGNUCommandLine do. ok is false where they differ, or where versions
// differ: empty words, a backslash at the end, a byte order mark, and white space that
// only one of them knows.
func splitResponse(text string) (words []string, ok bool) {
	if strings.HasPrefix(text, "\xef\xbb\xbf") || strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") ||
		strings.ContainsAny(text, "\x00\v\f") {
		return nil, false
	}
	for i := 0; i < len(text); {
		if isSpace(text[i]) {
			i++
			continue
		}
		var w []byte
		for quote := byte(0); i < len(text) && (quote != 0 || !isSpace(text[i])); i++ {
			switch c := text[i]; {
			case c == '\\':
				if i++; i == len(text) {
					return nil, false
				}
				w = append(w, text[i])
			case c == quote:
				quote = 0
			case quote == 0 && (c == '\'' || c == '"'):
				quote = c
			default:
				w = append(w, c)
			}
		}
		if len(w) == 0 {
			return nil, false
		}
		words = append(words, string(w))
	}
	return words, true
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r'
}
