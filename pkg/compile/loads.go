package compile

import (
	"bytes"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
)

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

// Unasked looks through the names that a job of the sources form makes for one under
// which a compiler of family f loads what no word of the command names: a precompiled
// header, which is its memory, beside the header; or more words, which nobody has looked at, beside its
// driver. what is the word behind "not-reproducible:" for such a job, which stays at
// home and is refused where it comes; "": there is no such name.
//
// Where a name leads is not asked, as links lead everywhere: names count as they are spelled, those of
// directories on the way too.
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
	for i := range b.Outputs { // they are written when all is read
		name = b.Outputs[i].Name
		if what = f.unasked(name[:strings.LastIndexByte(name, '/')+1]); what != "" {
			return name, what
		}
	}
	return b.Cwd, f.unasked(b.Cwd + "/")
}

// unasked says what is loaded from under a name; one with a slash at its end is a directory's.
func (f Family) unasked(name string) string {
	for _, suffix := range [...]string{".gch", ".pch"} {
		// In a directory of that name compilers try all that there is.
		if strings.HasSuffix(name, suffix) || strings.Contains(name, suffix+"/") {
			return hereOf[herePCH]
		}
	}
	// gcc looks for specs in the directories of its parts. clang looks for a configuration beside itself, by
	// its own name and by that of what it compiles for, which a command chooses.
	if f == GCC && (name == "specs" || strings.HasSuffix(name, "/specs")) || f == Clang && strings.HasSuffix(name, ".cfg") {
		return hereOf[hereSpecs]
	}
	return ""
}
