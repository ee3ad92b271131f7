package outputs

import (
	"bytes"
	elffile "debug/elf"
	"slices"
	"strings"
)

// Sealed reports whether names can be in an output without being seen as they are: it is bitcode, or packed, or an object
// with sections that are compressed or have a compiler's intermediate form in them.
func Sealed(data []byte) bool {
	for _, magic := range [...]string{"BC\xc0\xde", "\xde\xc0\x17\x0b", "\x1f\x8b"} { // bitcode, bitcode behind a header, gzip
		if bytes.HasPrefix(data, []byte(magic)) {
			return true
		}
	}
	if !bytes.HasPrefix(data, []byte(elffile.ELFMAG)) {
		return false
	}
	f, err := elffile.NewFile(bytes.NewReader(data))
	return err != nil || slices.ContainsFunc(f.Sections, func(s *elffile.Section) bool {
		return s.Flags&elffile.SHF_COMPRESSED != 0 || slices.ContainsFunc(sealed[:], func(name string) bool { return strings.HasPrefix(s.Name, name) })
	})
}

// sealed are beginnings of the names of such sections.
var sealed = [...]string{".zdebug", ".gnu.lto_", ".gnu.debuglto_", ".gnu.offload_lto_", ".llvmbc", ".llvm.lto", ".llvm.offloading"}
