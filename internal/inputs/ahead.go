package inputs

import (
	"bytes"
	"crypto/sha256"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// Unknown files are read in parallel with the walk, which goes on with what it already knows: when hundreds
// are read for the first time, reading, hashing and scanning takes nearly all of the time.

// reading is a file to be read. Its first three fields do not change.
type reading struct {
	f    *file
	path string
	old  *file // what the inode had before; nil: nothing known

	doubt *Doubt // why it could not be read; valid once done

	// guarded by ahead.mu
	taken bool // a goroutine is reading it
	done  bool // f is complete
}

// reader holds what reading files takes. It is for one goroutine at a time.
type reader struct {
	scanner *sources.Scanner
	buf     []byte
}

func newReader() *reader { return &reader{scanner: sources.NewScanner()} }

// read completes x.f.
func (r *reader) read(x *reading) {
	f := x.f
	buf := r.buf[:0]
	if f.st.Size > maxText { // only its sums are wanted, and the heap would keep its memory for long
		mem, err := unix.Mmap(-1, 0, int(f.st.Size)+1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			x.doubt = &Doubt{Why: reasonOf(err), Name: x.path}
			return
		}
		defer func() { _ = unix.Munmap(mem) }() // fails for no mapping of ours
		buf = mem[:0]
	}
	b, err := readFile(x.path, &f.st, buf)
	if err != nil {
		x.doubt = &Doubt{Why: reasonOf(err), Name: x.path}
		return
	}
	f.id = sha256.Sum256(b)
	f.bare = f.id
	if rest, marked := bytes.CutPrefix(b, []byte("\xef\xbb\xbf")); marked {
		f.bare = sha256.Sum256(rest)
	}
	switch {
	case x.old != nil && x.old.id == f.id:
		f.text = x.old.text // equal text need not be scanned again
	case len(b) <= maxText:
		f.text = r.look(b)
	}
	r.keep(b)
}

// keep reuses b's memory for the next file.
func (r *reader) keep(b []byte) {
	if cap(b) <= keepBuffer {
		r.buf = b
	}
}

// keepBuffer is the largest buffer that is reused for the next file, in bytes.
const keepBuffer = 1 << 20

const (
	// mostHelpers is how many goroutines read beside a walk, which finds files more slowly than that many can read.
	mostHelpers = 3
	// worthHelp is the number of unread files for which another helper is woken: waking takes about as long
	// as reading one.
	worthHelp = 2
)

// ahead holds the files that one generation reads. The walk takes from it what it needs next, which usually
// came last, and helpers take what came first.
type ahead struct {
	all     []*reading // guarded by Table.mu
	helpers int        // guarded by Table.mu
	running sync.WaitGroup

	mu    sync.Mutex
	work  sync.Cond  // helpers wait for it
	ready sync.Cond  // the walk waits for it
	queue []*reading // files of all still to be read
	left  int        // of queue, not yet taken
	idle  int        // number of waiting helpers
	ended bool       // nothing more will come
}

// readAhead has x read some time before settle returns.
func (t *Table) readAhead(x *reading) {
	a := t.ahead
	if a == nil {
		a = &ahead{}
		a.work.L, a.ready.L = &a.mu, &a.mu
		t.ahead = a
	}
	x.f.reading = x
	a.all = append(a.all, x)
	a.mu.Lock()
	a.queue = append(a.queue, x)
	a.left++
	wanted := a.left >= worthHelp
	if wanted && a.idle > 0 {
		a.work.Signal()
		wanted = false
	}
	a.mu.Unlock()
	if !wanted || a.helpers >= min(mostHelpers, runtime.GOMAXPROCS(0)-1) {
		return
	}
	if a.helpers++; len(t.readers) <= a.helpers {
		t.readers = append(t.readers, newReader())
	}
	r := t.readers[a.helpers]
	a.running.Go(func() { a.help(r) })
}

// help reads files until there are no more.
func (a *ahead) help(r *reader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if x := a.firstLocked(); x != nil {
			a.readLocked(x, r)
			continue
		}
		if a.ended {
			return
		}
		a.idle++
		a.work.Wait()
		a.idle--
	}
}

// firstLocked returns the first file that no goroutine is reading, or nil.
func (a *ahead) firstLocked() *reading {
	for len(a.queue) > 0 {
		if x := a.queue[0]; !x.taken {
			return x
		}
		a.queue = a.queue[1:]
	}
	return nil
}

// readLocked reads a file, with the lock released.
func (a *ahead) readLocked(x *reading, r *reader) {
	x.taken = true
	a.left--
	a.mu.Unlock()
	r.read(x)
	a.mu.Lock()
	x.done = true
	a.ready.Signal()
}

// loaded waits until f is complete, and helps to read in the meantime.
func (t *Table) loaded(f *file) *Doubt {
	x := f.reading
	if x == nil {
		return nil
	}
	a := t.ahead
	a.mu.Lock()
	for !x.done {
		y := x
		if x.taken {
			y = a.firstLocked()
		}
		if y != nil {
			a.readLocked(y, t.readers[0])
		} else {
			a.ready.Wait()
		}
	}
	a.mu.Unlock()
	return x.doubt
}

// settle waits for all pending reads, and returns the first doubt; files that could not be read become void.
// It must be called before the lock is released, on every path.
func (t *Table) settle() (first *Doubt) {
	a := t.ahead
	if a == nil {
		return nil
	}
	for _, x := range a.all {
		d := t.loaded(x.f)
		x.f.reading = nil
		if d == nil {
			t.takes += x.f.size()
			continue
		}
		x.f.void = true
		if at := (inode{x.f.st.Dev, x.f.st.Ino}); t.files[at] == x.f {
			delete(t.files, at)
		}
		if first == nil {
			first = d
		}
	}
	a.mu.Lock()
	a.ended = true
	a.work.Broadcast()
	a.mu.Unlock()
	a.running.Wait()
	t.ahead = nil
	return first
}
