package sources

import "strings"

// pack takes the notes of the texts that it packs.

// scan looks through a text that is packed. file is what name leads to.
func (p *pack) scan(name, file string, b []byte) error {
	t := NewText(name, b, p.o.Asm)
	t.realDir = file[:strings.LastIndexByte(file, '/')+1]
	err := p.finder.scan(t, p)
	if _, once := p.onces[base(name)]; once {
		p.noteOnce(file)
	}
	return err
}

// Doubt is a reason to compile here.
func (p *pack) Doubt(r Reason) error { return r }

// Once notes a header that is read once only.
func (p *pack) Once(t *Text) { p.noteOnce(t.name) }

// Import notes that something is read by #import.
func (p *pack) Import() { p.imports = true }

// Renames means nothing here, as the compiler's list has what it read.
func (p *pack) Renames() {}

// Unsure notes that a message may quote a file that is not packed.
func (p *pack) Unsure() { p.Pack.Unsure = true }

// Clock judges __TIME__ and the like: the moment of the compile is another one over
// there. A name that the command defines is a macro like any other.
func (p *pack) Clock(c Clock) error {
	if p.o.Clock[c] {
		return nil
	}
	return ErrTime
}

// Header packs a file that is there and is not read, which is in no list: wherever
// the compiler may look, what exists is packed.
func (p *pack) Header(t *Text, name string, quoted, content bool) error {
	return p.candidates(t, name, quoted, content)
}

// Assembly packs what the assembler reads, wherever it may find it.
func (p *pack) Assembly(name string, more bool) error {
	if p.o.AsmDirs {
		return ErrIncbin
	}
	for _, dir := range append([]string{""}, p.o.Dirs...) {
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

// maxMarks is how many files may be packed for the sake of messages alone.
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

// candidates packs every file that a header's name in t may mean. content: also
// what is in it.
func (p *pack) candidates(t *Text, name string, quoted, content bool) error {
	if name[0] == '/' {
		return p.candidate(name, content)
	}
	if quoted {
		for _, dir := range [...]string{t.dir, t.realDir} {
			if err := p.candidate(dir+name, content); err != nil {
				return err
			}
		}
	}
	// The rest of the search is the same wherever the name stands.
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

// wasAsked says whether it was asked for key before.
func (p *pack) wasAsked(key string) bool {
	_, was := p.asked[key]
	p.asked[key] = struct{}{}
	return was
}

// join is the name of a file in dir, as a compiler spells it.
func join(dir, name string) string {
	switch {
	case dir == "." || dir == "":
		return "./" + name
	case dir[len(dir)-1] == '/':
		return dir + name
	}
	return dir + "/" + name
}
