package inputs

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// An include may leave it to a macro which header it reads, for example so that a user of a project can
// supply one of his own. If everything that the compile reads, and its command, only give that macro header
// names as values, all of these are followed, whichever applies. If the macro could get a value in any
// other way, all macros are searched for it (expand.go), or the compiler is asked.

// macro is an include by a macro, and its position.
type macro struct {
	sources.Include
	from []*dir
	in   *entry
}

// macros follows what macros name in the texts that were read. It must be called again when that leads to
// further texts.
func (w *walk) macros() *Doubt {
	for _, m := range w.named {
		if m.Macro == "" {
			if d := w.expanded(m, m.Line); d != nil {
				return d
			}
			continue
		}
		certain := plainMacro(m.Macro) && !slices.ContainsFunc(w.q.Words, func(s string) bool { return strings.Contains(s, "traditional") })
		var values []value
		for _, word := range w.q.Words {
			if !strings.Contains(word, m.Macro) {
				continue
			}
			header, quoted, ok := sources.HeaderName(strings.TrimPrefix(strings.TrimPrefix(word, "-D"), m.Macro+"="))
			if certain = certain && ok; ok {
				values = append(values, value{m.Macro, header, quoted})
			}
		}
		for _, x := range w.texts {
			for _, v := range x.values {
				if v.macro == m.Macro {
					values = append(values, v)
				}
			}
		}
		certain = certain && !w.otherwise(m.Macro)
		for _, v := range values {
			certain = certain && (v.quoted || w.literal(v.header))
			if d := w.value(m, v); d != nil {
				return d
			}
		}
		if !certain {
			if d := w.expanded(m, m.Macro); d != nil {
				return d
			}
		}
	}
	for name := range w.modules {
		if strings.HasPrefix(name, "__") || w.replaced(name) { // it may stand for a header, as __FILE__ does
			w.noticed(DoubtComputed, name)
			break
		}
	}
	return nil
}

// followed is an include by a macro that has already been followed.
type followed struct {
	in     *entry
	header string
	quoted bool
	next   bool
}

// value follows what an include by a macro may read.
func (w *walk) value(m macro, v value) *Doubt {
	is := followed{m.in, v.header, v.quoted, m.Next}
	if _, known := w.values[is]; known {
		return nil
	}
	w.values[is] = struct{}{}
	defer w.directives(m.in)()
	if d := w.header(v.header, v.quoted, m.Next, m.from...); d != nil {
		return d
	}
	if m.in == w.hits[0] && w.q.GCC {
		return w.precompiled(m.in.dir, v.header, v.quoted)
	}
	return nil
}

// expanded follows everything that an include by macros with other values than header names may read.
func (w *walk) expanded(m macro, line string) *Doubt {
	if w.doubt != nil {
		return nil // the compiler is asked anyway
	}
	x, d := w.expand(line)
	if d != nil {
		return d
	}
	for _, v := range x.headers {
		if d := w.value(m, v); d != nil {
			return d
		}
	}
	if !x.all {
		w.noticed(DoubtComputed, m.in.path())
	}
	return nil
}

// otherwise reports whether a text may define the macro as anything but a header's name.
func (w *walk) otherwise(name string) bool {
	sum := sumOf(name)
	return slices.ContainsFunc(w.texts, func(x *text) bool { return x.blurred || slices.Contains(x.defined, sum) })
}

// literal reports whether a header's name in <> is free of words that are macros, which would be replaced.
func (w *walk) literal(header string) bool {
	for word := range strings.FieldsFuncSeq(header, func(r rune) bool { return strings.ContainsRune("./+-", r) }) {
		if !plainMacro(word) || w.replaced(word) {
			return false
		}
	}
	return true
}

// replaced reports whether a word may be a macro, other than those that compilers define with an underscore.
func (w *walk) replaced(word string) bool {
	if slices.Contains(predefined[:], word) || w.otherwise(word) {
		return true
	}
	for _, x := range w.texts {
		if slices.ContainsFunc(x.values, func(v value) bool { return v.macro == word }) {
			return true
		}
	}
	for _, s := range w.q.Words {
		for name := range commandMacros(s) {
			if name == word {
				return true
			}
		}
	}
	return false
}

// plainMacro reports whether a name is not one that compilers themselves define as something that could be
// a header's name, such as __FILE__.
func plainMacro(name string) bool {
	return !strings.HasPrefix(name, "__") && (len(name) < 2 || name[0] != '_' || name[1] < 'A' || name[1] > 'Z')
}

// predefined lists compilers' macros that look like words of a path.
var predefined = [...]string{
	"linux", "unix", "i386", "arm", "mips", "sparc", "sun", "vax", "m68k", "pdp11", "PPC", "hppa", "sgi", "hpux", "tahoe", "spur", "n16", "mc68000", "R3000", "R4000",
	"LANGUAGE_C", "MIPSEB", "MIPSEL", "WIN32", "WINNT", "cris", "sh", "ia64", "nios2", "near", "far", "huge",
}

// contextual lists compilers' macros that only count before a type's name, which a path does not have.
var contextual = [...]string{"vector", "pixel", "bool"}

// sumOf hashes a macro's name. Names with the same sum only cause an unnecessary doubt.
func sumOf[S string | []byte](name S) uint32 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}
