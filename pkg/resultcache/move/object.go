package move

import (
	"bytes"
	"slices"
	"strings"
)

// Object returns an object that gcc and GNU's assembler have made, with debug information, in the directory from, as they would have made
// it in the directory to. ok is false if it is not known how.
//
// By DWARF 5, all names of files and directories stand in a section of their own, and whatever uses one does so by a relocation. So
// that section changes, and the relocations that lead into it. gcc's strings come first: the directory, and the name of the source, in
// the order of a hash table. The assembler's follow, the directory first.
//
// The source must have no line directive with an absolute name: where that is one of a file in from, the assembler has named it by the
// same string, and would not in another directory.
func Object(data []byte, from, to string) (moved []byte, ok bool) {
	if min(len(from), len(to)) < shortest {
		return nil, false
	}
	o, ok := parse(data)
	if !ok {
		return nil, false
	}
	at, ok := o.find(".debug_line_str")
	if !ok {
		return nil, false
	}
	names := stringsOf(o.content(at))
	if len(names) < 3 {
		return nil, false
	}
	references := o.references(at)
	info := make(map[uint64]bool) // strings that the compiler uses
	for _, r := range references {
		if o.is(r.of, ".debug_info") {
			info[r.addend] = true
		}
	}
	if len(info) != 2 || !info[names[0].at] || !info[names[1].at] {
		return nil, false
	}
	if names, ok = redirected(names, from, to); !ok {
		return nil, false
	}
	var content []byte
	places := make(map[uint64]uint64, len(names)) // before and after
	for _, s := range names {
		places[s.at] = uint64(len(content))
		content = append(append(content, s.text...), 0)
	}
	moved, sections := o.with(at, content)
	if moved == nil {
		return nil, false
	}
	for _, r := range references {
		place, known := places[r.addend]
		if !known {
			return nil, false
		}
		le.PutUint64(moved[sections[r.in]+r.at:], place)
	}
	return moved, true
}

// shortest is how long the name of a directory has to be: gcc writes short strings elsewhere.
const shortest = 8

// placed is a string in a section, and where.
type placed struct {
	text string
	at   uint64
}

// stringsOf returns the strings of a section, or nil if it has something else as well.
func stringsOf(section []byte) (all []placed) {
	for at := 0; at < len(section); {
		n := bytes.IndexByte(section[at:], 0)
		if n < 0 {
			return nil
		}
		all = append(all, placed{string(section[at:][:n]), uint64(at)})
		at += n + 1
	}
	return all
}

// redirected returns names with the directory to in place of from, in the order in which they are then.
func redirected(names []placed, from, to string) (out []placed, ok bool) {
	out = slices.Clone(names)
	dir := slices.IndexFunc(out[:2], func(s placed) bool { return s.text == from })
	if dir < 0 || out[2].text != from {
		return nil, false
	}
	source := out[1-dir].text
	if strings.HasPrefix(source, "/") || dirFirst(source, from) != (dir == 0) {
		return nil, false
	}
	if slices.ContainsFunc(out[3:], func(s placed) bool { return s.text == from || s.text == to }) { // the assembler has each once
		return nil, false
	}
	out[dir].text, out[2].text = to, to
	if dirFirst(source, to) != (dir == 0) {
		out[0], out[1] = out[1], out[0]
	}
	return out, true
}

// dirFirst reports whether gcc writes the directory before the name of the source: it has both in a hash table with 13 places, the name
// for longer.
func dirFirst(source, dir string) bool {
	of, at := hash(source)%13, hash(dir)%13
	if of == at {
		at = (at + 1 + hash(dir)%11) % 13
	}
	return at < of
}

// hash is gcc's htab_hash_string.
func hash(s string) (h uint32) {
	for i := range len(s) {
		h = h*67 + uint32(s[i]) - 113
	}
	return h
}
