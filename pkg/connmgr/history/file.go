package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/rdistcc/rdistcc/internal/wholefile"
)

// The format of the file, little-endian:
//
//	0     8         12        16       20
//	| mag | version | entries | lines | entries… | lines… | all | SHA-256 of all before |
//
// An entry has 48 bytes: key 16, log f64, spread f32, n u32, rss in KiB u32, size u64, seen u32. A line has 72
// bytes: class 4, seen u32, eight f64. all is a line with class zero.
const (
	magic    = "rdcchist"
	version  = 1
	headLen  = 20
	entryLen = 48
	lineLen  = 72
	maxFile  = headLen + 1<<20*entryLen + (classes+1)*lineLen + sha256.Size
)

// ErrFile is wrapped by the error for a file that is not a history.
var ErrFile = errors.New("not a history of compiles, or a damaged one: starting an empty one in its place")

// Open reads the history at path and keeps at most limit entries. A missing file is an empty history. The
// Store can always be used; a non-nil error, one line for the user, is the reason why it starts empty.
func Open(path string, limit int) (*Store, error) {
	s := newStore(path, limit)
	f, err := s.read()
	if err != nil {
		return s, err
	}
	s.entries, s.lines, s.all = f.entries, f.lines, f.all
	s.trim()
	return s, nil
}

// contents holds the content of a file.
type contents struct {
	entries map[Key]entry
	lines   map[class]line
	all     line
}

func (s *Store) read() (contents, error) {
	none := contents{entries: make(map[Key]entry), lines: make(map[class]line)}
	if st, err := os.Stat(s.path); err == nil && st.Size() > maxFile {
		return none, fmt.Errorf("%s: %w (%d bytes)", s.path, ErrFile, st.Size())
	}
	b, err := os.ReadFile(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("history of compiles: %w", err)
	}
	c, err := parse(b)
	if err != nil {
		return none, fmt.Errorf("%s: %w", s.path, err)
	}
	return c, nil
}

// Save writes the history to its file if anything was learned since the last Save. It merges what another
// process has saved since; of an entry that both have, it keeps the more recent one.
func (s *Store) Save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirty {
		return nil
	}
	// An old file that cannot be read is replaced.
	if old, err := s.read(); err == nil {
		s.merge(old)
	}
	if err := s.write(); err != nil {
		return fmt.Errorf("history of compiles: %w", err)
	}
	s.dirty = false
	return nil
}

func (s *Store) merge(old contents) {
	for k, e := range old.entries {
		if have, ok := s.entries[k]; !ok || e.seen > have.seen {
			s.entries[k] = e
		}
	}
	for k, l := range old.lines {
		if have, ok := s.lines[k]; !ok || l.seen > have.seen {
			s.lines[k] = l
		}
	}
	if s.all.w == 0 {
		s.all = old.all
	}
	s.trim()
}

// write replaces the file atomically: a reader finds the old or the new one.
func (s *Store) write() error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	return wholefile.Replace(s.path, s.appendTo(nil))
}

func (s *Store) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, magic...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, uint32(len(s.entries)))
	b = le.AppendUint32(b, uint32(len(s.lines)))
	// Sorted, so that equal histories are equal files.
	for _, k := range slices.SortedFunc(maps.Keys(s.entries), func(x, y Key) int { return bytes.Compare(x[:], y[:]) }) {
		e := s.entries[k]
		b = append(b, k[:]...)
		b = le.AppendUint64(b, math.Float64bits(e.log))
		b = le.AppendUint32(b, math.Float32bits(float32(e.spread)))
		b = le.AppendUint32(b, e.n)
		b = le.AppendUint32(b, uint32(min(e.rss>>10, math.MaxUint32)))
		b = le.AppendUint64(b, e.size)
		b = le.AppendUint32(b, e.seen)
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.lines), func(x, y class) int { return bytes.Compare(x[:], y[:]) }) {
		b = s.lines[k].appendTo(b, k)
	}
	b = s.all.appendTo(b, class{})
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func (l line) appendTo(b []byte, k class) []byte {
	b = append(b, k[:]...)
	b = binary.LittleEndian.AppendUint32(b, l.seen)
	for _, v := range []float64{l.w, l.x, l.y, l.xx, l.xy, l.yy, l.mw, l.m} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// parse decodes a file. It allocates nothing larger than b.
func parse(b []byte) (contents, error) {
	var none contents
	bad := func(what string) (contents, error) { return none, fmt.Errorf("%w (%s)", ErrFile, what) }
	if len(b) < headLen+lineLen+sha256.Size || string(b[:len(magic)]) != magic {
		return bad("its beginning")
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[8:]); v != version {
		return bad(fmt.Sprintf("version %d, this program knows %d", v, version))
	}
	body := b[:len(b)-sha256.Size]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], b[len(body):]) {
		return bad("its checksum")
	}
	n, m := uint64(le.Uint32(b[12:])), uint64(le.Uint32(b[16:]))
	if uint64(len(body)) != headLen+n*entryLen+(m+1)*lineLen {
		return bad("its length")
	}
	c := contents{entries: make(map[Key]entry, n), lines: make(map[class]line, m)}
	body = body[headLen:]
	for range n {
		e := entry{
			log: math.Float64frombits(le.Uint64(body[16:])), spread: float64(math.Float32frombits(le.Uint32(body[24:]))),
			n: le.Uint32(body[28:]), rss: uint64(le.Uint32(body[32:])) << 10, size: le.Uint64(body[36:]), seen: le.Uint32(body[44:]),
		}
		if !sane(e.log) || !sane(e.spread) || e.spread < 0 || e.n < 1 || e.n > remembered {
			return bad("an entry")
		}
		c.entries[Key(body)] = e
		body = body[entryLen:]
	}
	for i := range m + 1 {
		l := line{seen: le.Uint32(body[classLen:])}
		for i, p := range []*float64{&l.w, &l.x, &l.y, &l.xx, &l.xy, &l.yy, &l.mw, &l.m} {
			*p = math.Float64frombits(le.Uint64(body[classLen+4+8*i:]))
			if !sane(*p) {
				return bad("a line")
			}
		}
		if l.w < 0 || l.mw < 0 {
			return bad("a line")
		}
		if i < m {
			c.lines[class(body)] = l
		} else {
			c.all = l
		}
		body = body[lineLen:]
	}
	return c, nil
}

// sane reports whether a number cannot lead to an infinity or NaN in what is computed from it.
func sane(v float64) bool { return math.Abs(v) < 1e12 }
