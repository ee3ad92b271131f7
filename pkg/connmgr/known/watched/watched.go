// Package watched knows which combinations of a compiler, words and texts have been watched while they searched for headers, and
// what was seen. It keeps in a file those of which nothing was seen that the model of the search lacks.
package watched

import (
	"context"
	"crypto/sha256"
	"sync"
)

// Every is how many jobs of a combination that is watched well there are for one more that is watched.
const Every = 512

// A compiler that has failed mostVoid times in a row while it was watched is watched for one job in seldom: it may be one that
// compiles what it cannot list.
const (
	mostVoid = 8
	seldom   = 16
)

// Key names a combination: all that decides how a compiler searches, besides the texts.
type Key [sha256.Size]byte

// Table is safe for concurrent use. Its zero value knows nothing, and keeps nothing.
type Table struct {
	file, version string // see Keep

	mu    sync.Mutex
	dirty bool
	known map[Key]*combination
	last  string // the latest doubt
}

// combination is what is known of one. Guarded by Table.mu.
type combination struct {
	kinds  uint64        // of texts with which it was watched
	doubt  string        // a name that was looked up, and that the model lacks; "": none
	jobs   uint64        // since it was known
	unseen bool          // it could not be watched, at least once
	void   uint64        // watches that said nothing, since one that did
	busy   chan struct{} // closed when the watch that is under way has ended; nil: there is none
}

// most bounds the combinations. A project has some tens.
const most = 4096

// Verdict is what a watch has seen.
type Verdict struct {
	Doubt string // a name that the model lacks; "": none
	Void  bool   // it says nothing, as the compiler has failed: the next job is watched
	// Unseen is set if the compiler cannot be watched on this system. Its combination counts as watched until the manager ends.
	Unseen bool
}

// Judge returns a name that the compiler of a combination has looked up and that the model of its search lacks, or "". If the
// combination has not been watched with texts of all kinds, or if its turn has come again, it is watched now: watch does that.
// Of equal jobs one is watched, and the others wait for what is seen.
func (t *Table) Judge(ctx context.Context, k Key, kinds uint64, watch func() Verdict) (doubt string) {
	t.mu.Lock()
	x := t.ofLocked(k)
	x.jobs++
	again := x.jobs%Every == 0
	patient := x.void < mostVoid || x.jobs%seldom == 0
	for x.doubt == "" && (again || patient && kinds&^x.kinds != 0) {
		if busy := x.busy; busy != nil {
			if again && kinds&^x.kinds == 0 {
				break // another job's will do
			}
			t.mu.Unlock()
			select {
			case <-busy:
			case <-ctx.Done():
				return ""
			}
			t.mu.Lock()
			continue
		}
		x.busy = make(chan struct{})
		t.mu.Unlock()
		v := watch()
		t.mu.Lock()
		close(x.busy)
		x.busy = nil
		x.void++
		if !v.Void {
			x.void = 0
			x.doubt, x.kinds = v.Doubt, x.kinds|kinds
			x.unseen = x.unseen || v.Unseen
			t.dirty = true
			if v.Doubt != "" {
				t.last = v.Doubt
			}
		}
		break
	}
	defer t.mu.Unlock()
	return x.doubt
}

// Tally is what a Table has seen so far.
type Tally struct {
	Watched  int    // combinations
	Doubtful int    // how many of them have a doubt
	Last     string // the latest doubt, or ""
	Unseen   bool   // compilers could not be watched
}

// Tally returns what t has seen, with what it has read from its file.
func (t *Table) Tally() (n Tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n.Last = t.last
	for _, x := range t.known {
		switch {
		case x.unseen:
			n.Unseen = true
			continue
		case x.doubt != "":
			n.Doubtful++
		case x.kinds == 0:
			continue
		}
		n.Watched++
	}
	return n
}

func (t *Table) ofLocked(k Key) *combination {
	t.loadLocked()
	x := t.known[k]
	if x == nil {
		if len(t.known) >= most {
			clear(t.known) // those under way end in a record of their own
		}
		x = &combination{}
		t.known[k] = x
	}
	return x
}
