package move

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"
)

// object is an object file of 64 bits, little endian, as GNU's assembler lays it out: a header, the sections one behind the other, and
// the table of their headers.
type object struct {
	data     []byte
	sections []elf.Section64
	order    []int // of all sections but the first, as they are in the file
	names    int   // section of the sections' names
}

// relocations is the type of sections of relocations with addends.
const relocations elf.SectionType = 4

var le = binary.LittleEndian

const (
	fileHeaderLen    = 64
	sectionHeaderLen = 64
	symbolLen        = 24
	relocationLen    = 24
)

// parse parses an object of a machine whose relocations have addends apart from what they are applied to, and name strings by section
// and addend, if it is laid out as GNU's assembler does that.
func parse(data []byte) (*object, bool) {
	if len(data) < fileHeaderLen || len(data) > math.MaxInt32 || string(data[:7]) != elf.ELFMAG+"\x02\x01\x01" || elf.Type(le.Uint16(data[16:])) != elf.ET_REL {
		return nil, false
	}
	if m := elf.Machine(le.Uint16(data[18:])); m != elf.EM_X86_64 && m != elf.EM_AARCH64 {
		return nil, false
	}
	table, n := le.Uint64(data[40:]), int(le.Uint16(data[60:]))
	o := &object{data: data, names: int(le.Uint16(data[62:]))}
	if le.Uint16(data[58:]) != sectionHeaderLen || o.names >= n || table > uint64(len(data)) || uint64(len(data))-table != uint64(n)*sectionHeaderLen {
		return nil, false
	}
	o.sections = make([]elf.Section64, n)
	if _, err := binary.Decode(data[table:], le, o.sections); err != nil {
		return nil, false
	}
	for i := range o.sections {
		s := &o.sections[i]
		switch elf.SectionType(s.Type) {
		case elf.SHT_NULL, elf.SHT_PROGBITS, elf.SHT_SYMTAB, elf.SHT_STRTAB, relocations, elf.SHT_NOBITS, elf.SHT_NOTE, elf.SHT_GROUP,
			elf.SHT_INIT_ARRAY, elf.SHT_FINI_ARRAY, elf.SHT_PREINIT_ARRAY:
		default:
			return nil, false
		}
		if s.Off > table || o.len(i) > table-s.Off || s.Addralign > 1<<16 || s.Addralign&(s.Addralign-1) != 0 {
			return nil, false
		}
		if int(s.Link) >= n || elf.SectionType(s.Type) == relocations && int(s.Info) >= n {
			return nil, false
		}
		if i > 0 {
			o.order = append(o.order, i)
		}
	}
	slices.SortStableFunc(o.order, func(i, j int) int {
		if c := cmp.Compare(o.sections[i].Off, o.sections[j].Off); c != 0 {
			return c
		}
		return cmp.Compare(min(o.len(i), 1), min(o.len(j), 1)) // what is empty ends where it begins
	})
	// Otherwise it cannot be laid out anew. It also means that no two sections overlap.
	at, end := o.layout(0, 0)
	before := uint64(fileHeaderLen)
	for _, i := range o.order {
		if at[i] != o.sections[i].Off || !zero(data[before:at[i]]) {
			return nil, false
		}
		before = at[i] + o.len(i)
	}
	return o, end == table && zero(data[before:end])
}

func zero(b []byte) bool { return !slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) }

// layout returns where GNU's assembler puts each section if one of them has another length of n bytes, and the table of headers.
func (o *object) layout(section int, n uint64) (at []uint64, table uint64) {
	at, table = make([]uint64, len(o.sections)), fileHeaderLen
	for _, i := range o.order {
		at[i] = aligned(table, o.sections[i].Addralign)
		if table = at[i] + o.len(i); i == section {
			table = at[i] + n
		}
	}
	return at, aligned(table, 8)
}

// aligned returns the first multiple of align, which is 0 or a power of two, from at on.
func aligned(at, align uint64) uint64 {
	if align > 1 {
		at = (at + align - 1) &^ (align - 1)
	}
	return at
}

// len returns how many bytes of the file a section has.
func (o *object) len(i int) uint64 {
	if elf.SectionType(o.sections[i].Type) == elf.SHT_NOBITS {
		return 0
	}
	return o.sections[i].Size
}

func (o *object) content(i int) []byte { return o.data[o.sections[i].Off:][:o.len(i):o.len(i)] }

// is reports whether a section has a name.
func (o *object) is(i int, name string) bool {
	names := o.content(o.names)
	at := min(uint64(o.sections[i].Name), uint64(len(names)))
	return bytes.HasPrefix(names[at:], []byte(name+"\x00"))
}

// find returns the section of a name, if there is exactly one, which no symbol but its own is in.
func (o *object) find(name string) (at int, ok bool) {
	for i := range o.sections {
		if o.is(i, name) {
			if at > 0 {
				return 0, false
			}
			at = i
		}
	}
	for i := range o.sections {
		if elf.SectionType(o.sections[i].Type) != elf.SHT_SYMTAB {
			continue
		}
		for x := o.content(i); len(x) >= symbolLen; x = x[symbolLen:] {
			if int(le.Uint16(x[6:])) == at && (elf.ST_TYPE(x[4]) != elf.STT_SECTION || le.Uint64(x[8:]) != 0) && at > 0 {
				return 0, false
			}
		}
	}
	return at, at > 0
}

// reference is a relocation that leads into a section.
type reference struct {
	of     int    // the section that it applies to
	in     int    // that of the relocation
	at     uint64 // its addend's place there
	addend uint64
}

// references returns the relocations that lead into a section by the symbol of that section.
func (o *object) references(into int) (all []reference) {
	for i := range o.sections {
		s := &o.sections[i]
		if elf.SectionType(s.Type) != relocations {
			continue
		}
		symbols, content := o.content(int(s.Link)), o.content(i)
		for at := 0; len(content)-at >= relocationLen; at += relocationLen {
			n := uint64(le.Uint32(content[at+12:]))
			if n < uint64(len(symbols))/symbolLen && int(le.Uint16(symbols[n*symbolLen+6:])) == into {
				all = append(all, reference{int(s.Info), i, uint64(at + 16), le.Uint64(content[at+16:])})
			}
		}
	}
	return all
}

// with returns the object as it is with another content of a section, and where its sections are then; nil if it would be far longer,
// which the objects of no assembler are.
func (o *object) with(section int, content []byte) (out []byte, at []uint64) {
	at, table := o.layout(section, uint64(len(content)))
	if table > 2*uint64(len(o.data)+len(content)) {
		return nil, nil
	}
	sections := slices.Clone(o.sections)
	out = make([]byte, table, table+uint64(len(sections))*sectionHeaderLen)
	copy(out, o.data[:fileHeaderLen])
	le.PutUint64(out[40:], table)
	for _, i := range o.order {
		sections[i].Off = at[i]
		if i == section {
			sections[i].Size = uint64(len(content))
			copy(out[at[i]:], content)
		} else {
			copy(out[at[i]:], o.content(i))
		}
	}
	out, _ = binary.Append(out, le, sections) // which have a fixed size
	return out, at
}
