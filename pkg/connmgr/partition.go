package connmgr

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"strconv"
	"strings"
)

// gccSections begins the names of the sections in which gcc keeps what a link with LTO compiles, gccWords is that of the words of
// the lto1 that has written it, gccDecls that of one which each partition has.
const (
	gccSections = ".gnu.lto_"
	gccWords    = gccSections + ".opts"
	gccDecls    = gccSections + ".decls"
)

// sumOfPartition returns a sum over what a partition says that gcc has made for a link with LTO, whatever the link calls it. All its
// temporary files have names that begin with temporary. ok is false if the partition is of a form that is not known here.
//
// Each link ends the names of gcc's own sections in a random number, by which lto1 finds those that belong together (gcc 11 to 14;
// lto_get_section_name in gcc's sources); later ones write no number. The names of temporary files stand among the words, of which
// the compile takes options.
func sumOfPartition(b []byte, temporary string) (sum [sha256.Size]byte, ok bool) {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil || f.Type != elf.ET_REL {
		return sum, false
	}
	h := sha256.New()
	fmt.Fprintf(h, "%v %v %v %v %v\n", f.Class, f.Data, f.OSABI, f.ABIVersion, f.Machine)
	number := ""
	numbered := f.Section(gccDecls) == nil
	for _, s := range f.Sections {
		name := s.Name
		own, is := strings.CutPrefix(name, gccSections)
		if i := strings.LastIndexByte(own, '.'); is && numbered && name != gccWords {
			if i <= 0 || number != "" && own[i+1:] != number {
				return sum, false
			}
			number, name = own[i+1:], own[:i]
		}
		var data []byte
		if s.Type != elf.SHT_NULL && s.Type != elf.SHT_NOBITS && s.Name != ".shstrtab" { // that has the names
			end := s.Offset + s.FileSize
			if end < s.Offset || end > uint64(len(b)) {
				return sum, false
			}
			data = b[s.Offset:end]
		}
		if s.Name == gccWords {
			data = bytes.ReplaceAll(data, []byte(temporary), nil)
		}
		fmt.Fprintf(h, "%q %v %v %v %v %v %v %v %v\n", name, is, s.Type, s.Flags, s.Link, s.Info, s.Addralign, s.Entsize, len(data))
		h.Write(data)
	}
	if numbered {
		_, err = strconv.ParseUint(number, 16, 64)
	}
	return [sha256.Size]byte(h.Sum(nil)), err == nil
}
