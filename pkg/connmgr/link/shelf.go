package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// shelfPause is the least time between two looks at the head of a daemon's shelf. The head is read when a
// result is looked for, and once per heartbeat.
const shelfPause = 250 * time.Millisecond

// maxDamaged is how many damaged results a daemon may serve before its shelf is left alone.
const maxDamaged = 3

// shelfReader is a link's reading of the results that its daemon keeps, guarded by Link.mu. It does not
// involve the daemon's program.
type shelfReader struct {
	index   shelf.Index
	known   bool // a head has been read, and all records that it said there are
	first   chan struct{}
	late    bool // that has taken longer than somebody could wait
	busy    bool // the head or records are being read
	asked   time.Time
	sought  time.Time // when a result was last looked for
	damaged int
	looks   looks

	bytes         uint64 // read so far
	marked        uint64 // of these, until the last tick
	sends, others uint64 // messages and other bytes received until then: see quietLocked
}

// Shelved is the place of a result on the daemon's shelf.
type Shelved struct {
	shelf.Place
	key resultcache.Key
}

// openShelfLocked begins to read the shelf that the Welcome names, if it names one and RDMA Reads are possible.
func (l *Link) openShelfLocked() {
	l.shelf.first = make(chan struct{})
	if l.hasShelfLocked() {
		l.refreshShelfLocked(time.Now())
	} else {
		l.shelvesKnownLocked()
	}
}

func (l *Link) hasShelfLocked() bool {
	return l.c.Results && !l.ended && l.welcome != nil && l.welcome.Shelf.STag != 0 && l.puller.Can() && l.shelf.damaged < maxDamaged
}

// shelvesKnownLocked notes that what there is on the shelf is known as far as it will be.
func (l *Link) shelvesKnownLocked() {
	if !l.shelf.known {
		l.shelf.known = true
		close(l.shelf.first)
	}
}

// KnowsShelf waits until it is known what the daemon has on its shelf, which takes two round trips after the
// Welcome, or until ctx ends. It reports whether there is a shelf.
func (l *Link) KnowsShelf(ctx context.Context) bool {
	l.mu.Lock()
	first := l.shelf.first
	l.mu.Unlock()
	select {
	case <-first:
	case <-l.dead:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !l.shelf.known {
		l.shelf.late = true
	}
	return l.hasShelfLocked()
}

// ReadsShelf reports whether the contents of the daemon's shelf will soon be known: KnowsShelf would wait, and no wait for
// it has timed out yet.
func (l *Link) ReadsShelf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hasShelfLocked() && !l.shelf.known && !l.shelf.late
}

// Results returns how many results of the daemon are known of. known reports that its shelf, if it has one, was read
// since the link was made.
func (l *Link) Results() (n uint64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shelf.index.Len(), l.shelf.known
}

// Find returns where the daemon has a result, as far as is known without asking it. If it is a while since
// that was found out, Find has it found out again, and does not wait for that.
func (l *Link) Find(now time.Time, key resultcache.Key) (s Shelved, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hasShelfLocked() || !l.ready {
		return s, false
	}
	l.shelf.sought = now
	l.refreshShelfLocked(now)
	s.key = key
	s.Place, ok = l.shelf.index.Find(key)
	return s, ok
}

// readShelfLocked reads n bytes at off of the shelf. done is called with them once they are here, or with an
// error when the link ends. next, if not nil, is read right behind it.
func (l *Link) readShelfLocked(off, n uint64, next *rdmaread.Pull, done func(b []byte, err error)) (*rdmaread.Pull, error) {
	mem := make([]byte, n)
	mr, err := l.c.PD.RegMR(mem, iwarp.LocalWrite, &iwarp.MROptions{QP: l.qp})
	if err != nil {
		return nil, fmt.Errorf("register memory for results: %w", err)
	}
	w := l.welcome.Shelf
	return &rdmaread.Pull{Sink: mr, STag: iwarp.STag(w.STag), TO: w.TO + off, Len: n, Piece: iwarp.GuardedMax, Next: next, Done: func(err error) {
		if derr := mr.Dereg(); err == nil {
			err = derr
		}
		if err == nil {
			l.shelf.bytes += n
		}
		done(mem, err)
	}}, nil
}

// startShelfLocked begins x, or has the link end with err.
func (l *Link) startShelfLocked(x *rdmaread.Pull, err error) {
	if err == nil {
		err = l.puller.Start(x)
	}
	if err != nil {
		l.failLocked(err)
	}
}

// refreshShelfLocked starts a look at the head, and at the records that are new.
func (l *Link) refreshShelfLocked(now time.Time) {
	if s := &l.shelf; !s.busy && now.Sub(s.asked) >= shelfPause {
		l.lookLocked(now)
	}
}

// headLocked takes over a head that was read. It reports whether it was whole.
func (l *Link) headLocked(b []byte) bool {
	h, err := shelf.ParseHead(b, l.welcome.Shelf.Len)
	if errors.Is(err, shelf.ErrTorn) { // the daemon was changing it; the next read will do
		return false
	}
	if err == nil {
		err = l.shelf.index.Learn(h)
	}
	if err != nil {
		l.failLocked(fmt.Errorf("daemon's results: %w", err))
	}
	return err == nil
}

// recordsLocked reads the new records in parts. busy is set until it has them all.
func (l *Link) recordsLocked() {
	s := &l.shelf
	off, n := s.index.Next()
	if n == 0 {
		l.lookedLocked()
		return
	}
	l.startShelfLocked(l.readShelfLocked(off, n, nil, func(b []byte, err error) {
		if err != nil { // the link ends
			l.lookedLocked()
			return
		}
		s.index.Add(b)
		l.recordsLocked()
	}))
}

// ReadResult reads a result that Find has found, as the daemon keeps it, and appends it to buf. It takes one
// round trip, or two if the result is longer than what may be read at a time. The error is resultcache.ErrMiss
// if the daemon has since dropped the result, or is gone, and that of ctx if it ends first.
//
// Behind the result, the head is read again. If the record still counts then, the result did not change while
// it was read.
func (l *Link) ReadResult(ctx context.Context, s Shelved, buf []byte) ([]byte, error) {
	type answer struct {
		b   []byte
		err error
	}
	done := make(chan answer, 1)
	var entry []byte
	l.mu.Lock()
	if !l.hasShelfLocked() {
		l.mu.Unlock()
		return buf, resultcache.ErrMiss
	}
	head, err := l.readShelfLocked(0, shelf.HeadLen, nil, func(b []byte, err error) {
		if err != nil || !l.headLocked(b) || !l.shelf.index.Counts(s.Place) {
			done <- answer{nil, resultcache.ErrMiss}
			return
		}
		done <- answer{entry, nil}
		if !l.shelf.busy { // there may be something new
			l.shelf.busy, l.shelf.asked = true, time.Now()
			l.recordsLocked()
		}
	})
	var x *rdmaread.Pull
	if err == nil {
		if x, err = l.readShelfLocked(s.Off, uint64(s.Len), head, func(b []byte, _ error) { entry = b }); err != nil {
			_ = head.Sink.Dereg() // not in use: cannot fail
		}
	}
	l.startShelfLocked(x, err)
	l.mu.Unlock()
	select {
	case a := <-done:
		return append(buf, a.b...), a.err
	case <-ctx.Done():
		return buf, ctx.Err() // the memory is freed when the Reads have ended
	case <-l.dead:
		return buf, resultcache.ErrMiss
	}
}

// Spoilt makes Find not return s again, because it is damaged, or not what it should be. After a few of them, Find
// finds nothing on this link any more.
func (l *Link) Spoilt(s Shelved) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shelf.index.Forget(s.key, s.Place)
	if l.shelf.damaged++; l.shelf.damaged == maxDamaged {
		l.c.Log.Warn("host has served damaged results: none of it are used any more, until it is connected again", "host", l.addr)
	}
}

// Forget hides what the daemon currently has for key from Find.
func (l *Link) Forget(key resultcache.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.shelf.index.Find(key); ok {
		l.shelf.index.Forget(key, p)
	}
}

// shelfQuietLocked reports whether nothing but results from the shelf has arrived since the last tick. The
// daemon's RDMA stack answers Reads by itself, so the answers are no sign of life, however many frames they
// take.
func (l *Link) shelfQuietLocked(st *iwarp.QPStats) bool {
	s := &l.shelf
	if s.bytes == s.marked {
		s.sends, s.others = st.SendsReceived, max(s.others, st.BytesReceived-min(s.bytes, st.BytesReceived))
		return false
	}
	others := st.BytesReceived - min(s.bytes, st.BytesReceived)
	quiet := st.SendsReceived <= s.sends && others <= s.others
	s.marked, s.sends, s.others = s.bytes, st.SendsReceived, max(s.others, others)
	return quiet
}
