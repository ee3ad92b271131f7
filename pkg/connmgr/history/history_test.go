package history

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

var gcc = [16]byte{1}

func key(name string) Key { return Of(gcc, name, []string{"-O2"}) }

func open(t *testing.T, path string, limit int) *Store {
	t.Helper()
	s, err := Open(path, limit)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// within reports whether got is want, give or take a fraction of it.
func within(got, want time.Duration, part float64) bool {
	return math.Abs(float64(got)-float64(want)) <= part*float64(want)
}

func TestKeys(t *testing.T) {
	base := Of(gcc, "/src/a.c", []string{"-O2", "-c"})
	same := [][]string{
		{"-c", "-O2"}, {"-O2", "-o", "x.o"}, {"-Iinclude", "-O2"}, {"-O2", "-Wall", "-MD", "-DVERSION=7"},
	}
	for _, args := range same {
		if Of(gcc, "/src/a.c", args) != base {
			t.Errorf("%q is another key than -O2 -c", args)
		}
	}
	other := map[string]Key{
		"source":       Of(gcc, "/src/b.c", []string{"-O2", "-c"}),
		"optimization": Of(gcc, "/src/a.c", []string{"-O3", "-c"}),
		"debug":        Of(gcc, "/src/a.c", []string{"-O2", "-g"}),
		"toolchain":    Of([16]byte{2}, "/src/a.c", []string{"-O2", "-c"}),
		"language":     Of(gcc, "/src/a.c", []string{"-O2", "-x", "c++"}),
		"no words":     Of(gcc, "/src/a.c", nil),
		"split words":  Of(gcc, "/src/a.c", []string{"-O2", "-g", "-gx"}),
	}
	seen := map[Key]string{base: "base"}
	for what, k := range other {
		if was, ok := seen[k]; ok {
			t.Errorf("another %s and %s are one key", what, was)
		}
		seen[k] = what
	}
	if base.class() != other["source"].class() || base.class() == other["toolchain"].class() || base.class() == other["language"].class() {
		t.Error("classes are not of toolchain and language")
	}
}

func TestNothingKnown(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "h"), 10)
	if c := s.Predict(key("a.c"), 1000); c != (scheduler.Cost{}) {
		t.Errorf("prediction out of nothing: %+v", c)
	}
	s.Learn(key("a.c"), 1, 0, 1)
	if s.Len() != 0 {
		t.Error("a compile without a time was learned")
	}
}

func TestSameSourceAgain(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "h"), 10)
	k := key("a.c")
	s.Learn(k, 1000, 4*time.Second, 100<<20)
	c := s.Predict(k, 1000)
	if !c.Known || !within(c.Time, 4*time.Second, 0.1) || c.P95 < 5*time.Second || c.P95 > 9*time.Second || c.Memory != 100<<20 {
		t.Errorf("after one compile: %+v", c)
	}
	for range remembered {
		s.Learn(k, 1000, 4*time.Second, 50<<20)
	}
	steady := s.Predict(k, 1000)
	if !within(steady.Time, 4*time.Second, 0.05) || steady.P95 >= c.P95 {
		t.Errorf("after many alike: %+v, want a narrower percentile than %v", steady, c.P95)
	}
	if steady.Memory >= 100<<20 || steady.Memory < 50<<20 {
		t.Errorf("memory is %d MiB, want less than an old peak and no less than what it takes", steady.Memory>>20)
	}
	// What a compile takes now counts, not what it took long ago.
	for range 3 * remembered {
		s.Learn(k, 1000, 8*time.Second, 0)
	}
	if c := s.Predict(k, 1000); !within(c.Time, 8*time.Second, 0.1) {
		t.Errorf("a source that has grown takes %v, want 8 s", c.Time)
	}
	// Times that vary have a wide percentile.
	for i := range 4 * remembered {
		s.Learn(k, 1000, time.Duration(1+7*(i%2))*time.Second, 0)
	}
	if c := s.Predict(k, 1000); c.P95 < 8*time.Second || c.P95 < 2*c.Time {
		t.Errorf("between 1 s and 8 s: %+v", c)
	}
}

// TestSizeAsPrior: new sources are predicted by the line through what the same toolchain compiled in the
// same language.
func TestSizeAsPrior(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "h"), 1000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		size := uint64(1000 * math.Exp(4*rng.Float64()))
		noise := math.Exp(0.2 * rng.NormFloat64())
		s.Learn(key(fmt.Sprint(i, ".c")), size, time.Duration(float64(size)*noise*float64(time.Microsecond)), 64<<20)
		s.Learn(Of(gcc, fmt.Sprint(i, ".cc"), nil), size, time.Duration(10*float64(size)*noise*float64(time.Microsecond)), 256<<20)
	}
	for _, size := range []uint64{2000, 10000, 40000} {
		c, cc := s.Predict(key("new.c"), size), s.Predict(Of(gcc, "new.cc", nil), size)
		if want := time.Duration(size) * time.Microsecond; c.Known || !within(c.Time, want, 0.25) || c.P95 < want*5/4 || c.P95 > want*2 || c.Memory>>20 < 60 || c.Memory>>20 > 68 {
			t.Errorf("C of %d bytes: %+v, want about %v", size, c, want)
		}
		if want := 10 * time.Duration(size) * time.Microsecond; !within(cc.Time, want, 0.25) || cc.Memory>>20 < 240 {
			t.Errorf("C++ of %d bytes: %+v, want about %v", size, cc, want)
		}
	}
	// For a class with too few samples, all classes together are used.
	if c := s.Predict(Of([16]byte{9}, "new.c", nil), 10000); c.Time < 10*time.Millisecond || c.Time > 110*time.Millisecond {
		t.Errorf("another compiler: %+v, want between C and C++", c)
	}
	// The same source, now twice as large.
	k := key("known.c")
	s.Learn(k, 10000, 10*time.Millisecond, 0)
	if c := s.Predict(k, 20000); !within(c.Time, 20*time.Millisecond, 0.2) {
		t.Errorf("twice the size: %+v, want 20 ms", c)
	}
	if c := s.Predict(key("new.c"), 0); c.Time < 2*time.Millisecond || c.Time > 40*time.Millisecond {
		t.Errorf("unknown size: %+v", c)
	}
}

func TestBounded(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "h"), 100)
	now := time.Unix(1e9, 0)
	s.now = func() time.Time { return now }
	for i := range 1000 {
		now = now.Add(time.Minute)
		s.Learn(key(fmt.Sprint(i)), 1, time.Second, 0)
		s.Learn(key("always"), 1, time.Second, 0)
		if s.Len() > 100 {
			t.Fatalf("%d entries", s.Len())
		}
		s.Learn(Of([16]byte{byte(i), byte(i >> 8)}, "always", nil), 1, time.Second, 0)
		if len(s.lines) > classes {
			t.Fatalf("%d lines", len(s.lines))
		}
	}
	if !s.Predict(key("always"), 1).Known || !s.Predict(key("999"), 1).Known || s.Predict(key("1"), 1).Known {
		t.Error("what was seen last is not what is kept")
	}
}

func TestKeptInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "rdistcc", "history")
	s := open(t, path, 100)
	for i := range 50 {
		s.Learn(key(fmt.Sprint(i)), uint64(1000*i), time.Duration(1+i)*time.Second, uint64(i)<<20)
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path, 100)
	for i := range 60 { // some of the keys are new
		k := key(fmt.Sprint(i))
		a, b := s.Predict(k, 5000), again.Predict(k, 5000)
		if a.Known != b.Known || a.Memory != b.Memory || !within(b.Time, a.Time, 1e-6) || !within(b.P95, a.P95, 1e-6) {
			t.Errorf("%d: %+v became %+v", i, a, b)
		}
	}
	if n := open(t, path, 10).Len(); n > 10 {
		t.Errorf("%d entries, 10 are allowed", n)
	}
	// Nothing new, nothing written.
	os.Remove(path)
	if err := again.Save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("written though nothing was learned")
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if len(left) != 0 {
		t.Errorf("%q are left beside the file", left)
	}
}

func TestTwoWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	a, b := open(t, path, 100), open(t, path, 100)
	early, late := time.Unix(1e9, 0), time.Unix(1e9+3600, 0)
	a.now, b.now = func() time.Time { return late }, func() time.Time { return early }
	a.Learn(key("a"), 1, time.Second, 0)
	b.Learn(key("b"), 1, time.Second, 0)
	a.Learn(key("both"), 1, 10*time.Second, 0)
	b.Learn(key("both"), 1, time.Second, 0)
	for _, s := range []*Store{a, b} {
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
	}
	c := open(t, path, 100)
	if !c.Predict(key("a"), 1).Known || !c.Predict(key("b"), 1).Known {
		t.Error("one of the writers is lost")
	}
	if got := c.Predict(key("both"), 1).Time; got < 9*time.Second {
		t.Errorf("of an entry that both have, that of %v was kept, want the last one's 10 s", got)
	}
}

func TestDamagedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	s := open(t, path, 10)
	s.Learn(key("a"), 1000, time.Second, 1<<20)
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(change func(b []byte)) []byte {
		b := bytes.Clone(good[:len(good)-sha256.Size])
		change(b)
		sum := sha256.Sum256(b)
		return append(b, sum[:]...)
	}
	for what, b := range map[string][]byte{
		"its beginning": []byte("something else"), "(its beginning)": nil, "checksum": append(bytes.Clone(good), 0),
		"version 2": sealed(func(b []byte) { b[8] = 2 }),
		"length":    sealed(func(b []byte) { b[12] = 2 }),
		"an entry":  sealed(func(b []byte) { b[headLen+28] = 0 }),
		"a line":    sealed(func(b []byte) { copy(b[headLen+entryLen+8:], "\xff\xff\xff\xff\xff\xff\xff\xff") }),
	} {
		os.WriteFile(path, b, 0o600)
		s, err := Open(path, 10)
		if !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error is %v, want one that names %q", err, what)
		}
		if s.Len() != 0 {
			t.Errorf("%s: history has %d entries", what, s.Len())
		}
		s.Learn(key("b"), 1, time.Second, 0)
		if err := s.Save(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if open(t, path, 10).Len() != 1 {
			t.Errorf("%s: no new history in its place", what)
		}
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 1
		if _, err := parse(b); err == nil {
			t.Fatalf("a bit of byte %d is turned: nobody notices", i)
		}
		if _, err := parse(good[:i]); err == nil {
			t.Fatalf("cut after %d bytes: nobody notices", i)
		}
	}
}

func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
	s, err := Open(filepath.Join(dir, "file", "h"), 10)
	if err == nil {
		t.Error("no word of a path that cannot be")
	}
	s.Learn(key("a"), 1, time.Second, 0)
	if err := s.Save(); err == nil || !s.Predict(key("a"), 1).Known {
		t.Errorf("save: %v, and what was learned must stay", err)
	}
}

// FuzzParse: any file is either refused, or gives predictions that are valid times and is written again as it
// was read.
func FuzzParse(f *testing.F) {
	s := newStore("", 10)
	for i := range 5 {
		s.Learn(key(fmt.Sprint(i)), uint64(i*1000), time.Duration(i+1)*time.Second, uint64(i)<<20)
	}
	b := s.appendTo(nil)
	f.Add(b[:len(b)-sha256.Size])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		c, err := parse(append(bytes.Clone(body), sum[:]...))
		if err != nil {
			return
		}
		s := newStore("", 1<<20)
		s.entries, s.lines, s.all = c.entries, c.lines, c.all
		back, err := parse(s.appendTo(nil))
		if err != nil || len(back.entries) != len(c.entries) || len(back.lines) != len(c.lines) || back.all != c.all {
			t.Fatalf("written again: %v, %d entries of %d", err, len(back.entries), len(c.entries))
		}
		keys := []Key{key("new")}
		for k := range c.entries {
			keys = append(keys, k)
		}
		for _, k := range keys {
			for _, size := range []uint64{0, 1, 1 << 20, math.MaxUint64} {
				if p := s.Predict(k, size); p.Time < 0 || p.Time > longest || p.P95 < p.Time || p.P95 > longest {
					t.Fatalf("prediction %+v", p)
				}
			}
			s.Learn(k, 1000, time.Second, 1<<20)
		}
	})
}

func BenchmarkPredict(b *testing.B) {
	s := newStore("", 65536)
	for i := range 65536 {
		s.Learn(key(fmt.Sprint(i)), uint64(i), time.Second, 1<<20)
	}
	k := key("777")
	for b.Loop() {
		s.Predict(k, 1000)
	}
}
