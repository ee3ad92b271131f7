package inputs

import (
	"slices"
	"sync"
	"time"
)

// Options of a Table. A zero field takes the default in parentheses.
type Options struct {
	MaxFile  int64 // bytes of a file that a Set may have (64 MiB)
	MaxFiles int   // of a Set (20,000)
	// Entries and Units bound what is kept: names in directories (200,000), and compile
	// commands (4,000). Beyond, the Table forgets all and begins anew.
	Entries, Units int
}

// Table knows files, directories and units. It is for any number of goroutines.
type Table struct {
	o Options

	mu      sync.Mutex
	gen     uint64 // of looks: one for each Resolve and Learn
	dirs    map[string]*dir
	files   map[inode]*file
	devices map[uint64]bool // by device: whether its file system is faithful
	units   map[string]*unit
	entries int
	readers []*reader // the first one's is the goroutine that holds mu
	ahead   *ahead    // what is being read in this generation; nil: nothing
	path    []byte    // to put paths together in

	bases []*Set // that other sets rest on, the one used last first

	used []*dir // directories that were looked at in this generation

	turn int // maxTurn; tests have it be less
}

// New makes a Table.
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
	t.devices, t.units = make(map[uint64]bool), make(map[string]*unit)
	t.entries, t.used, t.bases = 0, nil, nil
}

// Stats says how much a Table knows.
type Stats struct{ Files, Dirs, Units int }

// Stats says how much t knows.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Files: len(t.files), Dirs: len(t.dirs), Units: len(t.units)}
}

// begin starts a generation of looks.
func (t *Table) begin() {
	t.gen++
	t.used = t.used[:0]
	if t.entries > t.o.Entries || len(t.units) > t.o.Units || len(t.files) > t.o.Entries/4 {
		t.forget()
	}
}

// Query is one compile whose inputs are asked for.
type Query struct {
	// Key stands for all that the answer rests on beside the files: compiler, words,
	// environment, working directory.
	Key    string
	Source string // as typed
	Cwd    string // absolute

	// Where headers are looked for, as typed, each list in the order of the search.
	Quote, Angle, System, After []string
	// Own are the compiler's own directories between System and After, and Missing those that it
	// would have if they were there.
	Own, Missing []string
	Forced       []string // files of -include and -imacros
	Words        []string // of the command: all that may define a macro
	More         []string // further files that it reads by name, if they exist
	GCC          bool     // of the gcc family: as it includes stdc-predef.h, and takes precompiled headers
	Clock        [3]bool  // of __TIME__, __DATE__, __TIMESTAMP__: the command says what it is
	AsmDirs      bool     // the command names directories to the assembler
}

// Doubt says why a compiler has to be asked what it reads.
type Doubt struct {
	Why  string // one of those below
	Name string // of the file or directory that gives rise to it
}

// Reasons for a Doubt; Doubts lists them.
const (
	DoubtComputed   = "computed"    // a macro says which file is included
	DoubtSpelling   = "spelling"    // a directive that cannot be read for certain
	DoubtHasInclude = "has-include" // a macro says which file __has_include asks for
	DoubtClock      = "time"        // __TIME__ and the like
	DoubtPCH        = "pch"         // a precompiled header
	DoubtPragma     = "pragma"      // one that has the compiler read a file, or compare the times of two
	DoubtIncbin     = "incbin"      // a file of the assembler's that is not certain
	DoubtFile       = "file"        // it is no regular file, or cannot be read
	DoubtPaths      = "paths"       // the way leads through a link that other machines need not have
	DoubtFileSystem = "file-system" // whose times tell too little
	DoubtChanged    = "changed"     // while it was looked at
	DoubtSize       = "size"
	DoubtMany       = "many"   // files
	DoubtSearch     = "search" // the compiler's own directories are no longer those of Query
)

// Doubts returns all reasons for a Doubt.
func Doubts() []string {
	return []string{DoubtComputed, DoubtSpelling, DoubtHasInclude, DoubtClock, DoubtPCH, DoubtPragma, DoubtIncbin, DoubtFile,
		DoubtPaths, DoubtFileSystem, DoubtChanged, DoubtSize, DoubtMany, DoubtSearch}
}

func (d *Doubt) Error() string { return d.Name + ": " + d.Why }

// unit is a compile command and what its inputs were.
type unit struct {
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

// holds reports whether all that u rests on is as it was.
func (t *Table) holds(u *unit) bool {
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

// A walk over files that are not known takes its time, in which no other compile is told what it reads. So it is
// broken off once it has read so much, and begun anew when others have had their turn: what it has read is known then.
const (
	maxTurn   = 32 << 20 // bytes
	fileCosts = 16 << 10 // what it takes to open a file, in bytes that are read meanwhile
	stepCosts = 32       // what a step of an expansion takes
	// mostTurns bounds the turns where files change all the time, or more than a Table keeps. The last one has no bound.
	mostTurns = 64
)

// again is the Doubt of a walk that was broken off.
var again = &Doubt{Why: "again"}

// Resolve finds what a compile may read. The error is a *Doubt: then the compiler has to
// be asked, and Learn may be told what it said.
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

// try takes one turn of a Resolve. macros are of the turn before.
func (t *Table) try(q *Query, macros *macroTable, bounded bool) (*Set, *walk, *Doubt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { _ = t.settle() }() // whoever needs the files has asked
	t.begin()
	if u := t.units[q.Key]; u != nil && t.holds(u) {
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
	u := t.unit(w)
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
	t.units[q.Key] = u
	return u.set, nil, nil
}

// unit makes a unit of all that w has looked at.
func (t *Table) unit(w *walk) *unit {
	u := &unit{dirs: make([]dirState, 0, len(t.used)), entries: make([]entryState, 0, len(w.hits))}
	for _, d := range t.used {
		u.dirs = append(u.dirs, dirState{d, d.version})
	}
	for _, e := range w.hits {
		u.entries = append(u.entries, entryState{e, e.version})
	}
	u.dirs, u.entries = slices.Clip(u.dirs), slices.Clip(u.entries)
	return u
}
