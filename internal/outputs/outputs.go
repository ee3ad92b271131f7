// Package outputs knows what a compiler's outputs look like, as far as that can be checked cheaply: the
// head of an object, the form of make's rules, the characters of messages. Outputs from another machine are
// checked before they are used.
//
// It proves nothing about a content: a host that compiles wrongly writes good heads. But it cannot make
// make run commands, control a terminal, or have a linker load a program.
package outputs

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Errors of this package are of two kinds. ErrForged: no compiler writes this. ErrDoubt: one might, for an
// unusual source or name: compile here to find out.
var (
	ErrForged = errors.New("forged")
	ErrDoubt  = errors.New("not clear")
)

// flaw is an error of one of the kinds.
type flaw struct {
	what string
	sort error
}

func (f *flaw) Error() string { return f.what }
func (f *flaw) Unwrap() error { return f.sort }

func forged(what string) error { return &flaw{what, ErrForged} }
func doubt(what string) error  { return &flaw{what, ErrDoubt} }

// Format is a family of object files.
type Format uint8

// Formats.
const (
	Unknown Format = iota // none of the others
	ELF
	Bitcode // LLVM's, with or without its wrapper
	MachO
	COFF
	Wasm
)

// Object is what the head of an object file contains.
type Object struct {
	Format  Format
	Class   byte   // ELF: EI_CLASS, 32 or 64 bits
	Data    byte   // ELF: EI_DATA, byte order
	Machine uint16 // ELF, COFF
}

// HeadLen is how much of a file ReadObject examines, in bytes.
const HeadLen = 20

// ReadObject parses the head of a file that should be an object: HeadLen bytes, or all of a shorter one.
// The error is ErrForged if it is a program, a library or a script.
func ReadObject(head []byte) (Object, error) {
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return readELF(head)
	case bytes.HasPrefix(head, []byte("#!")):
		return Object{}, forged("a script")
	case bytes.HasPrefix(head, []byte("MZ")):
		return Object{}, forged("a program")
	case bytes.HasPrefix(head, []byte("BC\xc0\xde")), bytes.HasPrefix(head, []byte("\xde\xc0\x17\x0b")):
		return Object{Format: Bitcode}, nil
	case bytes.HasPrefix(head, []byte("\x00asm")):
		return Object{Format: Wasm}, nil
	}
	if len(head) >= 16 {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			if magic := order.Uint32(head); magic == 0xfeedface || magic == 0xfeedfacf {
				if order.Uint32(head[12:]) != 1 { // MH_OBJECT
					return Object{}, forged("a program or library")
				}
				return Object{Format: MachO, Class: byte(magic - 0xfeedface)}, nil
			}
		}
	}
	if len(head) >= 20 {
		switch m := binary.LittleEndian.Uint16(head); m {
		case 0x14c, 0x1c4, 0x8664, 0xaa64: // x86, ARM; without the optional header of programs
			if head[16] == 0 && head[17] == 0 {
				return Object{Format: COFF, Machine: m}, nil
			}
		}
	}
	return Object{}, nil
}

func readELF(head []byte) (Object, error) {
	if len(head) < HeadLen || head[4] != 1 && head[4] != 2 || head[5] != 1 && head[5] != 2 || head[6] != 1 {
		return Object{}, forged("an ELF file with a broken head")
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[5] == 2 {
		order = binary.BigEndian
	}
	if order.Uint16(head[16:]) != 1 { // ET_REL
		return Object{}, forged("an ELF file that is no object")
	}
	return Object{Format: ELF, Class: head[4], Data: head[5], Machine: order.Uint16(head[18:])}, nil
}

// CheckObject compares the head of a file with what the compiler here makes for such a command. ok says
// whether that is known: if not, any object will do, and if the compiler here makes none of the formats,
// anything except a program will.
func CheckObject(head []byte, want Object, ok bool) error {
	got, err := ReadObject(head)
	switch {
	case err != nil:
		return err
	case ok && got == want:
		return nil
	case ok && want.Format != Unknown:
		return forged("no object of the kind that the compiler here makes")
	case got.Format == Unknown:
		return doubt("no object of a known kind")
	}
	return nil
}

// CheckText checks, by its start, that a file is text.
func CheckText(head []byte) error {
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")), bytes.HasPrefix(head, []byte("#!")), bytes.HasPrefix(head, []byte("MZ\x90")):
		return forged("a program")
	case bytes.IndexByte(head, 0) >= 0:
		return doubt("no text")
	}
	return nil
}

// ModeWords returns the words of a command that determine the kind of object. exact is false if others may
// affect it too.
func ModeWords(args []string) (words []string, exact bool) {
	exact = true
	for i := 0; i < len(args); i++ {
		w := args[i]
		switch {
		case w == "-target" || w == "--target":
			if i++; i < len(args) {
				words = append(words, w, args[i])
			}
		case hasPrefix(w, "-fthinlto-index="): // of each part of a link another one, which determines nothing
		case hasPrefix(w, "--target=", "-flto", "-fembed-bitcode", "-fthinlto", "-fsplit-lto", "-funified-lto"),
			w == "-fno-lto", w == "-ffat-lto-objects", w == "-fno-fat-lto-objects", w == "-emit-llvm", w == "-EB", w == "-EL":
			words = append(words, w)
		case hasPrefix(w, "-mllvm"):
			i++
		case hasPrefix(w, "-m") && len(w) > 2:
			words = append(words, w)
		case hasPrefix(w, "-Wa,", "-Xassembler", "-Xclang", "-Xarch", "-arch", "-specs", "--specs", "-wrapper", "-B", "-fplugin", "-fpass-plugin", "-load", "-x"):
			exact = exact && hasPrefix(w, "-x") && w != "-xcuda" && w != "-xhip"
		}
	}
	return words, exact
}

func hasPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if len(s) >= len(p) && s[:len(p)] == p {
			return true
		}
	}
	return false
}
