package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Log is what was read of a journal.
type Log struct {
	Files    []File    // each state once
	Compiles []Compile // in the order in which they ended
	// Notes say what could not be read, a line for each file of the journal that is concerned.
	Notes []string
}

// maxExpanded bounds the numbers in all lists of a Log: a file that was not written by a Writer could hold more than there is
// memory for.
const maxExpanded = 1 << 27

// Read reads the compiles of a journal that want reports true for; what they Read is not set yet then. A file that ended before since is not
// looked at. A journal that does not exist is empty.
func Read(dir string, since time.Time, want func(*Compile) bool) (*Log, error) {
	numbers, err := numbersIn(dir)
	if err != nil {
		return nil, err
	}
	r := &reader{log: new(Log), want: want, files: make(map[File]uint32), room: maxExpanded}
	for _, n := range numbers {
		if err := r.read(fileOf(dir, n), since); err != nil && !errors.Is(err, fs.ErrNotExist) { // it was removed just now
			r.log.Notes = append(r.log.Notes, err.Error())
		}
	}
	slices.SortStableFunc(r.log.Compiles, func(x, y Compile) int { return x.Ended.Compare(y.Ended) })
	return r.log, nil
}

// reader reads one file after the other.
type reader struct {
	log   *Log
	want  func(*Compile) bool
	files map[File]uint32 // by their index in log.Files
	room  int             // for further numbers in lists
	list  []uint32        // scratch
}

// segment is what was numbered in one file, by its number. A damaged batch leaves gaps.
type segment struct {
	names map[uint64]string
	files map[uint64]uint32
	lists map[uint64][]uint32
	next  [3]uint64 // numbers of the next name, file and list
	base  time.Time
	lost  int // compiles that refer to what was in a damaged batch
}

// read reads one file. The error, a line, says what of it is missing.
func (r *reader) read(name string, since time.Time) error {
	data, err := load(name, since)
	if err != nil || data == nil {
		return err
	}
	switch {
	case len(data) < headLen: // its manager was stopped in the middle of it
		return nil
	case string(data[:len(magic)]) != magic:
		return fmt.Errorf("%s: not a record of compiles", name)
	}
	if v := binary.LittleEndian.Uint32(data[len(magic):]); v != version {
		return fmt.Errorf("%s: written by another version of rdistcc (%d, not %d)", name, v, version)
	}
	s := &segment{names: make(map[uint64]string), files: make(map[uint64]uint32), lists: make(map[uint64][]uint32)}
	damaged := 0 // bytes
	for data = data[headLen:]; len(data) > 0; {
		batch, ok := cutBatch(data)
		if ok {
			ok = r.batch(s, batch[batchHead:])
			data = data[len(batch):]
			if !ok {
				damaged += len(batch)
			}
			continue
		}
		next := bytes.Index(data[1:], []byte(batchMark))
		if next < 0 {
			if len(data) < batchHead || !whole(data) { // one that is being written, or never was to its end
				break
			}
			next = len(data) - 1
		}
		damaged += next + 1
		data = data[next+1:]
	}
	switch {
	case r.room < 0:
		return fmt.Errorf("%s: more than there is room for", name)
	case damaged > 0:
		return fmt.Errorf("%s: %d bytes are damaged; what they said is missing, and what %d compiles read", name, damaged, s.lost)
	}
	return nil
}

// load returns the content of a file: one of this user's or root's, as what it says is shown to this user. It is nil if the file
// ended before since.
func load(name string, since time.Time) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s: not a file of this user", name)
	}
	if time.Unix(st.Mtim.Unix()).Before(since) {
		return nil, nil
	}
	return io.ReadAll(io.LimitReader(f, 2*maxFile))
}

// whole reports whether data, which begins with a batch's head, is at least as long as that says.
func whole(data []byte) bool {
	return string(data[:len(batchMark)]) != batchMark || uint64(len(data)-batchHead) >= uint64(binary.LittleEndian.Uint32(data[len(batchMark):]))
}

// cutBatch returns the batch that data begins with. ok is false if there is none, or it is damaged.
func cutBatch(data []byte) (batch []byte, ok bool) {
	if len(data) < batchHead || string(data[:len(batchMark)]) != batchMark || !whole(data) {
		return nil, false
	}
	batch = data[:batchHead+int(binary.LittleEndian.Uint32(data[len(batchMark):]))]
	return batch, sumOf(batch) == binary.LittleEndian.Uint32(batch[len(batchMark)+4:])
}

// batch takes a batch without its head. It reports whether all of it was understood.
func (r *reader) batch(s *segment, b []byte) bool {
	d := &decoder{b: b}
	for i := range s.next {
		s.next[i] = d.uvarint()
	}
	s.base = time.UnixMilli(int64(d.uint64()))
	for len(d.b) > 0 && !d.bad && r.room >= 0 {
		switch d.byte() {
		case itemName:
			s.names[s.next[0]] = string(d.bytes(d.uvarint()))
			s.next[0]++
		case itemFile:
			name, ok := s.names[d.uvarint()]
			f := File{Name: name, Size: d.uvarint(), Sum: d.uint64()}
			if ok {
				s.files[s.next[1]] = r.intern(f)
			}
			s.next[1]++
		case itemList:
			text := d.bytes(d.uvarint())
			r.list = r.list[:0]
			known := true
			known = runs(text, func(n uint64) {
				f, ok := s.files[n]
				known = known && ok
				r.list = append(r.list, f)
			}) && known
			list := append([]uint32(nil), r.list...) // of its own size
			if r.room -= len(list); known && r.room >= 0 {
				slices.Sort(list)
				s.lists[s.next[2]] = list
			}
			s.next[2]++
		case itemCompile:
			r.compile(s, d)
		default:
			return false
		}
	}
	return !d.bad
}

// intern returns the index of a state of a file.
func (r *reader) intern(f File) uint32 {
	n, ok := r.files[f]
	if !ok {
		n = uint32(len(r.log.Files))
		r.files[f] = n
		r.log.Files = append(r.log.Files, f)
	}
	return n
}

// compile takes a compile.
func (r *reader) compile(s *segment, d *decoder) {
	flags := d.uvarint()
	c := Compile{Place: Place(flags & 3), OK: flags&flagOK != 0, Asked: flags&flagAsked != 0, Exact: flags&flagExact != 0,
		Ended: s.base.Add(time.Duration(d.varint()) * time.Millisecond), Build: d.uint64(), Command: d.uint64()}
	known := true
	for _, to := range [...]*string{&c.Source, &c.Output, &c.Where, &c.Why} {
		var ok bool
		*to, ok = s.names[d.uvarint()]
		known = known && ok
	}
	c.CPU, c.Ran = d.micros(), d.micros()
	c.Memory = min(d.uvarint(), math.MaxInt64>>10) << 10
	list := d.uvarint()
	if d.bad {
		return
	}
	if !known {
		s.lost++
		return
	}
	if !r.want(&c) {
		return
	}
	if list > 0 {
		if c.Reads, known = s.lists[list-1]; !known {
			s.lost++
		}
	}
	r.log.Compiles = append(r.log.Compiles, c)
}

// decoder reads values one after the other. After the first that is not there, bad is set, and it returns zeros.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.b, d.bad = nil, true
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	d.bytes(uint64(cmp.Or(max(n, 0), math.MaxInt)))
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	d.bytes(uint64(cmp.Or(max(n, 0), math.MaxInt)))
	return v
}

// micros reads a duration. One that is too long is cut.
func (d *decoder) micros() time.Duration {
	return time.Duration(min(d.uvarint(), uint64(math.MaxInt64/int64(time.Microsecond)))) * time.Microsecond
}
