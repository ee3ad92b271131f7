package modules

import (
	"bytes"
	"slices"
)

// Bitcode is what a file of LLVM's bitcode tells of others.
type Bitcode struct {
	Paths []string // of the modules that an index of ThinLTO names, as spelt for the linker that made it
	Reads bool     // the assembly in it may read a file
}

// bitcode is what a file of it begins with.
const bitcode = 'B' | 'C'<<8 | 0xc0<<16 | 0xde<<24

// What ReadBitcode reads of the format of LLVM's modules.
const (
	moduleBlock    = 8
	constantsBlock = 11
	functionBlock  = 12
	pathsBlock     = 19

	moduleAssembly = 4 // in the module block: the assembly beside the functions
	pathsEntry     = 1 // in the block of paths: a number, and the path of a module

	// In the block of constants: data of the program. What the assembly in functions is, has changed from version to version.
	constantString, constantCString, constantData = 8, 9, 22
)

// ReadBitcode reads a file of size bytes, as Clang does. ok is false if it is not bitcode, or of a form that is not known here.
func ReadBitcode(read func(b []byte, off int64) bool, size int64) (c Bitcode, ok bool) {
	r := stream{read: read, end: uint64(size) * 8, blocks: []uint64{moduleBlock, constantsBlock, functionBlock, pathsBlock}}
	if size < 8 || size%4 != 0 || r.fixed(32) != bitcode {
		return Bitcode{}, false
	}
	var chars []byte
	r.record = func(block uint64, ops []uint64, _ string) {
		switch code := ops[0]; {
		case block == pathsBlock && code == pathsEntry && len(ops) > 2:
			path, text := characters(nil, ops[2:])
			if !text || len(path) > maxName {
				r.bad = true
				return
			}
			c.Paths = append(c.Paths, string(path))
		case block == moduleBlock && code == moduleAssembly,
			block == constantsBlock && len(ops) > len(".incbin") && code != constantString && code != constantCString && code != constantData:
			chars, _ = characters(chars[:0], ops[1:])
			c.Reads = c.Reads || readsFile(chars)
		}
	}
	for r.at < r.end && !r.bad {
		if r.fixed(2) != enterBlock {
			return Bitcode{}, false
		}
		r.block(0)
	}
	return c, !r.bad
}

// readsFile reports whether assembly may make the assembler read a file. Macros could spell the words for that.
func readsFile(asm []byte) bool {
	if bytes.IndexByte(asm, '.') < 0 {
		return false
	}
	asm = bytes.ToLower(asm)
	for _, word := range [...]string{".incbin", ".include", ".macro", ".rep", ".irp"} {
		if bytes.Contains(asm, []byte(word)) {
			return true
		}
	}
	return false
}

// characters appends numbers that are characters to b. text is false if some are not; these are left out.
func characters(b []byte, ops []uint64) (_ []byte, text bool) {
	b, text = slices.Grow(b, len(ops)), true
	for _, v := range ops {
		if v == 0 || v > 255 {
			text = false
			continue
		}
		b = append(b, byte(v))
	}
	return b, text
}
