package shm

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

const (
	testSize     = 4 << 20
	testPrefault = 64 << 10
)

func newTestPool(t *testing.T, most int) *Pool {
	t.Helper()
	p, err := NewPool(Options{Name: "test", Size: testSize, Prefault: testPrefault, Max: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func get(t *testing.T, p *Pool, owner uint32) *Buffer {
	t.Helper()
	b, err := p.Get(context.Background(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func allocated(t *testing.T, b *Buffer) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(b.fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestSignalsDuringAllocation: a signal interrupts an allocation, as those of the Go runtime do on a slow
// machine. The buffer is made nevertheless.
func TestSignalsDuringAllocation(t *testing.T) {
	p, err := NewPool(Options{Name: "test", Size: 64 << 20, Prefault: 64 << 20, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for ; ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
			if err := unix.Tgkill(os.Getpid(), thread, unix.SIGURG); err != nil { // the runtime's own, which it takes at any time
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 3 {
		b := get(t, p, 1)
		if n := allocated(t, b); n < 64<<20 {
			t.Errorf("%d bytes are allocated", n)
		}
		if _, err := b.Extend(64 << 20); err != nil {
			t.Error(err)
		}
		b.Discard()
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// memfds counts this process's descriptors of the test pools.
func memfds(t *testing.T) int {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range dir {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "/memfd:test") {
			n++
		}
	}
	return n
}

func TestOptionsChecked(t *testing.T) {
	for _, o := range []Options{{Size: 0, Max: 1}, {Size: 1, Max: 0}, {Size: 1, Prefault: 2, Max: 1}, {Size: 1, Prefault: -1, Max: 1},
		{Size: 8192, Map: 4096, Prefault: 8192, Max: 1}, {Size: 4096, Map: 8192, Max: 1}, {Size: 4096, Map: -1, Max: 1}} {
		if _, err := NewPool(o); err == nil {
			t.Errorf("NewPool(%+v) succeeded", o)
		}
	}
}

func TestWriterSharesMemoryAndStartsAtZero(t *testing.T) {
	p := newTestPool(t, 1)
	b := get(t, p, 1)
	for _, text := range []string{"first text", "second"} {
		w, err := b.OpenWriter()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(w, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if flags, _ := unix.FcntlInt(uintptr(w), unix.F_GETFL, 0); flags&unix.O_APPEND != 0 {
			t.Error("writer is O_APPEND: a preprocessor could not be told where to start")
		}
		unix.Close(w)
		if got := string(b.Bytes()[:len(text)]); got != text {
			t.Errorf("mapping holds %q, want %q", got, text)
		}
	}
	r, err := b.OpenReader()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(r)
	copy(b.Bytes(), "from the mapping")
	got := make([]byte, 16)
	if _, err := unix.Read(r, got); err != nil || string(got) != "from the mapping" {
		t.Errorf("reader got %q, %v", got, err)
	}
	if _, err := unix.Write(r, []byte("x")); !errors.Is(err, unix.EBADF) {
		t.Errorf("writing through the reader: %v, want EBADF", err)
	}
	b.Put()
}

func TestSizeIsSealed(t *testing.T) {
	p := newTestPool(t, 1)
	b := get(t, p, 1)
	defer b.Put()
	w, err := b.OpenWriter()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(w)
	for _, size := range []int64{0, testSize - 1, testSize + 1} {
		if err := unix.Ftruncate(w, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: %v, want EPERM", size, err)
		}
	}
	if _, err := unix.Pwrite(w, []byte("past"), testSize); err == nil {
		t.Error("a write past the end succeeded")
	}
	if _, err := unix.FcntlInt(uintptr(w), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("a further seal could be added")
	}
}

func TestOnlyPrefaultedPartStaysAllocated(t *testing.T) {
	p := newTestPool(t, 1)
	b := get(t, p, 1)
	if got := allocated(t, b); got != testPrefault {
		t.Errorf("new buffer has %d bytes allocated, want %d", got, testPrefault)
	}
	// Through a descriptor, at an offset that the pool is not told of.
	w, err := b.OpenWriter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(w, make([]byte, 100<<10), 2<<20); err != nil {
		t.Fatal(err)
	}
	unix.Close(w)
	b.Put()
	again := get(t, p, 1)
	defer again.Put()
	if again != b {
		t.Error("the buffer was not recycled")
	}
	if got := allocated(t, again); got != testPrefault {
		t.Errorf("recycled buffer has %d bytes allocated, want %d", got, testPrefault)
	}
	if again.Bytes()[2<<20] != 0 {
		t.Error("the punched part is not zero")
	}
}

// TestExtend: what is beyond the permanent mapping is mapped for the user that needs it, and neither its
// memory nor its address space is kept.
func TestExtend(t *testing.T) {
	p, err := NewPool(Options{Name: "test", Size: testSize, Map: 1 << 20, Prefault: testPrefault, Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 2 {
		b := get(t, p, 1)
		if len(b.Bytes()) != 1<<20 || p.Size() != testSize {
			t.Fatalf("mapping of %d bytes, size %d", len(b.Bytes()), p.Size())
		}
		w, err := b.OpenWriter()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Pwrite(w, []byte("far"), 3<<20); err != nil {
			t.Fatal(err)
		}
		unix.Close(w)
		mem, err := b.Extend(3<<20 + 3)
		if err != nil || string(mem[3<<20:]) != "far" {
			t.Fatalf("Extend: %d bytes, %v", len(mem), err)
		}
		if mem[1<<20] != 0 || allocated(t, b) < 3<<20 {
			t.Errorf("%d bytes allocated, want all of them", allocated(t, b))
		}
		if mem, err := b.Extend(2 << 20); err != nil || len(mem) != 2<<20 {
			t.Errorf("a second time: %d bytes, %v", len(mem), err)
		}
		b.Put()
		if got := allocated(t, b); got != testPrefault || b.whole != nil {
			t.Errorf("%d bytes stay allocated, want %d", got, testPrefault)
		}
	}
	b := get(t, p, 1)
	defer b.Discard()
	if _, err := b.Extend(testSize + 1); err == nil {
		t.Error("extended past the end")
	}
	if mem, err := b.Extend(100); err != nil || len(mem) != 100 || &mem[0] != &b.Bytes()[0] {
		t.Errorf("a part of the standing mapping: %d bytes, %v", len(mem), err)
	}
}

func TestNeverGivenToAnotherOwner(t *testing.T) {
	p := newTestPool(t, 2)
	a := get(t, p, 1000)
	copy(a.Bytes(), "secret of 1000")
	a.Put()
	b := get(t, p, 1001)
	c := get(t, p, 1001) // only the first owner's free one is left: it must go, not serve
	for _, other := range []*Buffer{b, c} {
		if strings.Contains(string(other.Bytes()[:64]), "secret") {
			t.Error("an owner sees another one's memory")
		}
	}
	if s := p.Stats(); s.Total != 2 || s.Free != 0 {
		t.Errorf("stats %+v, want 2 in existence and none free", s)
	}
	b.Put()
	c.Put()
}

func TestDiscardReplaces(t *testing.T) {
	p := newTestPool(t, 1)
	b := get(t, p, 1)
	w, err := b.OpenWriter()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(w)
	b.Discard()
	next := get(t, p, 1)
	defer next.Put()
	if _, err := unix.Write(w, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if string(next.Bytes()[:4]) == "late" {
		t.Error("a survivor wrote into the next lease's memory")
	}
}

func TestGetWaitsAndEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, 1)
		b := get(t, p, 1)
		if extra, err := p.TryGet(1); extra != nil || err != nil {
			t.Fatalf("TryGet while all are in use: %v, %v", extra, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		gaveUp := make(chan error)
		go func() {
			_, err := p.Get(ctx, 1)
			gaveUp <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("Get: %v, want context.Canceled", err)
		}
		served := make(chan *Buffer)
		go func() {
			b, err := p.Get(context.Background(), 1)
			if err != nil {
				t.Error(err)
			}
			served <- b
		}()
		synctest.Wait()
		b.Put()
		(<-served).Put()
	})
}

func TestKernelRefusalLeavesPoolUsable(t *testing.T) {
	p := newTestPool(t, 1)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, err := p.Get(context.Background(), 1)
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Fatalf("Get without descriptors: %v, want EMFILE", err)
	}
	if s := p.Stats(); s.Total != 0 {
		t.Errorf("stats %+v after the failure, want nothing in existence", s)
	}
	get(t, p, 1).Put()
}

func TestTrimAndCloseFreeDescriptors(t *testing.T) {
	before := memfds(t)
	p := newTestPool(t, 4)
	bs := []*Buffer{get(t, p, 1), get(t, p, 1), get(t, p, 1), get(t, p, 1)}
	for _, b := range bs[1:] {
		b.Put()
	}
	p.Trim(1)
	if s := p.Stats(); s.Total != 2 || s.Free != 1 {
		t.Errorf("stats %+v after Trim(1), want 1 in use and 1 free", s)
	}
	p.Close()
	if _, err := p.Get(context.Background(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Get after Close: %v, want ErrClosed", err)
	}
	bs[0].Put()
	if got := memfds(t); got != before {
		t.Errorf("%d memfds left, want %d", got, before)
	}
}

func BenchmarkRecycle(b *testing.B) {
	p, err := NewPool(Options{Name: "bench", Size: 32 << 20, Prefault: 1 << 20, Max: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		buf, err := p.Get(context.Background(), 1)
		if err != nil {
			b.Fatal(err)
		}
		buf.Put()
	}
}

func TestWipedForAnotherOwner(t *testing.T) {
	p, err := NewPool(Options{Name: "test", Size: testSize, Prefault: testPrefault, Max: 2, Wipe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	fill := func(b *Buffer) {
		for i := range b.Bytes() {
			b.Bytes()[i] = 0x5c
		}
	}
	a := get(t, p, 1000)
	fill(a)
	a.Put()
	if again := get(t, p, 1000); again != a || again.Bytes()[0] != 0x5c {
		t.Error("its owner does not get it back as it was")
	}
	a.Put()
	b := get(t, p, 1001)
	if b != a {
		t.Error("a free buffer does not serve another owner")
	}
	for i, x := range b.Bytes() {
		if x != 0 {
			t.Fatalf("another owner finds %02x at %d", x, i)
		}
	}
	fill(b)
	b.Put()
	if back := get(t, p, 1000); back.Bytes()[0] != 0 {
		t.Error("the first owner finds what the second one left")
	}
}
