package inputs

import (
	"crypto/sha256"
	"runtime"
)

// summing takes the sums of files while a walk goes on to the next ones: where hundreds are read for the first
// time, that is a third of the time.
type summing struct {
	batch []summand // that are to be handed over
	bytes int       // in batch
	work  chan []summand
	done  chan struct{}
}

type summand struct {
	f    *file
	text []byte
}

// batchBytes is how much is handed over at once: to wake another thread up takes as long as the sum of a header.
const batchBytes = 256 << 10

// leastRoom is for which a header a buffer is still worth filling up.
const leastRoom = 16 << 10

// sum fills in f.id, at the latest when summed returns. It keeps text until then, and returns the buffer for the next one.
func (t *Table) sum(f *file, text []byte) (buf []byte) {
	if len(text) > batchBytes || runtime.GOMAXPROCS(0) == 1 {
		f.id = sha256.Sum256(text)
		return text
	}
	if buf = text[len(text):]; cap(buf) < leastRoom {
		buf = make([]byte, 0, batchBytes)
	}
	s := t.summing
	if s == nil {
		s = &summing{}
		t.summing = s
	}
	s.batch = append(s.batch, summand{f, text})
	if s.bytes += len(text); s.bytes < batchBytes {
		return buf
	}
	if s.work == nil {
		s.work, s.done = make(chan []summand, 4), make(chan struct{})
		go func() {
			defer close(s.done)
			for batch := range s.work {
				takeSums(batch)
			}
		}()
	}
	s.work <- s.batch
	s.batch, s.bytes = nil, 0
	return buf
}

func takeSums(batch []summand) {
	for _, x := range batch {
		x.f.id = sha256.Sum256(x.text)
	}
}

// summed waits for all sums. It is called before a file's id is looked at, and before the lock is given up.
func (t *Table) summed() {
	s := t.summing
	if s == nil {
		return
	}
	t.summing = nil
	takeSums(s.batch)
	if s.work != nil {
		close(s.work)
		<-s.done
	}
}
