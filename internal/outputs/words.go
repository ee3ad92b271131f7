package outputs

import (
	"bytes"
	"unicode/utf8"
)

// Style says which markup a command lets its compiler put into its messages.
type Style struct {
	Colours bool // SGR sequences
	Links   bool // OSC 8
}

// StyleOf derives the style from a command's words. That the compiler writes to a terminal does not count:
// on the host it does not.
func StyleOf(args []string) (s Style) {
	for _, w := range args {
		switch w {
		case "-fdiagnostics-color", "-fdiagnostics-color=always", "-fcolor-diagnostics",
			"--use-color", "-use-color", "--use-color=true", "--use-color=1": // clang-tidy
			s.Colours = true
		case "-fdiagnostics-color=never", "-fdiagnostics-color=auto", "-fno-diagnostics-color", "-fno-color-diagnostics", "-fdiagnostics-plain-output":
			s.Colours = false
		case "-fdiagnostics-urls=always":
			s.Links = true
		case "-fdiagnostics-urls=never", "-fdiagnostics-urls=auto":
			s.Links = false
		}
	}
	return s
}

// CheckWords looks in a compiler's messages for anything that a terminal would obey, or show as something
// else: escape sequences beyond the style, other control characters, C1 controls as bytes and in UTF-8, and
// characters that change the direction of text. Each is an ErrDoubt: a quoted source line may contain it,
// and then the compiler here prints the same.
func CheckWords(b []byte, s Style) error {
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c == 0x1b:
			n := sequence(b[i:], s)
			if n == 0 {
				return doubt("an escape sequence in messages")
			}
			i += n
		case c == '\n' || c == '\t':
			i++
		case c == '\r' && i+1 < len(b) && b[i+1] == '\n': // from a source with such line ends
			i += 2
		case c < ' ' || c == 0x7f:
			return doubt("a control character in messages")
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			switch {
			case r == utf8.RuneError && n == 1 && c < 0xa0:
				return doubt("a control character in messages")
			case r >= 0x80 && r < 0xa0:
				return doubt("a control character in messages")
			case r == 0x061c, r >= 0x200e && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
				return doubt("a character that turns text in messages")
			}
			i += n
		}
	}
	return nil
}

// maxLink bounds the address of a link, in bytes.
const maxLink = 500

// sequence returns the length of the allowed escape sequence at the start of b; 0: it is none.
func sequence(b []byte, s Style) int {
	if len(b) < 3 {
		return 0
	}
	if b[1] == '[' && s.Colours { // SGR, and the "erase to end of line" that gcc puts after it
		i := 2
		for i < len(b) && i < 64 && (b[i] >= '0' && b[i] <= '9' || b[i] == ';') {
			i++
		}
		switch {
		case i == len(b):
			return 0
		case b[i] == 'K' && i == 2:
			return i + 1
		case b[i] == 'm' && !hides(b[2:i]):
			return i + 1
		}
		return 0
	}
	if s.Links && bytes.HasPrefix(b, []byte("\x1b]8;;")) {
		rest := b[5:min(len(b), 5+maxLink)]
		for i, c := range rest {
			switch {
			case c == 7:
				return link(rest[:i], 5+i+1)
			case c == 0x1b:
				if i+1 < len(rest) && rest[i+1] == '\\' {
					return link(rest[:i], 5+i+2)
				}
				return 0
			case c <= ' ' || c >= 0x7f:
				return 0
			}
		}
	}
	return 0
}

// link returns n if a link leads to a page, or ends one.
func link(address []byte, n int) int {
	if len(address) == 0 || bytes.HasPrefix(address, []byte("https://")) || bytes.HasPrefix(address, []byte("http://")) {
		return n
	}
	return 0
}

// hides reports whether SGR parameters make text invisible.
func hides(params []byte) bool {
	for _, p := range bytes.Split(params, []byte{';'}) {
		if string(bytes.TrimLeft(p, "0")) == "8" {
			return true
		}
	}
	return false
}
