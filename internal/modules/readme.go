package modules

import "encoding/binary"

// maxReadme is the greatest size of the part that Readme returns, in bytes.
const maxReadme = 4 << 20

// Sizes and places in files of ELF's 32-bit class, which gcc uses for compiled modules on all machines, in bytes.
const (
	elfHeader  = 52
	elfSection = 40
	elfStrings = 3 // a section's type
)

// readmeName is the section that says, for people, what a module was compiled from.
const readmeName = ".gnu.c++.README\x00"

// Readme returns the part of a module compiled by gcc that Imports takes, without reading the rest: a section of text.
// read fills b from an offset of the file, and reports whether it could. ok is false if the file is no such module.
func Readme(read func(b []byte, off int64) bool) (text string, ok bool) {
	var h [elfHeader]byte
	if !read(h[:], 0) || string(h[:5]) != "\x7fELF\x01" {
		return "", false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if h[5] == 2 {
		order = binary.BigEndian
	}
	table, n, names := int64(order.Uint32(h[32:])), int64(order.Uint16(h[48:])), int64(order.Uint16(h[50:]))
	section := func(i int64) (s [elfSection]byte, ok bool) {
		return s, read(s[:], table+i*elfSection)
	}
	if order.Uint16(h[46:]) != elfSection {
		return "", false
	}
	first, ok := section(0)
	if !ok {
		return "", false
	}
	if n == 0 { // there are more than fit
		n = int64(order.Uint32(first[20:]))
	}
	if names == 0xffff {
		names = int64(order.Uint32(first[24:]))
	}
	strings, ok := section(names)
	if !ok {
		return "", false
	}
	const batch = 32
	for end := n; end > 0; end = max(0, end-batch) { // it is one of the last ones
		from := max(0, end-batch)
		b := make([]byte, (end-from)*elfSection)
		if !read(b, table+from*elfSection) {
			return "", false
		}
		for ; len(b) > 0; b = b[elfSection:] {
			var name [len(readmeName)]byte
			if order.Uint32(b[4:]) != elfStrings || !read(name[:], int64(order.Uint32(strings[16:]))+int64(order.Uint32(b))) || string(name[:]) != readmeName {
				continue
			}
			size := order.Uint32(b[20:])
			if size > maxReadme {
				return "", false
			}
			text := make([]byte, size)
			if !read(text, int64(order.Uint32(b[16:]))) {
				return "", false
			}
			return string(text), true
		}
	}
	return "", false
}
