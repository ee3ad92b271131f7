package inputs

// Kinds is a set of the ways in which a compile's texts name files, and of how the searches for them ended. A compiler may
// treat any of them specially: compiles with the same Kinds have exercised the same ways.
type Kinds uint64

// Ways in which a name is looked for, once for names in the source and once for those in what it includes.
const (
	kindAbsolute Kinds = 1 << iota
	kindNext           // #include_next
	kindBeside         // in quotes, beside the file that asks
	kindQuoted         // in quotes, elsewhere
	kindAngle
	kindNowhere // there is no such file
	kindMapped  // by a header map
	kindAsked   // __has_include
	kindLine
	kindAssembly

	kindsEach = iota
)

// What holds for a compile as a whole.
const (
	kindComputed Kinds = 1 << (2*kindsEach + iota) // by a macro
	kindForced
	kindImported
	kindMissing // a directory of the command does not exist
	kindOdd     // a file in the place of a directory
	kindFurther // a file of the command's, or a list of the compiler's
)

// tried records a way in which a name was looked for.
func (w *walk) tried(k Kinds) {
	if w.nested {
		k <<= kindsEach
	}
	w.kinds |= k
}

// wholeKinds returns the kinds that the query determines, and those of macros.
func (w *walk) wholeKinds() (k Kinds) {
	for kind, is := range map[Kinds]bool{
		kindComputed: len(w.named) > 0, kindForced: len(w.q.Forced)+len(w.q.Given) > 0, kindImported: w.q.Units || len(w.q.Imported) > 0,
		kindMissing: len(w.search.user) < len(w.q.Quote)+len(w.q.Angle)+len(w.q.System)+len(w.q.After), kindOdd: len(w.odd) > 0, kindFurther: len(w.q.More) > 0,
	} {
		if is {
			k |= kind
		}
	}
	return k
}
