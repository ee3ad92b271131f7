package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// severalFiles are sources and what one links with them.
var severalFiles = map[string]string{
	"a.c":     "#include \"h.h\"\nint main(void) { return f(1) + N; }\n",
	"b.c":     "#include \"h.h\"\nint f(int x) { return x * N - 3; }\n",
	"d/b.c":   "int in_d(void) { return 4; }\n",
	"u.cpp":   "#include <string>\nstd::string s(int n) { return std::string(n, 'x'); }\nint main() { return (int)s(3).size(); }\n",
	"text":    "int f(int x) { return x; }\n",
	"bare.c":  "int f(int); void _start(void) { f(0); for (;;); }\n",
	"h.h":     "#define N 1\nint f(int);\n",
	"warn.c":  "int g(void) { int unused; return 0; }\n",
	"text2.c": "int h(int x) { return 0; }\n",
	"error.c": "int g(void) { return 0 }\n",
}

// severalBench has the files, an object and a library.
func severalBench(t *testing.T, m *testManager) *bench {
	t.Helper()
	b := m.bench()
	if err := os.Mkdir(b.path("d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.path("tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "TMPDIR="+b.path("tmp"))
	for name, text := range severalFiles {
		b.write(name, text)
	}
	b.wants(b.run("gcc", "-c", "b.c", "-o", "old.o"), 0, "")
	b.wants(b.run("ar", "rcs", "lib.a", "old.o"), 0, "")
	return b
}

// TestSeveralIsTheDriver: every file that a command of several sources, or a
// compile and link in one, leaves is what the driver by itself leaves.
func TestSeveralIsTheDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	today := part.Of(t)
	for _, c := range []struct {
		words string
		units int // compiles on a host; 0: the whole command runs here
		link  bool
	}{
		{"gcc -O2 -g a.c b.c -o prog -lm", 2, true},
		{"gcc -c a.c b.c d/b.c", 3, false},
		{"gcc -S -O1 a.c b.c", 2, false},
		{"gcc -g a.c lib.a -o prog", 1, true},
		{"gcc -MD -MP a.c old.o -o prog", 1, true},
		{"gcc -x c text -x none a.c -o prog -Wl,-Map,map -static", 2, true},
		{"gcc -nostdlib -g bare.c old.o -o prog", 1, true},
		{"gcc -r a.c b.c -o all.o", 2, true},
		{"g++ -g -shared -fPIC u.cpp lib.a -o liba.so -Wl,-soname,liba.so.1", 1, true},
		{"gcc -Wall -Wextra -c warn.c a.c text2.c", 3, false}, // words of two
		{"gcc a.c b.c", 2, true},
		{"clang -O2 -g a.c b.c -o prog -lm", 2, true},
		{"clang -c -MMD a.c b.c", 2, false},
		{"clang -static -I. -DX a.c old.o -Wl,--build-id -o prog", 1, true},
		{"clang++ -g u.cpp -o prog", 1, true},

		{"gcc a.c error.c -o prog", 2, false}, // both, as the driver does, which does not link then
		{"gcc -c error.c a.c", 2, false},
		{"gcc -c a.c old.o", 0, false},
		{"gcc a.c conftest.c b.c", 0, false},
		{"gcc -flto a.c b.c -o prog", 1, true}, // its compiles run here, and the partition that the link makes of them on a host
		{"gcc -fstack-usage a.c b.c -o prog", 0, true},
		{"gcc a.c no-such.c", 0, false},
		{"gcc a.c b.c -o no/such/dir/prog", 2, true},
		{"gcc a.c -o prog", 1, true}, // the linker complains
	} {
		words := strings.Fields(c.words)
		if !today.Has(c.words) {
			continue
		}
		if _, err := exec.LookPath(words[0]); err != nil {
			t.Logf("no %s here", words[0])
			continue
		}
		t.Run(c.words, func(t *testing.T) {
			m := treeManager(t)
			b := severalBench(t, m)
			plain := b.run(words...)
			want := b.take(t)
			got := b.run(append([]string{rdistcc}, words...)...)
			if plain.code != got.code || withoutTemps(plain.stderr) != withoutTemps(got.stderr) || plain.stdout != got.stdout {
				t.Errorf("got %+v, want %+v", got, plain)
			}
			if left, err := os.ReadDir(b.path("tmp")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			lines := strings.Split(strings.TrimSpace(b.read("report")), "\n")
			if err := os.Remove(b.path("report")); err != nil {
				t.Fatal(err)
			}
			b.same(t, b.take(t), want)
			units := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.HasPrefix(s, "remote:") })
			if len(units) != c.units || c.link != (lines[len(lines)-1] == "local:link") || c.units == 0 && len(lines) != 1 {
				t.Errorf("report is %q, want %d remote, link %v", lines, c.units, c.link)
			}
		})
	}
}

// withoutTemps takes temporary names out of messages.
func withoutTemps(s string) string {
	var words []string
	for _, w := range strings.Fields(s) {
		if strings.Contains(w, "/tmp/cc") {
			w = "TEMP"
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

// take removes and returns what a command has made: files other than the bench's own.
func (b *bench) take(t *testing.T) map[string]string {
	t.Helper()
	made := make(map[string]string)
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if _, ours := severalFiles[name]; ours || name == "old.o" || name == "lib.a" || e.IsDir() || name == "report" {
			continue
		}
		made[name] = e.Type().String() + b.read(name)
		if err := os.Remove(b.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

func (b *bench) same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if name == "map" {
			continue // it names the objects
		}
		if text != got[name] {
			t.Errorf("%s differs, or is missing", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
}

// TestSeveralOnce: where the second compile cannot travel nothing of the first
// one's words is printed twice, and the report has one line.
func TestSeveralOnce(t *testing.T) {
	m := treeManager(t)
	n := 0
	m.onLease = func(*ipc.Lease) *ipc.GoLocal {
		if n++; n == 2 {
			return &ipc.GoLocal{Reason: "no-hosts"}
		}
		return nil
	}
	b := severalBench(t, m)
	plain := b.run("gcc", "-Wall", "warn.c", "a.c", "b.c", "-o", "prog")
	if got := b.run(rdistcc, "gcc", "-Wall", "warn.c", "a.c", "b.c", "-o", "prog"); got != plain || plain.stderr == "" {
		t.Errorf("got %+v, want %+v", got, plain)
	}
	b.reported("local:no-hosts")
}

// TestSeveralInterrupted: a signal leaves no temporary object.
func TestSeveralInterrupted(t *testing.T) {
	m := treeManager(t)
	m.hang = make(chan struct{})
	b := severalBench(t, m)
	cmd := b.cmd(rdistcc, "gcc", "a.c", "b.c", "-o", "prog")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		n = len(m.submits)
		m.mu.Unlock()
	}
	if names, _ := filepath.Glob(b.path("tmp/cc??????.o")); len(names) == 0 {
		t.Error("no temporary object like gcc's")
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
	if left, _ := os.ReadDir(b.path("tmp")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestResponseFileIsReadOnce: a response file is read once, so that writing to it meanwhile has no effect.
func TestResponseFileIsReadOnce(t *testing.T) {
	m := treeManager(t)
	b := severalBench(t, m)
	b.write("words", "a.c b.c -o prog")
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Skip("no inotify: ", err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, b.path("words"), unix.IN_OPEN|unix.IN_CLOSE); err != nil {
		t.Fatal(err)
	}
	b.wants(b.run(rdistcc, "gcc", "@words"), 0, "")
	if got := strings.Count(b.read("report"), "remote:"); got != 2 {
		t.Errorf("%d compiles on a host, want 2", got)
	}
	var events [4096]byte
	n, err := unix.Read(watch, events[:])
	if err != nil || n != 2*unix.SizeofInotifyEvent {
		t.Errorf("%d bytes of events, %v; want one open and one close", n, err)
	}
}

// makefile has one command of three compiles, for a make of its own.
const makefile = "all:\n\t@+%s gcc -c a.c warn.c d/b.c -I.\n"

// makeBench is severalBench with a make that has jobs places; each compile waits until
// as many are under way as want says.
func makeBench(t *testing.T, want int) (m *testManager, b *bench) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make")
	}
	m = treeManager(t)
	all := make(chan struct{})
	n := 0
	m.onSubmit = func(*ipc.Submit) (*ipc.Result, *ipc.GoLocal) {
		m.mu.Lock()
		if n++; n == want {
			close(all)
		}
		m.mu.Unlock()
		select {
		case <-all:
		case <-time.After(patience):
			t.Errorf("%d compiles are not under way at a time", want)
		}
		return nil, nil
	}
	b = severalBench(t, m)
	b.write("Makefile", fmt.Sprintf(makefile, rdistcc))
	return m, b
}

// patience ends a test that waits for what does not happen.
const patience = 2 * time.Minute

// TestSeveralUnderMake: with places of make's the compiles of one command are under way
// together; make gets the places back, or it would say so.
func TestSeveralUnderMake(t *testing.T) {
	for _, c := range []struct{ jobs, want int }{{1, 1}, {2, 2}, {3, 3}, {9, 3}} {
		_, b := makeBench(t, c.want)
		b.wants(b.run("make", "-j"+strconv.Itoa(c.jobs)), 0, "")
		b.reported("remote:farm:7632", "remote:farm:7632", "remote:farm:7632")
		for _, name := range []string{"a.o", "warn.o", "b.o"} {
			if len(b.read(name)) == 0 {
				t.Errorf("-j%d: no %s", c.jobs, name)
			}
		}
	}
}

// TestSeveralUnderMakeOneFails: the others are cancelled, the command runs here whole,
// and no place is lost.
func TestSeveralUnderMakeOneFails(t *testing.T) {
	m, b := makeBench(t, 3)
	m.hang = make(chan struct{})
	wait, n := m.onSubmit, 0
	m.onSubmit = func(s *ipc.Submit) (*ipc.Result, *ipc.GoLocal) {
		wait(s)
		m.mu.Lock()
		defer m.mu.Unlock()
		if n++; n == 1 {
			return nil, &ipc.GoLocal{Reason: "no-hosts"}
		}
		return nil, nil
	}
	b.wants(b.run("make", "-j3"), 0, "")
	b.reported("local:no-hosts")
}

// TestSeveralUnderMakeInterrupted: places are returned when the command is told to end in the midst of its
// compiles. make goes on, as its rule ignores that.
func TestSeveralUnderMakeInterrupted(t *testing.T) {
	m, b := makeBench(t, 3)
	wait, once := m.onSubmit, sync.Once{}
	m.hang = make(chan struct{})
	m.onSubmit = func(s *ipc.Submit) (*ipc.Result, *ipc.GoLocal) {
		wait(s)
		once.Do(func() {
			text := strings.TrimSpace(b.read("pid"))
			pid, err := strconv.Atoi(text)
			if err == nil {
				err = syscall.Kill(pid, syscall.SIGTERM)
			}
			if err != nil {
				t.Error(err)
			}
		})
		return nil, nil
	}
	b.write("Makefile", "all:\n\t@-+echo $$$$ >pid; exec "+rdistcc+" gcc -c a.c warn.c d/b.c -I.\n\t@echo goes on\n")
	o := b.run("make", "-j3")
	<-m.hang
	if o.code != 0 || o.stdout != "goes on\n" || strings.Contains(o.stderr, "jobserver") || !strings.Contains(o.stderr, "143") {
		t.Errorf("%+v", o)
	}
}

// TestSeveralOfOneName: of two objects of one name the last one stays, whatever places
// there are.
func TestSeveralOfOneName(t *testing.T) {
	_, b := makeBench(t, 1)
	b.write("Makefile", "all:\n\t@+"+rdistcc+" gcc -c b.c a.c d/b.c\n")
	b.wants(b.run("make", "-j5"), 0, "")
	got := b.read("b.o")
	b.wants(b.run("gcc", "-c", "d/b.c"), 0, "")
	if got != b.read("b.o") {
		t.Error("b.o is not of the last source")
	}
}

// TestUnitObject: the name of an object that is only linked depends on nothing that changes from one command to the next,
// so that the result is found again, and differs between the compiles of one command.
func TestUnitObject(t *testing.T) {
	first, again, other := unitObject("/tmp/ccAbCdEf.o", 0), unitObject("/tmp/ccXyZzYx.o", 0), unitObject("/tmp/ccAbCdEf.o", 1)
	if first != again || first == other || !strings.HasPrefix(first, "/tmp/") || !strings.HasSuffix(first, ".o") {
		t.Errorf("%q, %q and %q", first, again, other)
	}
	if got := unitObject("", 0); got != "" {
		t.Errorf("without a link: %q", got)
	}
}
