// Package history remembers the time and memory that compiles took, from one run of the manager to the next,
// so that the scheduler can predict a job before it begins.
//
// An entry is for one source, compiled with one toolchain and the arguments that count (see Of). It keeps the
// peak memory and the mean and variance of the logarithm of the CPU time, because compile times vary by
// factors. New sources are predicted by a line of log(time) against log(size), fitted to everything that the
// same toolchain compiled in the same language.
//
// Times are for a core of speed 1: the caller multiplies what was measured on a host by scheduler.Speed.
package history

import (
	"cmp"
	"crypto/sha256"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Key identifies one kind of compile: the first classLen bytes the toolchain and language, the others the
// source and the arguments that count.
type Key [16]byte

const classLen = 4

type class [classLen]byte

func (k Key) class() class { return class(k[:classLen]) }

// Of returns the Key of a compile of source with args. source must be the same path in each compile of it.
// Only the arguments that change the compiler's work count: optimization, debug information, features, the
// machine and the language. Macros do not count: some hold the time or a version, which would give every
// build new keys.
func Of(toolchain [16]byte, source string, args []string) Key {
	var k Key
	lang := filepath.Ext(source)
	h := sha256.New()
	for i, a := range args {
		switch {
		case a == "-x" && i+1 < len(args):
			lang = "-x" + args[i+1]
		case strings.HasPrefix(a, "-x") && len(a) > 2:
			lang = a
		case counts(a):
			h.Write([]byte(a))
			h.Write([]byte{0})
		}
	}
	h.Write([]byte{0})
	h.Write([]byte(source))
	copy(k[classLen:], h.Sum(nil))
	c := sha256.Sum256(append(toolchain[:len(toolchain):len(toolchain)], lang...))
	copy(k[:classLen], c[:])
	return k
}

func counts(arg string) bool {
	for _, p := range []string{"-O", "-g", "-f", "-m", "-std="} {
		if strings.HasPrefix(arg, p) {
			return true
		}
	}
	return false
}

// entry is what is known of one kind of compile.
type entry struct {
	log    float64 // mean of log(seconds of CPU)
	spread float64 // variance of it
	n      uint32  // number of samples, up to remembered
	rss    uint64  // peak, bytes; 0 = unknown
	size   uint64  // size of the source at the last compile, bytes; 0 = unknown
	seen   uint32  // last use, minutes since 1970
}

// line is fitted to the compiles of a class, log(seconds) over log(bytes), by weighted sums. It also keeps
// the mean of log(peak memory).
type line struct {
	w, x, y, xx, xy, yy float64
	mw, m               float64
	seen                uint32
}

const (
	remembered = 8     // samples that an entry remembers; older ones fade
	fade       = 0.995 // factor on a line's sums with each sample: about 200 count
	enough     = 3     // samples that a line needs before it is used
	classes    = 256   // most classes

	priorSpread = 0.06 // variance of an entry's logarithms before there are samples: a quarter either way
	lineSpread  = 0.5  // the same for a line
	sigmas95    = 1.645
	shortest    = time.Millisecond
	longest     = 24 * time.Hour
)

// Store is a history. It is safe for concurrent use.
type Store struct {
	path string
	max  int
	now  func() time.Time

	mu      sync.Mutex
	entries map[Key]entry
	lines   map[class]line
	all     line
	dirty   bool
}

func newStore(path string, limit int) *Store {
	return &Store{path: path, max: max(limit, 1), now: time.Now, entries: make(map[Key]entry), lines: make(map[class]line)}
}

// Len returns the number of entries.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// Predict returns the expected time and memory of a compile of kind k with a source of size bytes (0 =
// unknown). The Cost is zero if nothing has been learned yet.
func (s *Store) Predict(k Key, size uint64) scheduler.Cost {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[k.class()]
	if l.w < enough {
		l = s.all
	}
	e, ok := s.entries[k]
	if !ok {
		if l.w == 0 {
			return scheduler.Cost{}
		}
		y, spread := l.at(size)
		c := cost(y, spread)
		if l.mw > 0 {
			c.Memory = uint64(math.Exp(l.m))
		}
		return c
	}
	y := e.log
	if size > 0 && e.size > 0 {
		y += l.slope() * math.Log(float64(size)/float64(e.size))
	}
	// The variance seen, with the prior as one additional sample.
	n := float64(e.n)
	c := cost(y, (e.spread*n+priorSpread)/(n+1)*(1+1/n))
	c.Memory, c.Known = e.rss, true
	return c
}

// Learn records what a compile took: cpu on a core of speed 1, and its peak memory in bytes, 0 = not
// measured. A cpu that is not positive is ignored.
func (s *Store) Learn(k Key, size uint64, cpu time.Duration, rss uint64) {
	if cpu <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	y := math.Log(min(max(cpu, shortest), longest).Seconds())
	seen := uint32(s.now().Unix() / 60)
	e := s.entries[k]
	e.add(y, size, rss)
	e.seen = seen
	s.entries[k] = e
	l := s.lines[k.class()]
	l.add(y, size, rss)
	l.seen = seen
	s.lines[k.class()] = l
	s.all.add(y, size, rss)
	s.dirty = true
	s.trim()
}

// trim drops the least recently used entries, some more than necessary so that it is not due again with the
// next entry.
func (s *Store) trim() {
	if len(s.entries) > s.max {
		forget(s.entries, s.max-s.max/16, func(e entry) uint32 { return e.seen }, func(k Key) []byte { return k[:] })
	}
	if len(s.lines) > classes {
		forget(s.lines, classes-classes/16, func(l line) uint32 { return l.seen }, func(k class) []byte { return k[:] })
	}
}

func forget[K comparable, V any](m map[K]V, keep int, seen func(V) uint32, raw func(K) []byte) {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b K) int {
		return cmp.Or(cmp.Compare(seen(m[a]), seen(m[b])), slices.Compare(raw(a), raw(b)))
	})
	for _, k := range keys[:len(keys)-max(keep, 1)] {
		delete(m, k)
	}
}

func (e *entry) add(y float64, size, rss uint64) {
	e.n = min(e.n+1, remembered)
	d := y - e.log
	if e.n == 1 {
		e.log = y
	} else { // approximates the mean and variance of the last remembered samples
		w := 1 / float64(e.n)
		e.log += d * w
		e.spread = (1 - w) * (e.spread + w*d*d)
	}
	if rss > 0 {
		e.rss = max(rss, e.rss-e.rss/8) // the peak, fading over time
	}
	if size > 0 {
		e.size = size
	}
}

func (l *line) add(y float64, size, rss uint64) {
	x := math.Log(float64(max(size, 1)))
	for _, p := range []*float64{&l.w, &l.x, &l.y, &l.xx, &l.xy, &l.yy} {
		*p *= fade
	}
	l.w++
	l.x += x
	l.y += y
	l.xx += x * x
	l.xy += x * y
	l.yy += y * y
	if rss > 0 {
		l.mw = l.mw*fade + 1
		l.m += (math.Log(float64(rss)) - l.m) / l.mw
	}
}

// slope returns how the logarithm of the time grows with that of the size, between 0 and 1 (in proportion).
// Sizes that are all similar reveal nothing.
func (l *line) slope() float64 {
	if l.w < enough {
		return 0.5
	}
	vx := l.xx - l.x*l.x/l.w
	if vx < 1e-3*l.w {
		return 0
	}
	return min(max((l.xy-l.x*l.y/l.w)/vx, 0), 1)
}

// at returns the line's value at a size, and the variance around it.
func (l *line) at(size uint64) (y, spread float64) {
	b := l.slope()
	y = l.y / l.w
	mx := l.x / l.w
	if size > 0 {
		y += b * (math.Log(float64(size)) - mx)
	} else {
		b = 0
	}
	// Of y - b x, with the bounded b.
	my := l.y / l.w
	v := (l.yy/l.w - my*my) - 2*b*(l.xy/l.w-mx*my) + b*b*(l.xx/l.w-mx*mx)
	return y, (max(v, 0)*l.w + lineSpread) / (l.w + 1)
}

// cost returns the Cost of a job whose logarithm of seconds has this mean and variance.
func cost(y, spread float64) scheduler.Cost {
	spread = min(spread, 1)
	return scheduler.Cost{Time: duration(y + spread/2), P95: max(duration(y+sigmas95*math.Sqrt(spread)), duration(y+spread/2))}
}

func duration(log float64) time.Duration {
	if math.IsNaN(log) {
		return shortest
	}
	d := math.Exp(min(max(log, -50), 50)) * float64(time.Second)
	return time.Duration(min(max(d, float64(shortest)), float64(longest)))
}
