package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func all(*Compile) bool { return true }

// read reads a journal that is as it should be.
func read(t *testing.T, dir string) *Log {
	t.Helper()
	l, err := Read(dir, time.Time{}, all)
	if err != nil || len(l.Notes) > 0 {
		t.Fatal(err, l.Notes)
	}
	return l
}

func write(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// files yields files in turn.
func files(list ...File) func(func(*File)) {
	return func(yield func(*File)) {
		for i := range list {
			yield(&list[i])
		}
	}
}

// readsOf returns what a compile read.
func readsOf(l *Log, i int) (list []File) {
	for _, n := range l.Compiles[i].Reads {
		list = append(list, l.Files[n])
	}
	return list
}

var now = time.UnixMilli(1_790_000_000_123)

func TestRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "costs")
	if l := read(t, dir); len(l.Compiles) != 0 {
		t.Errorf("before anything: %+v", l)
	}
	every := make([]byte, 255)
	for i := range every {
		every[i] = byte(i + 1)
	}
	a, b, odd := File{"/w/a.h", 100, 7}, File{"/w/b.h", 1 << 40, 8}, File{"/w/\x00\n" + string(every), 0, 1<<64 - 1}
	newer := File{"/w/a.h", 101, 9}
	want := []Compile{
		{Ended: now, Build: 1<<64 - 1, Command: 5, Place: Remote, OK: true, Asked: true, Source: "/w/x.c", Output: "/w/x.o", Where: "h:7632", Why: "changed: a.h", CPU: 12345 * time.Microsecond, Ran: time.Hour, Memory: 3 << 20},
		{Ended: now.Add(-time.Minute), Place: Cached, Exact: true, Source: odd.Name, Where: "manager"},
		{Ended: now.Add(time.Hour), Place: Here, Source: "/w/y.c", Why: "local-share"},
		{Ended: now.Add(time.Hour), Place: Here, Source: "/w/z.c"},
	}
	w := NewWriter(dir)
	w.Add(&want[0], List{1}, files(b, a, odd, a))
	w.Add(&want[1], List{1}, func(func(*File)) { t.Error("a list that is there is asked for again") })
	write(t, w)
	w.Add(&want[2], List{2}, files(newer, b))
	w.Add(&want[3], List{}, nil)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l := read(t, dir)
	slices.SortStableFunc(want, func(x, y Compile) int { return x.Ended.Compare(y.Ended) })
	reads := [][]File{{b, a, odd}, {b, a, odd}, {b, newer}, nil}
	for i := range want {
		got := l.Compiles[i]
		got.Reads = nil
		if !got.Ended.Equal(want[i].Ended) {
			t.Errorf("%d ended %v, want %v", i, got.Ended, want[i].Ended)
		}
		got.Ended = want[i].Ended
		if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("got  %+v\nwant %+v", got, want[i])
		}
		if got := readsOf(l, i); !slices.Equal(got, reads[i]) {
			t.Errorf("%d read %v, want %v", i, got, reads[i])
		}
	}
	for _, name := range []string{dir, fileOf(dir, 1)} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others: %v, %v", name, st.Mode(), err)
		}
	}
	if l, err := Read(dir, time.Now().Add(time.Hour), all); err != nil || len(l.Compiles) != 0 {
		t.Errorf("of later than now: %d, %v", len(l.Compiles), err)
	}
	if l, err := Read(dir, time.Time{}, func(c *Compile) bool { return c.Place == Here }); err != nil || len(l.Compiles) != 2 || len(l.Compiles[0].Reads) != 2 {
		t.Errorf("of those here: %+v, %v", l, err)
	}
}

func TestRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var list []uint32
		for n := uint32(r.IntN(5)); len(list) < r.IntN(200); n += 1 + uint32(r.IntN(1+r.IntN(4)*r.IntN(100000))) {
			list = append(list, n)
		}
		var got []uint32
		if !runs(appendRuns(nil, list), func(n uint64) { got = append(got, uint32(n)) }) || !slices.Equal(got, list) {
			t.Fatalf("got  %v\nwant %v", got, list)
		}
	}
	if text := appendRuns(nil, []uint32{3, 10, 11, 12, 13}); len(text) != 3 {
		t.Errorf("%d bytes", len(text))
	}
	if runs(binary.AppendUvarint(binary.AppendUvarint(nil, 1), maxReads-1), func(uint64) {}) {
		t.Error("a list beyond its bound")
	}
}

// sample writes batches of one compile each to a journal, and returns where each begins in its file.
func sample(t *testing.T, dir string, n int) (begins []int) {
	t.Helper()
	w := NewWriter(dir)
	for i := range n {
		begins = append(begins, max(w.size, headLen))
		w.Add(&Compile{Ended: now, Source: fmt.Sprintf("/w/%d.c", i), OK: true}, List{byte(i)}, files(File{Name: "/w/all.h"}, File{Name: fmt.Sprintf("/w/%d.h", i)}))
		write(t, w)
	}
	return append(begins, w.size)
}

// TestDamage: whatever byte is damaged, there is one line at most, and what does not depend on that byte is there.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	begins := sample(t, dir, 5)
	good, err := os.ReadFile(fileOf(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	for at := range good {
		bad := bytes.Clone(good)
		bad[at] ^= 0x55
		if err := os.WriteFile(fileOf(dir, 1), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Read(dir, time.Time{}, all)
		if err != nil || len(l.Notes) > 1 || len(l.Notes) == 0 && at < begins[4] {
			t.Fatalf("byte %d: %v, %q", at, err, l.Notes)
		}
		have := make(map[string]int)
		for i, c := range l.Compiles {
			have[c.Source] = len(readsOf(l, i))
		}
		for i := range 5 {
			// The first batch has the name of all.h too.
			whole := at >= headLen && !(at >= begins[i] && at < begins[i+1]) && (i == 0 || at >= begins[1])
			if n, ok := have[fmt.Sprintf("/w/%d.c", i)]; whole && n != 2 || ok && n != 2 && n != 0 {
				t.Fatalf("byte %d: compile %d has read %d files, %v; %q", at, i, n, ok, l.Notes)
			}
		}
	}
	for n := range good {
		if err := os.WriteFile(fileOf(dir, 1), good[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for want < 5 && begins[want+1] <= n {
			want++
		}
		if l, err := Read(dir, time.Time{}, all); err != nil || len(l.Notes) > 0 || len(l.Compiles) != want {
			t.Fatalf("%d bytes: %d compiles, want %d; %v, %q", n, len(l.Compiles), want, err, l.Notes)
		}
	}
}

// TestOtherFiles: what is no file of a journal, or of another version, costs a line, and the rest is there.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	sample(t, dir, 1)
	other := binary.LittleEndian.AppendUint32([]byte(magic), version+1)
	for name, text := range map[string]string{"2.log": string(other) + "anything", "3.log": "not of ours, whatever it is", "x.log": "", "04.log": "", "7.txt": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", fileOf(dir, 5)); err != nil {
		t.Fatal(err)
	}
	sample(t, dir, 1)
	l, err := Read(dir, time.Time{}, all)
	if err != nil || len(l.Compiles) != 2 || len(l.Notes) != 3 {
		t.Fatalf("%d compiles, %v, %q", len(l.Compiles), err, l.Notes)
	}
	for i, want := range []string{"another version of rdistcc (2, not 1)", "not a record of compiles", "too many levels of symbolic links"} {
		if !strings.Contains(l.Notes[i], want) {
			t.Errorf("no %q in %q", want, l.Notes[i])
		}
	}
}

// TestBounded: files are replaced when they are full, the oldest go, and each can be read without those.
func TestBounded(t *testing.T) {
	dir := t.TempDir()
	for n := range maxFiles + 3 {
		w := NewWriter(dir)
		w.most = 100
		for i := range 2 { // a file each
			w.Add(&Compile{Ended: now.Add(time.Duration(n) * time.Second), Source: strings.Repeat("x", 100)}, List{byte(i)}, files(File{Name: "/h"}))
			write(t, w)
		}
	}
	numbers, err := numbersIn(dir)
	if err != nil || len(numbers) != maxFiles || numbers[len(numbers)-1] != 2*(maxFiles+3) {
		t.Errorf("%d files, %v", len(numbers), err)
	}
	if l := read(t, dir); len(l.Compiles) != maxFiles || len(l.Files) != 1 {
		t.Errorf("%d compiles, %d files", len(l.Compiles), len(l.Files))
	}
}

// TestNotWritten: where nothing can be written there is an error, and nothing is left behind.
func TestNotWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), open} {
		w := NewWriter(dir)
		for range 2 {
			w.Add(&Compile{Ended: now}, List{}, files(File{Name: "x"}))
			if err := w.Flush(); err == nil {
				t.Errorf("written to %s", dir)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(open); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestSize: 100,000 compiles of 500 headers each take at most 1 KB a compile, whether they share all, most or few of them.
func TestSize(t *testing.T) {
	const compiles, headers = 100_000, 500
	r := rand.New(rand.NewPCG(3, 4))
	names := make([]File, 5000)
	for i := range names {
		names[i].Name = fmt.Sprintf("/usr/include/some/directory/of/a/project/header-%d.h", i)
	}
	random := func(l []File, n int) []File {
		for range n {
			l = append(l, names[r.IntN(len(names))])
		}
		return l
	}
	for what, list := range map[string]func() []File{
		"the same": func() []File { return names[:headers] },
		"most":     func() []File { return random(slices.Clone(names[:headers-100]), 100) },
		"few":      func() []File { return random(nil, headers) },
	} {
		n := compiles
		if what != "the same" {
			n /= 50 // the lists are what takes the space, and the time of this test
		}
		dir := t.TempDir()
		w := NewWriter(dir)
		for i := range n {
			l := list()
			id := List{}
			if what != "the same" {
				binary.LittleEndian.PutUint64(id[:], uint64(i))
			}
			w.Add(&Compile{Ended: now, Source: fmt.Sprintf("/w/%d.c", i), Output: fmt.Sprintf("/w/%d.o", i), CPU: time.Second, Memory: 1 << 28}, id, files(l...))
			if i%64 == 0 {
				write(t, w)
			}
		}
		write(t, w)
		var size int64
		numbers, err := numbersIn(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range numbers {
			st, err := os.Stat(fileOf(dir, k))
			if err != nil {
				t.Fatal(err)
			}
			size += st.Size()
		}
		l := read(t, dir)
		t.Logf("%s: %d bytes a compile, %d of %d are kept", what, size/int64(len(l.Compiles)), len(l.Compiles), n)
		if size > 1000*int64(len(l.Compiles)) || size > maxBytes || what == "the same" && len(l.Compiles) != n {
			t.Errorf("%s: %d bytes for %d compiles", what, size, len(l.Compiles))
		}
	}
}

// BenchmarkAdd adds compiles of 500 files, of which the journal has the list, or not. What counts on a busy machine is the CPU time.
func BenchmarkAdd(b *testing.B) {
	var list []File
	for i := range 500 {
		list = append(list, File{Name: fmt.Sprintf("/usr/include/some/directory/of/a/project/header-%d.h", i), Size: 1000, Sum: uint64(i)})
	}
	for what, fresh := range map[string]bool{"known": false, "new": true} {
		b.Run(what, func(b *testing.B) {
			w := NewWriter(b.TempDir())
			id := List{}
			cpu := func() time.Duration {
				var u unix.Rusage
				if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
					b.Fatal(err)
				}
				return time.Duration(u.Utime.Nano() + u.Stime.Nano())
			}
			before, i := cpu(), 0
			for ; b.Loop(); i++ {
				if fresh {
					binary.LittleEndian.PutUint64(id[:], uint64(i))
				}
				w.Add(&Compile{Ended: now, Source: "/w/a.c", Output: "/w/a.o", CPU: time.Second}, id, files(list...))
				if i%64 == 63 {
					if err := w.Flush(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(cpu()-before)/float64(i), "cpu-ns/op")
		})
	}
}

func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	w := NewWriter(dir)
	w.Add(&Compile{Ended: now, Source: "/w/a.c"}, List{}, files(File{Name: "/w/a.h"}))
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(fileOf(dir, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[headLen+batchHead:])
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &reader{log: new(Log), want: all, files: make(map[File]uint32), room: 1 << 20}
		s := &segment{names: make(map[uint64]string), files: make(map[uint64]uint32), lists: make(map[uint64][]uint32)}
		r.batch(s, data)
		for i := range r.log.Compiles {
			readsOf(r.log, i)
		}
	})
}
