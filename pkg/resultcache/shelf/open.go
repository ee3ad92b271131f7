package shelf

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// SpareAt and SpareLen say which bytes of the memory a Shelf does not use. They are zero in a new one.
const (
	SpareAt  = 4096
	SpareLen = recordsAt - SpareAt
)

// Create makes an empty Shelf with data bytes of data in f, which has Size(data) bytes that are zero as far as
// they were never written.
func Create(f File, data uint64) (*Shelf, error) {
	if data > maxData {
		return nil, fmt.Errorf("a shelf with %d bytes of data", data)
	}
	s := newShelf(inFile{f}, data)
	s.tell()
	return s, s.err
}

// Open returns the Shelf that Create has made in f, with what was put there, as far as it is whole: the longest
// list of records without a gap, whose entries do not overlap. dropped says how many records that have
// counted are left out.
//
// The error is ErrTorn or wraps ErrMalformed if f has something else, or a Shelf with other figures.
//
// Open does not look at the entries. They are as they were put, if all that was written in f is there, whatever
// end the program has come to; otherwise Verify finds out.
func Open(f File, data uint64) (s *Shelf, dropped uint64, err error) {
	s = newShelf(inFile{f}, data)
	b := make([]byte, HeadLen)
	if err := s.mem.read(0, b); err != nil {
		return nil, 0, err
	}
	h, err := ParseHead(b, Size(data))
	if err != nil {
		return nil, 0, err
	}
	if h.Records != s.h.Records || h.Data != data {
		return nil, 0, fmt.Errorf("%w: %d bytes of data, and not %d", ErrMalformed, h.Data, data)
	}
	h.Marks, h.Makers = 0, 0
	s.h = h
	r := run{now: make([]span, 0, h.Last-h.First)}
	if err := s.each(func(n uint64, b []byte) error {
		x, ok := parseRecord(b)
		r.add(n, &x, ok && x.number == uint32(n) && x.length > 0 && x.end() <= s.limit, s.limit)
		return nil
	}); err != nil {
		return nil, 0, err
	}
	r.end()
	dropped = h.Last - h.First - uint64(len(r.best))
	s.h.First, s.h.Last = h.Last, h.Last
	if n := len(r.best); n > 0 {
		s.h.First, s.h.Last = r.first, r.first+uint64(n)
		s.at = r.at
	}
	for _, x := range r.best {
		s.used += roundUp(uint64(x.length))
	}
	s.tell()
	return s, dropped, s.err
}

// void makes a record of no use to readers.
func (s *Shelf) void(n uint64, x *record) {
	x.mark = 0
	var b [recordLen]byte
	s.write(s.placeAt(n), x.appendTo(b[:0]))
}

// each calls f with the records that count, as they are in the memory. An error of f ends that.
func (s *Shelf) each(f func(n uint64, b []byte) error) error {
	buf := make([]byte, min(readMost, s.h.Records)*recordLen)
	for n := s.h.First; n < s.h.Last; {
		b := buf[:min(s.h.Last-n, s.h.Records-n%s.h.Records, readMost)*recordLen]
		if s.err == nil {
			s.err = s.mem.read(s.placeAt(n), b)
		}
		if s.err != nil {
			return s.err
		}
		for ; len(b) > 0; b, n = b[recordLen:], n+1 {
			if err := f(n, b[:recordLen]); err != nil {
				return err
			}
		}
	}
	return nil
}

// span is where an entry is.
type span struct {
	at     uint64 // in bytes from where the first one of all would begin, as if the data did not go round
	length uint32
}

// run finds the longest list of records without a gap.
type run struct {
	now  []span // the list that goes on
	from uint64 // number of the first of them
	lap  uint64 // what at begins with, for an entry at the start of the data
	tail uint64 // of the last of now, in the data

	best  []span
	first uint64 // number of the first of best
	at    uint64 // of the last of best, in the data
}

// add adds record n, or ends the list there if it is not ok.
func (r *run) add(n uint64, x *record, ok bool, limit uint64) {
	if !ok {
		r.end()
		return
	}
	if len(r.now) == 0 {
		r.from, r.lap, r.tail = n, 0, 0
	}
	at := uint64(x.place) * align
	if at < r.tail {
		r.lap += limit
	}
	r.tail = x.end()
	r.now = append(r.now, span{r.lap + at, x.length})
	for r.now[0].at+limit < r.lap+r.tail { // written over
		r.now, r.from = r.now[1:], r.from+1
	}
}

// end ends the list.
func (r *run) end() {
	if len(r.now) > len(r.best) {
		r.best, r.first, r.at = r.now, r.from, r.tail
	}
	r.now = r.now[len(r.now):]
}

// Verify reads all entries, and makes those count no more that are not what was put. That takes a while. It is
// called before anything is put or evicted, and before anybody reads. stop, once closed, ends it with an error.
func (s *Shelf) Verify(stop <-chan struct{}) (bad int, err error) {
	var buf []byte
	err = s.each(func(n uint64, b []byte) error {
		select {
		case <-stop:
			return errStopped
		default:
		}
		x, _ := parseRecord(b)
		if x.mark == 0 {
			return nil
		}
		if cap(buf) < int(x.length) {
			buf = make([]byte, x.length)
		}
		buf = buf[:x.length]
		if err := s.mem.read(s.h.At+uint64(x.place)*align, buf); err != nil {
			return err
		}
		if key, _, err := resultcache.Describe(buf); err != nil || mark(key) != x.mark {
			bad++
			s.void(n, &x)
		}
		return s.err
	})
	return bad, err
}

var errStopped = fmt.Errorf("a shelf that was not verified to its end")
