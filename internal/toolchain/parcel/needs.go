package parcel

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Needs is what a host must be so that programs of a toolchain can run there.
type Needs struct {
	Machine string  // as uname -m says; empty: the driver is no program of a known kind
	Kernel  Version // at least
}

// Version is one of Linux; the zero Version is older than all.
type Version [3]uint32

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// ParseVersion reads what uname -r says. What it does not understand is 0.
func ParseVersion(release string) (v Version) {
	for i, s := range strings.SplitN(release, ".", len(v)) {
		end := strings.IndexFunc(s, func(c rune) bool { return c < '0' || c > '9' })
		if end < 0 {
			end = len(s)
		}
		n, err := strconv.ParseUint(s[:end], 10, 32)
		if err != nil {
			break
		}
		if v[i] = uint32(n); end < len(s) {
			break
		}
	}
	return v
}

// machines are the processors of build hosts.
var machines = map[elf.Machine]string{
	elf.EM_X86_64: "x86_64", elf.EM_386: "i686", elf.EM_AARCH64: "aarch64", elf.EM_ARM: "armv7l", elf.EM_RISCV: "riscv64",
	elf.EM_PPC64: "ppc64", elf.EM_S390: "s390x", elf.EM_LOONGARCH: "loongarch64",
}

// needsOf returns what a file needs of a host; ok is false if it is no program or library.
func needsOf(r io.ReaderAt) (n Needs, ok bool) {
	f, err := elf.NewFile(r)
	if err != nil {
		return n, false
	}
	n.Machine = machines[f.Machine]
	if n.Machine == "" {
		n.Machine = f.Machine.String()
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > maxNotes {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err == nil {
			if v := abiTag(b, f.ByteOrder); n.Kernel.Less(v) {
				n.Kernel = v
			}
		}
	}
	return n, true
}

// maxNotes bounds the notes of a program that are read, in bytes.
const maxNotes = 64 << 10

// abiTag returns the oldest kernel that notes name: the note of type 1 (NT_GNU_ABI_TAG) by GNU has the system, 0 for Linux,
// and three numbers.
func abiTag(b []byte, o binary.ByteOrder) (v Version) {
	for len(b) >= 12 {
		name, desc, kind := uint64(o.Uint32(b)), uint64(o.Uint32(b[4:])), o.Uint32(b[8:])
		at := 12 + (name+3)&^3
		end := at + (desc+3)&^3
		if end > uint64(len(b)) {
			break
		}
		if d := b[at:end]; kind == 1 && desc >= 16 && string(b[12:12+name]) == "GNU\x00" && o.Uint32(d) == 0 {
			return Version{o.Uint32(d[4:]), o.Uint32(d[8:]), o.Uint32(d[12:])}
		}
		b = b[end:]
	}
	return v
}

// Missing returns why a host cannot run the toolchain, in words that go on after its name, or "". It says so only if it is certain.
func (n *Needs) Missing(h *About) string {
	switch {
	case h.Machine != "" && n.Machine != "" && h.Machine != n.Machine:
		return fmt.Sprintf("is for %s, and the host is %s", n.Machine, h.Machine)
	case h.Kernel != "" && ParseVersion(h.Kernel).Less(n.Kernel):
		return fmt.Sprintf("needs Linux %v, and the host has %s", n.Kernel, h.Kernel)
	}
	return ""
}
