package journal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Writer adds compiles to a journal. Several processes may write to one, each to a file of its own. It is safe for concurrent use.
type Writer struct {
	dir string

	mu    sync.Mutex
	f     *os.File // nil: none yet
	size  int      // of f
	most  int      // of f, as maxFile
	batch []byte   // not written yet, with room for its head
	base  time.Time

	// what f has, by number
	names map[string]uint32
	files map[File]uint32
	lists map[List]uint32
	// recent has the last file with each digest: to find that takes a fifth of what hashing a name does.
	recent map[uint64]numbered
}

// numbered is a state of a file, and its number.
type numbered struct {
	File
	n uint32
}

// List names what a compile has read: two compiles with the same one have read the same.
type List [32]byte

// NewWriter returns a Writer for the journal in dir, which need not exist yet. Nothing is written before Flush.
func NewWriter(dir string) *Writer { return &Writer{dir: dir, most: maxFile} }

// Add adds a compile. Its Reads are ignored: it has read what list names, and what reads calls yield with, in any order, if the
// journal does not have that list yet. Without reads, what it has read is not known.
func (w *Writer) Add(c *Compile, list List, reads func(yield func(*File))) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.batch == nil {
		w.begin(c.Ended)
	}
	n := uint64(0)
	if reads != nil {
		n = 1 + uint64(w.list(list, reads))
	}
	source, output, where, why := w.name(c.Source), w.name(c.Output), w.name(c.Where), w.name(c.Why)
	b := append(w.batch, itemCompile)
	flags := uint64(c.Place & 3)
	for _, x := range [...]struct {
		on  bool
		bit uint64
	}{{c.OK, flagOK}, {c.Asked, flagAsked}, {c.Exact, flagExact}} {
		if x.on {
			flags |= x.bit
		}
	}
	b = binary.AppendUvarint(b, flags)
	b = binary.AppendVarint(b, c.Ended.Sub(w.base).Milliseconds())
	b = binary.LittleEndian.AppendUint64(b, c.Build)
	b = binary.LittleEndian.AppendUint64(b, c.Command)
	for _, v := range [...]uint64{uint64(source), uint64(output), uint64(where), uint64(why),
		uint64(max(c.CPU.Microseconds(), 0)), uint64(max(c.Ran.Microseconds(), 0)), c.Memory >> 10, n} {
		b = binary.AppendUvarint(b, v)
	}
	w.batch = b
}

// begin begins a batch, and another file if the one so far is full.
func (w *Writer) begin(now time.Time) {
	if w.names == nil || w.size > w.most {
		w.close()
		w.names, w.files, w.lists, w.recent = make(map[string]uint32), make(map[File]uint32), make(map[List]uint32), make(map[uint64]numbered)
	}
	w.base = now.Truncate(time.Millisecond)
	b := append(make([]byte, 0, 1<<10), batchMark...)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	for _, n := range [...]int{len(w.names), len(w.files), len(w.lists)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	w.batch = binary.LittleEndian.AppendUint64(b, uint64(w.base.UnixMilli()))
}

// name returns the number of a name.
func (w *Writer) name(s string) uint32 {
	n, ok := w.names[s]
	if !ok {
		n = uint32(len(w.names))
		w.names[strings.Clone(s)] = n
		s = s[:min(len(s), maxName)]
		w.batch = append(binary.AppendUvarint(append(w.batch, itemName), uint64(len(s))), s...)
	}
	return n
}

// file returns the number of a state of a file.
func (w *Writer) file(f *File) uint32 {
	if x, ok := w.recent[f.Sum]; ok && x.File == *f {
		return x.n
	}
	n, ok := w.files[*f]
	if !ok {
		name := w.name(f.Name)
		n = uint32(len(w.files))
		w.files[*f] = n
		b := binary.AppendUvarint(append(w.batch, itemFile), uint64(name))
		w.batch = binary.LittleEndian.AppendUint64(binary.AppendUvarint(b, f.Size), f.Sum)
	}
	w.recent[f.Sum] = numbered{*f, n}
	return n
}

// list returns the number of a list.
func (w *Writer) list(id List, reads func(yield func(*File))) uint32 {
	if n, ok := w.lists[id]; ok {
		return n
	}
	var numbers []uint32
	reads(func(f *File) {
		if len(numbers) < maxReads {
			numbers = append(numbers, w.file(f))
		}
	})
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	n := uint32(len(w.lists))
	w.lists[id] = n
	text := appendRuns(nil, numbers)
	w.batch = append(binary.AppendUvarint(append(w.batch, itemList), uint64(len(text))), text...)
	return n
}

// Flush writes what was added. What cannot be written is lost, and the next batch goes to another file.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Writer) flush() error {
	b := w.batch
	w.batch = nil
	if b == nil {
		return nil
	}
	binary.LittleEndian.PutUint32(b[len(batchMark):], uint32(len(b)-batchHead))
	binary.LittleEndian.PutUint32(b[len(batchMark)+4:], sumOf(b))
	if w.f == nil {
		f, err := create(w.dir)
		if err != nil {
			w.close()
			return err
		}
		w.f, w.size = f, headLen
	}
	_, err := w.f.Write(b)
	if err != nil {
		if w.size == headLen { // or a full disk would be filled with files that push out those with something in them
			err = errors.Join(err, os.Remove(w.f.Name()))
		}
		w.close()
		return err
	}
	w.size += len(b)
	return nil
}

// close closes the file. What it has no longer counts as there.
func (w *Writer) close() {
	if w.f != nil {
		_ = w.f.Close() // each write has said whether it worked
	}
	w.f, w.size, w.names = nil, 0, nil
}

// Close writes what was added, and ends the Writer.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.flush()
	w.close()
	return err
}

// create makes the next file of the journal, and removes the oldest ones if there are too many.
func create(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil, fmt.Errorf("%s: not a directory that only this user can write to", dir)
	}
	numbers, err := numbersIn(dir)
	if err != nil {
		return nil, err
	}
	next := 1
	if len(numbers) > 0 {
		next = numbers[len(numbers)-1] + 1
	}
	prune(dir, numbers)
	for {
		f, err := os.OpenFile(fileOf(dir, next), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		if errors.Is(err, fs.ErrExist) { // another manager's
			next++
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(binary.LittleEndian.AppendUint32([]byte(magic), version)); err != nil {
			return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
		}
		return f, nil
	}
}

// prune removes the oldest files, so that there is room for one more.
func prune(dir string, numbers []int) {
	room := int64(maxBytes - maxFile)
	for i, n := range slices.Backward(numbers) {
		if st, err := os.Lstat(fileOf(dir, n)); err == nil {
			room -= st.Size()
		}
		if room < 0 || len(numbers)-i >= maxFiles {
			_ = os.Remove(fileOf(dir, n)) // the next time, if not now
		}
	}
}

func fileOf(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n)+".log") }

// numbersIn returns the numbers of the files of a journal, the oldest first.
func numbersIn(dir string) (numbers []int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".log"); ok {
			if n, err := strconv.Atoi(name); err == nil && n > 0 && strconv.Itoa(n) == name {
				numbers = append(numbers, n)
			}
		}
	}
	slices.SortFunc(numbers, cmp.Compare[int])
	return numbers, err
}
