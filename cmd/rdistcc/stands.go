package main

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// stands reports whether a result is what the compiler here would have produced, including
// every word that it would have printed.
func (f *flow) stands(r *result) bool {
	switch {
	case !r.says():
		return true
	case r.Stdout.Len > 0 && !canPrint(1) || r.Stderr.Len > 0 && !canPrint(2):
		return false // before any file is in place: some compilers fail in that case
	case f.rec.form == "text":
		// Carets, macros and -Werror depend on what preprocessing has lost.
		return f.takesWords()
	}
	words, ok := readOut(f.slot.sink, r.Stderr)
	if !ok || r.Exit != 0 && notItsFault(unexplained(words, f.slot.Lacking)) {
		return false
	}
	if f.plan.Driver.Tidy && !f.tidyStands(r, words) {
		return false
	}
	if f.takesWords() {
		return true
	}
	if f.slot.unsure && (f.slot.Unsure || !f.plan.Units || !onlyUnits(words)) {
		return false
	}
	// A terminal has a width and colours, and both shape what a compiler writes to it.
	return !isTerminal(2) && !isCut(words) && f.sameLanguage(words)
}

// isCut reports whether a host has kept only the first part of what a compiler printed, and says so at the end.
func isCut(words []byte) bool {
	return bytes.HasSuffix(words, []byte(" KiB here; the rest is cut\n"))
}

// takesWords reports whether the host's messages are good enough, whatever they are.
func (f *flow) takesWords() bool { return f.set.SkipRetry || f.slot.Fast }

// maxWords is more than anyone reads, in bytes.
const maxWords = 16 << 20

// readOut reads a part of the sink.
func readOut(sink int, s ipc.Segment) ([]byte, bool) {
	if s.Len > maxWords {
		return nil, false
	}
	b := make([]byte, s.Len)
	for n := 0; n < len(b); {
		k, err := syscall.Pread(sink, b[n:], int64(s.Off)+int64(n))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || k == 0 {
			return nil, false
		}
		n += k
	}
	return b, true
}

// unexplained returns what a failed compile has said without the errors that end a compile and that this machine would have ended it
// with too: a header cannot be found that is not to be found here either, or there is more of something than the compiler takes.
func unexplained(words []byte, lacking []string) []byte {
	const fatal = "fatal error: "
	if !bytes.Contains(words, []byte(fatal)) {
		return words
	}
	var rest []byte
	for line := range bytes.Lines(words) {
		where, said, found := strings.Cut(string(line), fatal)
		if !found || where != "" && !strings.HasSuffix(where, ": ") || !explained(strings.TrimSuffix(said, "\n"), lacking) {
			rest = append(rest, line...)
		}
	}
	return rest
}

// explained reports whether a fatal error is none of the host's.
func explained(said string, lacking []string) bool {
	name, missing := strings.CutSuffix(said, ": No such file or directory") // gcc
	if !missing {
		name, missing = strings.CutSuffix(said, "' file not found") // clang
		name, missing = strings.TrimPrefix(name, "'"), missing && strings.HasPrefix(name, "'")
	}
	if missing {
		_, lacks := slices.BinarySearch(lacking, name)
		return lacks
	}
	return strings.HasPrefix(said, "too many errors emitted, stopping now") || strings.HasPrefix(said, "template instantiation depth exceeds maximum of ") ||
		strings.HasPrefix(said, "recursive template instantiation exceeded maximum depth of ")
}

// notItsFault reports whether a compile may have failed because of the host it ran on:
// a file was missing, the host was out of room, or the compiler crashed.
func notItsFault(words []byte) bool {
	for _, w := range [...]string{
		"fatal error", "o such file", "not found", "no include path", "ould not find", "ould not open", "ould not read", "annot open", "annot read", "an't open",
		"an't read", "rror opening", "rror reading", "nable to", "No space left", "Permission denied",
		"Read-only file", "not permitted", "annot allocate", "memory exhausted", "out of memory",
		"internal compiler error", "PLEASE submit", "LLVM ERROR", "Stack dump", "cannot execute", "due to signal",
		"Assembler messages", // they name a temporary file
	} {
		if bytes.Contains(words, []byte(w)) {
			return true
		}
	}
	return false
}

// canPrint reports whether a descriptor can be written, as far as can be seen: it is not
// read-only, not /dev/full, and, if it is a pipe, has a reader.
func canPrint(fd int) bool {
	const full = 1<<8 | 7 // device number
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
	var st syscall.Stat_t
	if errno != 0 || flags&syscall.O_ACCMODE == syscall.O_RDONLY || syscall.Fstat(fd, &st) != nil || st.Rdev == full {
		return false
	}
	p := []pollFD{{fd: int32(fd)}}
	poll(p, 0)
	return p[0].revents == 0
}

func isTerminal(fd int) bool {
	var termios [64]byte // struct termios is shorter
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TCGETS, uintptr(unsafe.Pointer(&termios)))
	return errno == 0
}

// sameLanguage reports whether gcc here would have printed words in the same language. A
// locale that is not installed is the same as none. clang has only one language.
func (f *flow) sameLanguage(words []byte) bool {
	if f.plan.Driver.Family == compile.Clang {
		return true
	}
	locale := func(category string) string {
		for _, name := range [...]string{"LC_ALL", category, "LANG"} {
			if v := f.set.getenv(name); v != "" {
				return v
			}
		}
		return "C"
	}
	charset, messages := locale("LC_CTYPE"), locale("LC_MESSAGES")
	if plainLocale(charset) && plainLocale(messages) {
		return true
	}
	language := f.set.getenv("LANGUAGE")
	if language != "" && !strings.HasPrefix(language, "en") && !plainLocale(messages) ||
		!plainLocale(messages) && !strings.HasPrefix(messages, "en") && !strings.HasPrefix(messages, "C.") {
		return false
	}
	// English: only the quotation marks can differ.
	fine := bytes.Contains(words, []byte("‘"))
	plain := bytes.IndexByte(words, '\'') >= 0
	if !fine && !plain {
		return true
	}
	utf8 := !plainLocale(charset) && strings.Contains(strings.ReplaceAll(strings.ToLower(charset), "-", ""), "utf8") && localeInstalled(charset)
	return fine == utf8
}

func plainLocale(name string) bool { return name == "C" || name == "POSIX" }

// localeInstalled looks where the C library does: in a directory, or in an archive that
// contains the names as text. C.UTF-8 is always there.
func localeInstalled(name string) bool {
	lang, charset, _ := strings.Cut(name, ".")
	file := lang + "." + strings.ReplaceAll(strings.ToLower(charset), "-", "")
	if lang == "C" {
		return true
	}
	var st syscall.Stat_t
	if typed.Stat("/usr/lib/locale/"+file, &st) == nil || typed.Stat("/usr/lib/locale/"+name, &st) == nil {
		return true
	}
	const archive = "/usr/lib/locale/locale-archive"
	fd, err := syscall.Open(archive, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	if syscall.Fstat(fd, &st) != nil || st.Size == 0 {
		return false
	}
	mem, err := syscall.Mmap(fd, 0, int(st.Size), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Munmap(mem) }() // our own whole mapping: cannot fail
	return bytes.Contains(mem, []byte(file+"\x00"))
}
