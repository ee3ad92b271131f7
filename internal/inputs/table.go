package inputs

import (
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// Options configures a Table. A zero field takes the default in parentheses.
type Options struct {
	MaxFile  int64 // bytes of a file in a Set (64 MiB)
	MaxFiles int   // files in a Set (20,000)
	// Entries and Units bound what is kept: names in directories (200,000), and compile
	// commands (4,000). When it is exceeded, the Table forgets everything and starts over.
	Entries, Units int
}

// Table knows files, directories and units. It may be used concurrently.
type Table struct {
	o Options

	mu      sync.Mutex
	gen     uint64 // of checks: one for each Resolve and Learn
	dirs    map[string]*dir
	files   map[inode]*file
	devices map[uint64]bool // whether the file system of each device shows changes reliably
	units   map[string]*resolved
	entries int
	readers []*reader // the first one belongs to the goroutine that holds mu
	ahead   *ahead    // what is being read in this generation; nil: nothing
	path    []byte    // buffer for paths

	bases []*Set // bases of other sets, most recently used first

	used []*dir // directories checked in this generation

	turn int // maxTurn; less in tests
}

// New returns a Table.
func New(o Options) *Table {
	if o.MaxFile == 0 {
		o.MaxFile = 64 << 20
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = 20000
	}
	if o.Entries == 0 {
		o.Entries = 200000
	}
	if o.Units == 0 {
		o.Units = 4000
	}
	t := &Table{o: o, readers: []*reader{newReader()}, turn: maxTurn}
	t.forget()
	return t
}

// forget empties the table.
func (t *Table) forget() {
	t.dirs, t.files = make(map[string]*dir), make(map[inode]*file)
	t.devices, t.units = make(map[uint64]bool), make(map[string]*resolved)
	t.entries, t.used, t.bases = 0, nil, nil
}

// Stats holds how much a Table knows.
type Stats struct{ Files, Dirs, Units int }

// Stats returns how much t knows.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Files: len(t.files), Dirs: len(t.dirs), Units: len(t.units)}
}

// begin starts a generation of checks.
func (t *Table) begin() {
	t.gen++
	t.used = t.used[:0]
	if t.entries > t.o.Entries || len(t.units) > t.o.Units || len(t.files) > t.o.Entries/4 {
		t.forget()
	}
}

// Query describes one compile whose inputs are wanted.
type Query struct {
	// Key stands for everything else that the answer depends on besides the files: compiler,
	// words, environment, working directory.
	Key    string
	Source string // as typed
	Cwd    string // absolute

	// Where to look for headers, as typed, each list in search order.
	Quote, Angle, System, After []string
	// Own are the compiler's own directories between System and After; Missing are those that it
	// would have if they existed.
	Own, Missing []string
	Forced       []string          // files of -include and -imacros
	Given        []string          // the same, but no precompiled header is taken in their places
	Words        []string          // of the command: everything that may define a macro
	Imported     []sources.Include // headers that the source imports as C++ modules
	Units        bool              // clang may import headers that have been compiled, wherever a text says so
	More         []string          // further files that it reads by name, if they exist
	Beside       string            // name of a file that it reads in the directory of each other file and in those above it, if it exists there; "": none
	GCC          bool              // of the gcc family, which includes stdc-predef.h and uses precompiled headers in a way of its own
	Clock        [3]bool           // for __TIME__, __DATE__, __TIMESTAMP__: the command sets the value
	AsmDirs      []string          // that the command gives to the assembler
	// Only are all files that it reads, the source first, if a compiler has listed them: nothing is looked for then. Dirs must
	// exist as well; Unsure and Timed are those of the Set.
	Only, Dirs    []string
	Unsure, Timed bool
	// Images makes precompiled headers part of the answer (Set.Images). Otherwise one is a Doubt.
	Images bool
	// Module means that the command makes a compiled module of clang's, which says in which directories clang has looked
	// for headers: all that exist are then in the Set, and it counts as Timed.
	Module bool
}

// Doubt says why a compiler has to be asked what it reads.
type Doubt struct {
	Why  string // one of the reasons below
	Name string // file or directory that causes it
}

// Reasons for a Doubt; Doubts lists them.
const (
	DoubtComputed   = "computed"    // a macro says which file is included
	DoubtSpelling   = "spelling"    // a directive that cannot be read reliably
	DoubtHasInclude = "has-include" // a macro says which file __has_include asks for
	DoubtClock      = "time"        // __TIME__ and the like
	DoubtPCH        = "pch"         // a precompiled header
	DoubtPragma     = "pragma"      // a pragma that makes the compiler read a file, or compare the times of two
	DoubtIncbin     = "incbin"      // an uncertain file of the assembler's
	DoubtFile       = "file"        // not a regular file, or not readable
	DoubtPipe       = "pipe"        // only one process can read it
	DoubtPaths      = "paths"       // the path leads through a link that other machines may not have
	DoubtFileSystem = "file-system" // its times reveal too little
	DoubtChanged    = "changed"     // it changed while it was examined
	DoubtSize       = "size"
	DoubtMany       = "many"   // too many files
	DoubtSearch     = "search" // the compiler's own directories are no longer those of Query
)

// Doubts returns all reasons for a Doubt.
func Doubts() []string {
	return []string{DoubtComputed, DoubtSpelling, DoubtHasInclude, DoubtClock, DoubtPCH, DoubtPragma, DoubtIncbin, DoubtFile, DoubtPipe,
		DoubtPaths, DoubtFileSystem, DoubtChanged, DoubtSize, DoubtMany, DoubtSearch}
}

func (d *Doubt) Error() string { return d.Name + ": " + d.Why }

// resolved is a compile command and its inputs.
type resolved struct {
	dirs    []dirState
	entries []entryState
	set     *Set   // nil: the compiler has to be asked
	doubt   *Doubt // why
	at      int64  // when that was found
}

type dirState struct {
	*dir
	version uint64
}

type entryState struct {
	*entry
	version uint64
}

// holds reports whether everything that u depends on is unchanged.
func (t *Table) holds(u *resolved) bool {
	for _, s := range u.dirs {
		if t.check(s.dir) != nil || s.dir.version != s.version {
			return false
		}
	}
	for _, s := range u.entries {
		if t.look(s.entry); s.entry.version != s.version {
			return false
		}
	}
	return true
}

// A walk over unknown files takes time, during which no other compile learns what it reads. So a walk is
// stopped after reading this much, and restarted when others have had their turn: what it has read is known
// by then.
const (
	maxTurn   = 32 << 20 // bytes
	fileCosts = 16 << 10 // cost of opening a file, in bytes that could be read meanwhile
	stepCosts = 32       // cost of a step of an expansion, likewise
	// mostTurns bounds the turns if files change all the time, or there are more than a Table keeps. The last turn is
	// not limited.
	mostTurns = 64
)

// again is the Doubt of a walk that was stopped.
var again = &Doubt{Why: "again"}

// Resolve finds what a compile may read. Its error is a *Doubt: the compiler must then be asked, and Learn
// may be given its answer.
func (t *Table) Resolve(q *Query) (*Set, error) {
	var macros *macroTable
	for turn := 1; ; turn++ {
		set, w, doubt := t.try(q, macros, turn < mostTurns)
		switch {
		case doubt == nil:
			return set, nil
		case doubt != again:
			return nil, doubt
		}
		macros = w.table
	}
}

// try takes one turn of a Resolve. macros are those of the turn before.
func (t *Table) try(q *Query, macros *macroTable, bounded bool) (*Set, *walk, *Doubt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { _ = t.settle() }() // the caller already has what it needs
	t.begin()
	last := t.units[q.Key]
	if u := last; u != nil && t.holds(u) {
		if u.set == nil {
			u.at = time.Now().UnixNano()
		}
		return u.set, nil, u.doubt
	}
	at := time.Now().UnixNano()
	w := newWalk(t, q)
	w.bounded, w.before = bounded, macros
	d := w.all()
	if d == again {
		return nil, w, d
	}
	u := t.resolved(w)
	u.at = at
	if d != nil {
		if w.whole {
			u.doubt = d
			t.units[q.Key] = u
		} else {
			delete(t.units, q.Key)
		}
		return nil, nil, d
	}
	u.set = w.finish()
	if last != nil && last.set != nil {
		u.set.compare(last.set)
	}
	t.units[q.Key] = u
	return u.set, nil, nil
}

// resolved makes one of everything that w has examined.
func (t *Table) resolved(w *walk) *resolved {
	u := &resolved{dirs: make([]dirState, 0, len(t.used)), entries: make([]entryState, 0, len(w.hits))}
	for _, d := range t.used {
		u.dirs = append(u.dirs, dirState{d, d.version})
	}
	for _, e := range w.hits {
		u.entries = append(u.entries, entryState{e, e.version})
	}
	for _, e := range w.images {
		u.entries = append(u.entries, entryState{e, e.version})
	}
	u.dirs, u.entries = slices.Clip(u.dirs), slices.Clip(u.entries)
	return u
}
