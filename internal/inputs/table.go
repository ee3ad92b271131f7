package inputs

import (
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// Options configures a Table. A zero field takes the default in parentheses.
type Options struct {
	MaxFile  int64 // bytes of a file in a Set (64 MiB)
	MaxFiles int   // files in a Set (100,000)
	// Memory bounds what is kept, in bytes (256 MiB). When it is exceeded, the Table evicts the least recently used
	// commands, and what no other command needs.
	Memory int64
}

// Table knows files, directories and units. It may be used concurrently.
type Table struct {
	o Options

	turns sync.Mutex    // taken before mu: of those that begin a generation of checks
	begun atomic.Uint64 // the latest generation that has begun
	asks  atomic.Uint64 // counts requests for units
	ready atomic.Uint64 // the latest one for which the kernel was asked what has changed

	// mu is held for reading by those that find everything as it was (quick).
	mu      sync.RWMutex
	watcher watcher
	gen     uint64 // of checks: what was checked in it is not checked again
	round   uint64 // one for each turn of a Resolve, and each Learn
	changes uint64 // counts changes of what is known of directories and names
	dirs    map[string]*dir
	ids     []*dir // by dir.id; nil: not in use
	free    []uint32
	files   map[inode]*file
	devices map[uint64]bool // whether the file system of each device shows changes reliably
	units   map[unitKey]*resolved
	takes   int64     // bytes that everything takes, about
	readers []*reader // the first one belongs to the goroutine that holds mu
	ahead   *ahead    // what is being read in this generation; nil: nothing
	path    []byte    // buffer for paths

	bases []*Set // bases of other sets, most recently used first

	used []*dir // directories checked in this round

	turn    int // maxTurn; less in tests
	dropped uint64
}

// New returns a Table.
func New(o Options) *Table {
	if o.MaxFile == 0 {
		o.MaxFile = 64 << 20
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = 100000
	}
	if o.Memory == 0 {
		o.Memory = 256 << 20
	}
	t := &Table{o: o, changes: 1, readers: []*reader{newReader()}, turn: maxTurn}
	t.forget()
	return t
}

// forget empties the table.
func (t *Table) forget() {
	for _, d := range t.dirs {
		t.ignore(d)
	}
	t.dirs, t.files = make(map[string]*dir), make(map[inode]*file)
	t.devices, t.units = make(map[uint64]bool), make(map[unitKey]*resolved)
	t.ids, t.free, t.used, t.bases, t.takes = nil, nil, nil, nil, 0
}

// unitKey is the sum of a Query's Key, which may be long.
type unitKey = [sha256.Size]byte

// Stats holds how much a Table knows.
type Stats struct {
	Files, Dirs, Units int
	Bytes              int64  // that it takes, about
	Most               int64  // Options.Memory
	Dropped            uint64 // units, for want of memory
	// Watched is how many directories the kernel tells of, and MostWatched of how many it may; Short is set if there are more, each of
	// which is looked at for each job.
	Watched, MostWatched int
	Short                bool
}

// Stats returns how much t knows.
func (t *Table) Stats() Stats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return Stats{Files: len(t.files), Dirs: len(t.dirs), Units: len(t.units), Bytes: t.takes, Most: t.o.Memory, Dropped: t.dropped,
		Watched: len(t.watcher.dirs), MostWatched: t.watcher.most, Short: t.watcher.opened && (len(t.watcher.dirs) >= t.watcher.most || t.watcher.denied)}
}

// join begins a generation of checks, unless one has begun since came, which is what begun was when a request came: what is
// checked in that one is checked for this request as well. Then ready is more than came.
func (t *Table) join(came uint64) {
	t.turns.Lock()
	defer t.turns.Unlock()
	gen := t.begun.Load()
	if gen > came {
		return
	}
	gen++
	t.begun.Store(gen)
	if t.watcher.on.Load() {
		if x := t.watcher.listen(); x.lost || len(x.names) > 0 {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.heed(x)
		}
	}
	t.ready.Store(gen) // with what the kernel has told, also for those that wait for mu
}

// begin starts a round of checks by the goroutine that holds mu.
func (t *Table) begin() {
	t.round++
	t.used = t.used[:0]
	t.gen = t.ready.Load()
	if t.takes > t.o.Memory {
		t.shed()
	}
}

// changed notes that something known has changed, and returns the number of that change.
func (t *Table) changed() uint64 {
	t.changes++
	return t.changes
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

// Doubt is the reason why a compiler has to be asked what it reads.
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
	dirs    dirSet        // all that the answer depends on,
	entries []*entry      // as the files and precompiled headers,
	seen    uint64        // and the latest change that it knows of
	born    uint64        // round in which it was found out
	used    atomic.Uint64 // when it was asked for last, as Table.asks counts
	set     *Set          // nil: the compiler has to be asked
	doubt   *Doubt        // why
	at      int64         // when that was found
}

// holds reports whether everything that u depends on is unchanged.
func (t *Table) holds(u *resolved) bool {
	u.used.Store(t.asks.Add(1))
	for id := range u.dirs.all {
		if d := t.ids[id]; t.check(d) != nil || d.changed > u.seen {
			return false
		}
	}
	for _, e := range u.entries {
		if t.look(e); e.changed > u.seen {
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
		set, w, doubt := t.try(q, t.begun.Load(), macros, turn < mostTurns)
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
func (t *Table) try(q *Query, came uint64, macros *macroTable, bounded bool) (*Set, *walk, *Doubt) {
	key := sha256.Sum256([]byte(q.Key))
	t.join(came)
	if s := t.quick(key, came); s != nil {
		return s, nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { _ = t.settle() }() // the caller already has what it needs
	t.begin()
	last := t.units[key]
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
			t.keep(key, u)
		} else {
			delete(t.units, key)
		}
		return nil, nil, d
	}
	u.set = w.finish()
	if last != nil && last.set != nil {
		u.set.compare(last.set)
	}
	t.keep(key, u)
	return u.set, nil, nil
}

// keep makes u what is known of the unit key.
func (t *Table) keep(key unitKey, u *resolved) {
	if old := t.units[key]; old != nil {
		t.takes -= old.size()
	}
	t.units[key] = u
	t.takes += u.size()
}

// resolved makes one of everything that w has examined.
func (t *Table) resolved(w *walk) *resolved {
	ids := make([]uint32, len(t.used))
	for i, d := range t.used {
		ids[i] = d.id
	}
	// Two spellings of a name are one file as long as both lead to the same directory, which is among dirs. So check one.
	entries, named := make([]*entry, 0, len(w.hits)+len(w.images)), make(map[spot]bool, len(w.hits))
	for _, e := range slices.Concat(w.hits, w.images) {
		if at := (spot{e.dir.way.real, e.base}); !named[at] {
			named[at] = true
			entries = append(entries, e)
		}
	}
	u := &resolved{dirs: newDirSet(ids), entries: slices.Clip(entries), seen: t.changes, born: t.round}
	u.used.Store(t.asks.Add(1))
	return u
}

// spot is a name in a directory, by the directory's name without links.
type spot struct{ dir, base string }
