package inputs

import (
	"crypto/sha256"
	"slices"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// A macro may stand for __has_include, as QT_HAS_INCLUDE does. Its uses may be in any text, also in one that was read
// before its definition. So once a text defines such a macro, all texts are searched for its name, each one once.

// maxAliases bounds such macros in one compile.
const maxAliases = 32

// use has what a text asks by one such macro.
type use struct {
	asked   []asked
	aliases []string // further macros, which stand for that one
	doubt   bool     // it asks for a header that a macro names
}

// ask follows the names that the texts read so far ask for through macros that stand for __has_include. Call it again
// after reading further texts.
func (w *walk) ask() *Doubt {
	for i := 0; i < len(w.aliases); i++ {
		a := &w.aliases[i]
		for a.texts < len(w.readers) {
			e := w.readers[a.texts]
			u := e.file.uses[a.name]
			if u == nil {
				if w.over(e) {
					return again
				}
				var d *Doubt
				if u, d = w.t.uses(e, a.name); d != nil {
					return d
				}
			}
			a.texts++
			for _, name := range u.aliases {
				w.alias(name)
				a = &w.aliases[i] // it may have moved
			}
			if u.doubt {
				w.noticed(DoubtHasInclude, e.path())
			}
			end := w.directives(e)
			d := w.probes(w.from(e), u.asked)
			if end(); d != nil {
				return d
			}
		}
	}
	return nil
}

// alias is a macro that stands for __has_include.
type alias struct {
	name  string
	texts int // how many of the walk's texts have been searched for it
}

// alias records such a macro.
func (w *walk) alias(name string) {
	switch {
	case slices.ContainsFunc(w.aliases, func(a alias) bool { return a.name == name }):
	case len(w.aliases) == maxAliases:
		w.noticed(DoubtHasInclude, name)
	default:
		w.aliases = append(w.aliases, alias{name: name})
	}
}

// probes records all files that headers may mean for which a text in the directories from asks.
func (w *walk) probes(from []*dir, all []asked) *Doubt {
	for _, a := range all {
		w.tried(kindAsked)
		w.directive = !a.content
		if d := w.every(a.name, a.quoted, false, from...); d != nil {
			return d
		}
	}
	return nil
}

// uses finds what the text of e asks by a macro.
func (t *Table) uses(e *entry, name string) (*use, *Doubt) {
	b, d := t.reread(e)
	if d != nil {
		return nil, d
	}
	x, u := &text{}, &use{}
	u.doubt = sources.NewText("", b, false).Uses(name, x) != nil || x.doubt != ""
	u.asked, u.aliases = x.asked, x.aliases
	if e.file.uses == nil {
		e.file.uses = make(map[string]*use)
	}
	e.file.uses[name] = u
	t.readers[0].keep(b)
	return u, nil
}

// reread returns the text of e, which was read before.
func (t *Table) reread(e *entry) ([]byte, *Doubt) {
	b, err := readFile(e.path(), e.target(), t.readers[0].buf[:0])
	if err != nil {
		return nil, &Doubt{Why: reasonOf(err), Name: e.path()}
	}
	if !e.file.settled && sha256.Sum256(b) != e.file.id { // its stamp may not reveal a change
		return nil, &Doubt{Why: DoubtChanged, Name: e.path()}
	}
	return b, nil
}
