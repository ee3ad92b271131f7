package compile

import "bytes"

// loader is the pragma by which gcc takes a precompiled header out of a file that the
// text names: it maps the file into its memory, and believes the pointers in it.
const loader = "pch_preprocess"

// LoadsHeader reports whether preprocessed text has the word by which gcc loads a
// precompiled header, wherever it stands, and also where ends of lines that do not
// count are in it. A text that would load one does not travel, and is refused where
// it comes.
func LoadsHeader(text []byte) bool {
	if bytes.Contains(text, []byte(loader)) {
		return true
	}
	for at := 0; ; {
		i := bytes.IndexByte(text[at:], '\n')
		if i < 0 {
			return false
		}
		at += i + 1
		if n := splice(text[:at]); n > 0 && spliced(text[:at-n], text[at:]) {
			return true
		}
	}
}

// splice is the length of the backslash and what stands behind it at the end of a text
// that ends with a newline: 0 if there is none. "??/" is a backslash too.
func splice(text []byte) int {
	line := bytes.TrimRight(text, " \t\r\n\f\v")
	switch {
	case len(line) < len(text) && bytes.IndexByte(text[len(line):], '\n') != len(text)-len(line)-1:
		return 0 // an empty line is between
	case bytes.HasSuffix(line, []byte("\\")):
		return len(text) - len(line) + 1
	case bytes.HasSuffix(line, []byte("??/")):
		return len(text) - len(line) + 3
	}
	return 0
}

// spliced reports whether the word begins at the end of one text and goes on in the
// other one, which may have more splices.
func spliced(before, after []byte) bool {
	for n := 1; n < len(loader) && n <= len(before); n++ {
		if string(before[len(before)-n:]) == loader[:n] && goesOn(after, loader[n:]) {
			return true
		}
	}
	return false
}

func goesOn(text []byte, rest string) bool {
	for rest != "" {
		switch {
		case len(text) == 0:
			return false
		case text[0] == rest[0]:
			text, rest = text[1:], rest[1:]
		default:
			i := bytes.IndexByte(text, '\n')
			if i < 0 || splice(text[:i+1]) != i+1 {
				return false
			}
			text = text[i+1:]
		}
	}
	return true
}
