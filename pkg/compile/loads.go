package compile

import (
	"bytes"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
)

// loader is the pragma by which gcc loads a precompiled header from a file named in the text:
// it maps the file into its memory, and trusts the pointers in it.
const loader = "pch_preprocess"

// LoadsHeader reports whether preprocessed text has the word by which gcc loads a precompiled
// header, anywhere, even with line continuations inside it. A text that would load one does
// not travel, and a host refuses it.
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

// splice returns the length of the line continuation (a backslash and what follows it) at the
// end of a text that ends with a newline, or 0. "??/" counts as a backslash too.
func splice(text []byte) int {
	line := bytes.TrimRight(text, " \t\r\n\f\v")
	switch {
	case len(line) < len(text) && bytes.IndexByte(text[len(line):], '\n') != len(text)-len(line)-1:
		return 0 // an empty line intervenes
	case bytes.HasSuffix(line, []byte("\\")):
		return len(text) - len(line) + 1
	case bytes.HasSuffix(line, []byte("??/")):
		return len(text) - len(line) + 3
	}
	return 0
}

// spliced reports whether the word begins at the end of before and continues in after, which
// may have more line continuations.
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

// Unasked looks among the names that a sources-form job creates for one from which a compiler of
// family f loads something that no word of the command names: a precompiled header, which is an
// image of its memory, beside the header; or more words, which nothing has checked, beside its
// driver. what is the word after "not-reproducible:" for such a job, which stays at home and is
// refused by a host; "" means that there is no such name.
//
// Links are not followed, as they can lead anywhere: names count as they are spelled, including
// those of directories on the way.
func Unasked(f Family, b *job.Body) (name, what string) {
	for i := range b.Files {
		if what = f.unasked(b.Files[i].Name); what != "" {
			return b.Files[i].Name, what
		}
	}
	for i := range b.Links {
		for _, name = range [...]string{b.Links[i].Name, b.Links[i].Target} {
			if what = f.unasked(name); what != "" {
				return name, what
			}
		}
	}
	for _, name = range b.Dirs {
		if what = f.unasked(name + "/"); what != "" {
			return name, what
		}
	}
	for i := range b.Outputs { // outputs are written when all has been read
		name = b.Outputs[i].Name
		if what = f.unasked(name[:strings.LastIndexByte(name, '/')+1]); what != "" {
			return name, what
		}
	}
	return b.Cwd, f.unasked(b.Cwd + "/")
}

// unasked returns what is loaded from a name; a name with a trailing slash is a directory.
func (f Family) unasked(name string) string {
	for _, suffix := range [...]string{".gch", ".pch"} {
		// Compilers try every file in a directory of that name.
		if strings.HasSuffix(name, suffix) || strings.Contains(name, suffix+"/") {
			return hereOf[herePCH]
		}
	}
	// gcc looks for specs in the directories of its parts. clang looks beside itself for a configuration
	// named after itself and after its target, which a command chooses.
	if f == GCC && (name == "specs" || strings.HasSuffix(name, "/specs")) || f == Clang && strings.HasSuffix(name, ".cfg") {
		return hereOf[hereSpecs]
	}
	return ""
}
