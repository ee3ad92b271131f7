package sources

import (
	"slices"
	"strings"
)

// pack implements Notes for the texts that it packs.

// scan scans a text that is packed. file is what name leads to.
func (p *pack) scan(name, file string, b []byte) error {
	t := NewText(name, b, p.o.Asm)
	t.realDir = file[:strings.LastIndexByte(file, '/')+1]
	err := p.finder.scan(t, p)
	if _, once := p.onces[base(name)]; once {
		p.noteOnce(file)
	}
	return err
}

// Doubt returns a reason to compile here.
func (p *pack) Doubt(r Reason) error { return r }

// Once records a header that is read only once.
func (p *pack) Once(t *Text) { p.noteOnce(t.name) }

// Import records that #import is used.
func (p *pack) Import() { p.imports = true }

// System does nothing, as the compiler's list has the system's headers too.
func (p *pack) System() {}

// Renames does nothing, as the compiler's list has what it read.
func (p *pack) Renames() {}

// Unsure records that a message may quote a file that is not packed.
func (p *pack) Unsure() { p.Pack.Unsure = true }

// Clock returns a reason for __TIME__ and the like: the host compiles at another moment. If the command
// defines the name, it is a macro like any other.
func (p *pack) Clock(c Clock) error {
	if p.o.Clock[c] {
		return nil
	}
	return ErrTime
}

// Header packs a file that exists without being read, and so is in no list: wherever the compiler may look,
// what exists is packed.
func (p *pack) Header(t *Text, name string, quoted, content bool) error {
	return p.candidates(t, name, quoted, content)
}

// Assembly packs what the assembler reads, wherever it may find it.
func (p *pack) Assembly(name string, more bool) error {
	for _, dir := range slices.Concat([]string{""}, p.o.Dirs, p.o.AsmDirs) {
		file := name
		if dir != "" && file[0] != '/' {
			file = join(dir, file)
		}
		if err := p.further(file, more); err != nil {
			return err
		}
	}
	return nil
}

// maxMarks bounds the files that are packed for the sake of messages alone.
const maxMarks = 64

// Line packs a file whose lines are quoted in messages.
func (p *pack) Line(name string) {
	if p.known(name) {
		return
	}
	if p.marked >= maxMarks {
		p.Unsure()
		return
	}
	p.marked++
	if p.further(name, false) != nil {
		p.Unsure()
	}
}

// candidates packs every file that a header's name in t may mean; with content, its content too.
func (p *pack) candidates(t *Text, name string, quoted, content bool) error {
	files, names := Mapped(p.maps, name)
	for _, file := range files {
		if err := p.candidate(file, content); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := p.searched(t, name, quoted, content); err != nil {
			return err
		}
	}
	return nil
}

// searched does the same for a name of which header maps make nothing else.
func (p *pack) searched(t *Text, name string, quoted, content bool) error {
	if name[0] == '/' {
		return p.candidate(name, content)
	}
	if quoted {
		for _, dir := range append([]string{t.dir, t.realDir}, p.includers()...) {
			if err := p.candidate(dir+name, content); err != nil {
				return err
			}
		}
	}
	// The rest of the search is the same for every including file.
	key := "<" + name
	if content {
		key = "@" + name
	}
	if p.wasAsked(key) {
		return nil
	}
	dirs, known := p.searchList()
	if !known {
		return ErrHasInclude
	}
	for _, dir := range dirs {
		if err := p.candidate(join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}

// includers returns the directories beside whose files quoted headers are looked for, wherever they are named.
func (p *pack) includers() []string {
	if p.o.Includers && p.beside == nil {
		p.beside = []string{""}
		for _, name := range p.o.Names {
			if dir := name[:strings.LastIndexByte(name, '/')+1]; !slices.Contains(p.beside, dir) {
				p.beside = append(p.beside, dir)
			}
		}
	}
	return p.beside
}

// wasAsked reports whether key has been asked for before.
func (p *pack) wasAsked(key string) bool {
	_, was := p.asked[key]
	p.asked[key] = struct{}{}
	return was
}

// join returns the name of a file in dir, as a compiler spells it.
func join(dir, name string) string {
	switch {
	case dir == "." || dir == "":
		return "./" + name
	case dir[len(dir)-1] == '/':
		return dir + name
	}
	return dir + "/" + name
}
