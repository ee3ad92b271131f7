package sources

import (
	"bytes"
	"strings"
	"syscall"
)

// gcc leaves a file out of its list if it did not read it because of a #pragma once, or an #import, in it
// or in another file with the same content: a link to it, or a copy. But it looks for that file, and fails
// without it. So if headers have the pragma, everything that is included under the base name of one of them
// is packed, wherever it may be found. For a name that is nowhere in the list, only files of the same size
// and age are packed: gcc compares the contents of no others.

// likeness is what two files have in common before gcc compares them.
type likeness struct {
	size  uint64
	mtime int64 // seconds since 1970
}

// noteOnce records a header that is read only once.
func (p *pack) noteOnce(name string) {
	if p.onces == nil {
		p.onces = make(map[string]struct{})
	}
	p.onces[base(name)] = struct{}{}
}

// packTwins scans what is packed once more, for the names of such headers.
func (p *pack) packTwins() error {
	if p.onces == nil && !p.imports || !p.o.Twins {
		return nil
	}
	listed := make(map[string]struct{}, len(p.o.Names))
	if !p.imports { // it concerns files of all names
		for _, name := range p.o.Names {
			listed[base(name)] = struct{}{}
		}
	}
	p.like = make(map[likeness]struct{})
	for i := range p.Files {
		f := &p.Files[i]
		if _, once := p.onces[base(f.Name)]; once || p.imports {
			p.like[likeness{f.Len, f.MTime / 1e9}] = struct{}{}
		}
	}
	if err := p.flush(); err != nil {
		return err
	}
	at := p.o.Off
	for i := range p.Files {
		f := &p.Files[i]
		from := at
		at += f.Len
		if f.Len == 0 || strings.HasPrefix(f.Name, "/usr/") {
			continue
		}
		b := p.buf[:0]
		if f.Len > uint64(cap(b)) {
			b = make([]byte, 0, f.Len)
		}
		b = b[:f.Len]
		if n, err := syscall.Pread(p.o.FD, b, int64(from)); err != nil || n < len(b) {
			return ErrTooBig // the slot's memory is exhausted
		}
		if err := p.twins(NewText(f.Name, b, false), listed); err != nil {
			return err
		}
	}
	return nil
}

// twins packs what t includes by the base name of a header that is read once, or by a name that is not listed.
func (p *pack) twins(t *Text, listed map[string]struct{}) error {
	for rest := t.b; ; {
		i := bytes.IndexByte(rest, '#')
		if i < 0 {
			return nil
		}
		rest = skipBlank(rest[i+1:])
		word, after := cutWord(rest[:min(len(rest), 16)])
		if w := string(word); w != "include" && w != "include_next" && w != "import" {
			continue
		}
		rest = rest[len(word):]
		if len(after) == 0 {
			continue
		}
		name, quoted, ok := headerName(skipBlank(rest))
		if !ok {
			continue
		}
		if _, once := p.onces[base(name)]; !once {
			if _, ok := listed[base(name)]; !ok {
				if err := p.alike(t, name, quoted); err != nil {
					return err
				}
			}
			continue
		}
		if dirs, known := p.searchList(); !known || len(dirs) == 0 {
			if err := p.further(t.dir+name, false); err != nil {
				return err
			}
			continue // where else is unknown
		}
		if err := p.candidates(t, name, quoted, true); err != nil {
			return err
		}
	}
}

// alike packs the files that a header's name in t may mean and that resemble one which is read once.
func (p *pack) alike(t *Text, name string, quoted bool) error {
	look := func(file string) error {
		var st syscall.Stat_t
		if p.known(file) || stat(file, &st) != nil {
			return nil
		}
		if _, like := p.like[likeness{uint64(st.Size), st.Mtim.Sec}]; !like {
			return nil
		}
		return p.further(file, false)
	}
	if name[0] == '/' {
		return look(name)
	}
	if quoted {
		if err := look(t.dir + name); err != nil {
			return err
		}
	}
	if p.wasAsked("=" + name) {
		return nil
	}
	dirs, _ := p.searchList() // where else is unknown
	for _, dir := range dirs {
		if err := look(join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func base(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
