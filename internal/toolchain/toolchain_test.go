package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// fakeGCC writes a driver that tells about itself as gcc does; its cc1 and as are
// files of the given directory. Each run leaves a line in the log beside it.
func fakeGCC(t *testing.T, dir, name string) string {
	t.Helper()
	write(t, filepath.Join(dir, "cc1"), "cc1")
	write(t, filepath.Join(dir, "as"), "as")
	write(t, filepath.Join(dir, "libgcc.a"), "")
	path := filepath.Join(dir, name)
	write(t, path, `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
echo "$*" >>$here/log
case $1 in
-v) echo "Target: test-linux" >&2; echo "gcc version 12.3.4 (Test)" >&2;;
-print-prog-name=cc1) echo $here/cc1;;
-print-prog-name=as) echo $here/as;;
-print-prog-name=cc1obj) echo /bin/sh;; # so that hosts show what runs this script
-print-prog-name=*) echo ${1#*=};;
-print-libgcc-file-name) echo $here/libgcc.a;;
*) exit 1;;
esac
`)
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func identifyOK(t *testing.T, c *Cache, path string) Toolchain {
	t.Helper()
	tc, err := c.Identify(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return tc
}

func look(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s", name)
	}
	return path
}

func TestRealGCC(t *testing.T) {
	gcc, gxx := look(t, "gcc"), look(t, "g++")
	var c Cache
	a := identifyOK(t, &c, gcc)
	if a.Family != "gcc" || a.Major < 4 || !strings.HasPrefix(a.Version, "1") || !strings.Contains(a.Target, "linux") {
		t.Errorf("gcc is %+v", a)
	}
	if b := identifyOK(t, &c, gxx); b.ID == a.ID || b.Family != "gcc" {
		t.Errorf("g++ is %+v, gcc has ID %x", b, a.ID)
	}
	// Another cache, through another link, from another directory.
	link := filepath.Join(t.TempDir(), "my-gcc")
	if err := os.Symlink(gcc, link); err != nil {
		t.Fatal(err)
	}
	b := identifyOK(t, new(Cache), link)
	if b.ID != a.ID || b.Path != a.Path || b.Exec != link {
		t.Errorf("through a link gcc is %+v, else %+v", b, a)
	}
}

func TestRealClangActsByName(t *testing.T) {
	turns.Skip(t) // it identifies all compilers here
	clang, clangxx := look(t, "clang"), look(t, "clang++")
	var c Cache
	a, b := identifyOK(t, &c, clang), identifyOK(t, &c, clangxx)
	if a.Family != "clang" || a.Major < 3 || a.Target == "" {
		t.Errorf("clang is %+v", a)
	}
	if a.ID == b.ID {
		t.Error("clang and clang++ have one ID")
	}
	link := filepath.Join(t.TempDir(), "c++")
	if err := os.Symlink(clangxx, link); err != nil {
		t.Fatal(err)
	}
	// Some clangs look for gcc's headers from where they were called. A link
	// elsewhere is as good as the name at the end of the links.
	d, err := c.Discover(t.Context(), []string{filepath.Dir(clangxx)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := identifyOK(t, &c, link)
	if !slices.ContainsFunc(d.List, func(tc Toolchain) bool { return tc.ID == l.ID }) {
		t.Error("clang++ by the name c++ is not among the offered")
	}
}

// The libraries of a real compiler are found, or an exchanged libmpfr would go
// unnoticed.
func TestRealGCCParts(t *testing.T) {
	gcc := look(t, "gcc")
	var s sums
	f, err := identify(context.Background(), time.Minute, &s, "", gcc, Env{})
	if err != nil {
		t.Fatal(err)
	}
	have := ""
	for _, p := range f.parts {
		have += p.role + "\n"
	}
	for _, want := range []string{"driver\n", "cc1\n", "as\n", "lib:libc.so.6\n", "specs\n"} {
		if !strings.Contains(have, want) {
			t.Errorf("parts lack %s; they are\n%s", want, have)
		}
	}
}

func TestSameContentSameID(t *testing.T) {
	var c Cache
	a := identifyOK(t, &c, fakeGCC(t, t.TempDir(), "gcc"))
	b := identifyOK(t, &c, fakeGCC(t, t.TempDir(), "gcc-12"))
	if a.ID != b.ID {
		t.Error("equal toolchains in two directories differ")
	}
	if a.Version != "12.3.4" || a.Major != 12 || a.Target != "test-linux" || a.Family != "gcc" {
		t.Errorf("got %+v", a)
	}
}

// Each part decides: a change of any one gives another ID, through one Cache.
func TestEveryPartCounts(t *testing.T) {
	dir := t.TempDir()
	gcc := fakeGCC(t, dir, "gcc")
	var c Cache
	seen := map[any]string{identifyOK(t, &c, gcc).ID: "at first"}
	for _, change := range []struct{ file, content string }{
		{"cc1", "another"}, {"as", "another"}, {"specs", "%rename cpp old"},
	} {
		write(t, filepath.Join(dir, change.file), change.content)
		id := identifyOK(t, &c, gcc).ID
		if was, ok := seen[id]; ok {
			t.Errorf("after a change of %s the ID is as %s", change.file, was)
		}
		seen[id] = "after " + change.file
	}
	// A package manager's way: a new file in place of the old, times set back.
	fi, err := os.Stat(filepath.Join(dir, "cc1"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "new"), "anothes") // of the same size
	if err := os.Chtimes(filepath.Join(dir, "new"), fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "cc1")); err != nil {
		t.Fatal(err)
	}
	if _, ok := seen[identifyOK(t, &c, gcc).ID]; ok {
		t.Error("a cc1 of equal size and time passes for the old one")
	}
}

func runs(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "-v\n")
}

func TestLookUpsShareOneRun(t *testing.T) {
	dir := t.TempDir()
	gcc := fakeGCC(t, dir, "gcc")
	var c Cache
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := c.Identify(context.Background(), gcc); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	identifyOK(t, &c, gcc)
	if n := runs(t, dir); n != 1 {
		t.Errorf("the driver was asked %d times", n)
	}
}

// TestProgramsToCome: a program that appears where the driver looks first is another part, and so is a
// newly installed language; the next look sees it.
func TestProgramsToCome(t *testing.T) {
	dir, first := t.TempDir(), t.TempDir()
	gcc := fakeGCC(t, dir, "gcc")
	script, err := os.ReadFile(gcc)
	if err != nil {
		t.Fatal(err)
	}
	later := filepath.Join(first, "later", "bin") // is not there yet
	write(t, gcc, strings.Replace(string(script), "-print-prog-name=cc1)", `-print-search-dirs) echo "programs: =`+first+"/:"+later+`/:$here/";;
-print-prog-name=*)
	name=${1#*=}
	for d in `+first+" "+later+` $here; do if test -x $d/$name; then echo $d/$name; exit; fi; done
	echo $name;;
-print-prog-name=cc1)`, 1))
	var c Cache
	seen := map[any]string{identifyOK(t, &c, gcc).ID: "at first"}
	for _, p := range []string{first + "/cc1", first + "/cc1plus", later + "/as", first + "/as", later + "/objcopy"} {
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, p, "the one in "+p)
		id := identifyOK(t, &c, gcc).ID
		if was, ok := seen[id]; ok {
			t.Errorf("with %s the ID is as %s", p, was)
		}
		seen[id] = "with " + p
	}
	n := runs(t, dir)
	identifyOK(t, &c, gcc)
	if again := runs(t, dir) - n; again != 0 {
		t.Errorf("with nothing changed the driver was asked %d times more", again)
	}
}

func TestUnknownPrograms(t *testing.T) {
	dir := t.TempDir()
	silent := filepath.Join(dir, "cc")
	write(t, silent, "#!/bin/sh\nexit 0\n")
	ccache := filepath.Join(dir, "ccache")
	write(t, ccache, "#!/bin/sh\necho gcc version 12.2.0; echo Target: x\n")
	masked := filepath.Join(dir, "gcc")
	if err := os.Symlink(ccache, masked); err != nil {
		t.Fatal(err)
	}
	var c Cache
	for _, path := range []string{silent, masked} {
		for range 2 { // the second answer comes from the cache
			if tc, err := c.Identify(context.Background(), path); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %+v, %v", path, tc, err)
			}
		}
	}
	if _, err := c.Identify(context.Background(), "gcc"); err == nil {
		t.Error("a name that is no absolute path is taken")
	}
	gone := filepath.Join(dir, "g++")
	if _, err := c.Identify(context.Background(), gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing compiler: %v", err)
	}
	// ... and when it is there, the old answer does not stand.
	sub := t.TempDir()
	if err := os.Symlink(fakeGCC(t, sub, "g++"), gone); err != nil {
		t.Fatal(err)
	}
	identifyOK(t, &c, gone)
}

func TestIdentifyObeysContext(t *testing.T) {
	slow := filepath.Join(t.TempDir(), "gcc")
	fifo := slow + ".fifo"
	if err := exec.Command("mkfifo", fifo).Run(); err != nil {
		t.Skip("needs mkfifo")
	}
	write(t, slow, "#!/bin/sh\nread x <"+fifo+"\nexit 1\n")
	var c Cache
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := c.Identify(ctx, slow)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// Let the driver go, and its run end.
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	// The work that was shared is still under way or has ended; either way the
	// next one to ask gets an answer. Its own run needs letting go too.
	go func() {
		if f, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
			f.Close()
		}
	}()
	if _, err := c.Identify(context.Background(), slow); err == nil {
		t.Error("a driver that fails is taken")
	}
}

// TestUnanswered: a driver that is killed while it is asked something, as one that does not answer in time is, has not said no. The next
// time, it is what it would have been.
func TestUnanswered(t *testing.T) {
	dir := t.TempDir()
	real := fakeGCC(t, dir, "real")
	path, killed := filepath.Join(dir, "gcc"), filepath.Join(dir, "killed")
	write(t, path, "#!/bin/sh\nread word <"+killed+"\n[ \"$1\" != \"$word\" ] || kill -9 $$\nexec "+real+" \"$@\"\n")
	write(t, killed, "none\n")
	want := identifyOK(t, &Cache{}, path)
	asked := map[string]bool{}
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		asked[strings.Fields(line)[0]] = true
	}
	if len(asked) < 8 {
		t.Fatalf("asked only %v", asked)
	}
	for word := range asked {
		if !turns.Of(t).Has("unanswered " + word) {
			continue
		}
		var c Cache
		write(t, killed, word+"\n")
		if tc, err := c.Identify(t.Context(), path); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("killed at %s: %v, %v", word, tc.ID == want.ID, err)
		}
		write(t, killed, "none\n")
		if got := identifyOK(t, &c, path); got.ID != want.ID {
			t.Errorf("after it was killed at %s, it is another compiler", word)
		}
	}
}

// TestDriverLeavesAProcess has a driver, a script around the real one, that starts
// something which outlives it with the driver's outputs open.
func TestDriverLeavesAProcess(t *testing.T) {
	dir := t.TempDir()
	real := fakeGCC(t, dir, "real")
	fifo := filepath.Join(dir, "fifo")
	if err := exec.Command("mkfifo", fifo).Run(); err != nil {
		t.Skip("needs mkfifo")
	}
	path := filepath.Join(dir, "gcc")
	write(t, path, "#!/bin/sh\n(read x <"+fifo+") &\nexec "+real+" \"$@\"\n")
	t.Cleanup(func() {
		f, err := os.OpenFile(fifo, os.O_RDWR, 0) // releases a process that waits to read
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(strings.Repeat("\n", 1000)); err != nil {
			t.Error(err)
		}
	})
	var c Cache
	if got := identifyOK(t, &c, path); got.Version == "" {
		t.Errorf("got %+v", got)
	}
}

func TestDiscover(t *testing.T) {
	dir := t.TempDir()
	fakeGCC(t, dir, "gcc")
	for link, to := range map[string]string{
		"gcc-12": "gcc", "x86_64-linux-gnu-gcc-12": "gcc", "gcc-ar": "gcc", "afl-gcc": "gcc", "cc": "nowhere",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "clang"), "#!/bin/sh\nexit 3\n")
	var c Cache
	var left []int
	d, err := c.Discover(context.Background(), []string{"/does/not/exist", dir, filepath.Join(dir, "gcc")}, func(d Discovery) {
		left = append(left, d.Left)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.List) != 1 || d.List[0].Exec != filepath.Join(dir, "gcc") {
		t.Errorf("found %+v", d.List)
	}
	if len(d.Skipped) != 2 || !errors.Is(d.Skipped[filepath.Join(dir, "gcc")], unix.ENOTDIR) || d.Skipped[filepath.Join(dir, "clang")] == nil {
		t.Errorf("skipped %v, want clang and a directory that is a file", d.Skipped)
	}
	if !slices.Equal(left, []int{2, 1, 0}) {
		t.Errorf("left at a time: %v, want 2, 1, 0", left)
	}
	// Now the one is known from its files, and what ended with an error is asked again.
	var first *Discovery
	if _, err = c.Discover(context.Background(), []string{dir}, func(d Discovery) {
		if first == nil {
			first = &d
		}
	}); err != nil {
		t.Fatal(err)
	}
	if len(first.List) != 1 || !first.List[0].Equal(d.List[0]) || first.Left != 1 {
		t.Errorf("the second look began with %+v", first)
	}
}

// TestDiscoverBesideOnesThatHang: compilers that do not answer are reported, leave nothing behind, and do
// not hold up others whose names come after theirs.
func TestDiscoverBesideOnesThatHang(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fakeGCC(t, dir, "x86_64-linux-gnu-gcc")
	pids := filepath.Join(dir, "pids")
	const hang = 4
	for i := range hang {
		write(t, filepath.Join(dir, fmt.Sprintf("gcc-%d", i)), "#!/bin/sh\nsleep 1000 & echo $! >> "+pids+"\nwait\n")
	}
	c := Cache{Answer: 20 * time.Second} // the one that answers is asked a dozen questions meanwhile, perhaps beside other work
	found := -1                          // how many were left when the compiler was
	d, err := c.Discover(t.Context(), []string{dir}, func(d Discovery) {
		if found < 0 && len(d.List) > 0 {
			found = d.Left
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.List) != 1 || len(d.Skipped) != hang {
		t.Errorf("found %+v, skipped %v", d.List, d.Skipped)
	}
	for path, err := range d.Skipped {
		if want := "identify compiler: " + path + " -v: no answer for 20s"; err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
	}
	if found != hang {
		t.Errorf("the compiler that answers was found when %d were left, want all %d that hang", found, hang)
	}
	list, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(list)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); running(pid); time.Sleep(10 * time.Millisecond) {
			if time.Since(start) > 20*time.Second {
				t.Fatalf("process %d of a compiler that hung lives on", pid)
			}
		}
	}
}

// running reports whether a process exists and is no zombie.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(b, []byte(") "))
	return err == nil && len(rest) > 0 && rest[0] != 'Z'
}

// TestCloseEndsWhatIsAsked: no compiler that was asked outlives the cache.
func TestCloseEndsWhatIsAsked(t *testing.T) {
	dir := t.TempDir()
	mark := filepath.Join(dir, "pid")
	write(t, filepath.Join(dir, "gcc"), "#!/bin/sh\necho $$ > "+mark+".new; mv "+mark+".new "+mark+"; sleep 1000\n")
	var c Cache
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() {
		_, err := c.Discover(ctx, []string{dir}, nil)
		done <- err
	}()
	var b []byte
	for start := time.Now(); len(b) == 0; time.Sleep(time.Millisecond) {
		if b, _ = os.ReadFile(mark); time.Since(start) > time.Minute {
			t.Fatal("the compiler is not asked")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the look was ended with %v", err)
	}
	c.Close()
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || running(pid) {
		t.Errorf("process %d lives on, %v", pid, err)
	}
	if _, err := c.Identify(t.Context(), filepath.Join(dir, "gcc")); !errors.Is(err, context.Canceled) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCompilerName(t *testing.T) {
	for _, name := range []string{"gcc", "g++", "cc", "c++", "clang", "clang++", "gcc-12", "clang++-14", "clang-14.0",
		"x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++-12", "arm-none-eabi-gcc", "aarch64-linux-gnu-clang",
		"avr-gcc-5.4.0", "x86_64-w64-mingw32-gcc-win32", "x86_64-w64-mingw32-g++-12-posix", "x86_64-conda-linux-gnu-cc"} {
		if !compilerName(name) {
			t.Errorf("%s is not taken for a compiler", name)
		}
	}
	for _, name := range []string{"", "gcc-ar", "gcc-ranlib-12", "c99-gcc", "afl-gcc", "clang-format", "clang-cpp-14",
		"x86_64-linux-gnu-gcc-nm-12", "cpp", "nvcc", "tcc", "gcc-", "-12", "g++.sh"} {
		if compilerName(name) {
			t.Errorf("%s is taken for a compiler", name)
		}
	}
}

func TestDriverMode(t *testing.T) {
	for name, want := range map[string]string{"clang": "c", "clang++": "c++", "clang++-14": "c++", "c++": "c++",
		"x86_64-linux-gnu-g++": "c++", "clang-cl": "cl", "clang-cpp-14": "cpp", "cc": "c", "cl19": "cl", "mycl": "cl", "my-clang-3.9": "c", "c++14": "c++"} {
		if got := driverMode(name); got != want {
			t.Errorf("driverMode(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestParseList(t *testing.T) {
	for _, c := range []struct{ line, name, path string }{
		{"\tlinux-vdso.so.1 (0x00007f854a0fc000)\n", "linux-vdso.so.1", ""},
		{"\tlibz.so.1 => /lib/libz.so.1 (0x00007f8549d60000)\n", "libz.so.1", "/lib/libz.so.1"},
		{"\t/lib64/ld-linux-x86-64.so.2 (0x00007f854a0fe000)\n", "/lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"},
		{"\tlibfoo.so.1 => not found\n", "libfoo.so.1", ""},
	} {
		if name, path := parseList(c.line); name != c.name || path != c.path {
			t.Errorf("parseList(%q) = %q, %q", c.line, name, path)
		}
	}
}

// A warm look-up happens for every compile, with a PATH like this.
func BenchmarkIdentifyWarm(b *testing.B) {
	for _, name := range []string{"gcc", "clang"} {
		b.Run(name, func(b *testing.B) {
			cc, err := exec.LookPath(name)
			if err != nil {
				b.Skip("needs " + name)
			}
			var c Cache
			ctx := context.Background()
			env := Env{Path: "/root/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", Cwd: "/"}
			if _, err := c.IdentifyIn(ctx, cc, env); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var before, after unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
			for b.Loop() {
				if _, err := c.IdentifyIn(ctx, cc, env); err != nil {
					b.Fatal(err)
				}
			}
			_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
			cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// TestScripts: what is started by a program that the toolchain does not show, hosts do not offer.
func TestScripts(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	for what, text := range map[string]string{
		"a shell's":             "#!/bin/sh\nexec " + gcc + " \"$@\"\n",
		"another interpreter's": "#!/usr/bin/env bash\nexec " + gcc + " \"$@\"\n",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "gcc")
		write(t, path, text)
		var c Cache
		if tc, err := c.Identify(context.Background(), path); err != nil || tc.Script != path {
			t.Errorf("%s: %q, %v; want %s", what, tc.Script, err, path)
		}
		d, err := c.Discover(context.Background(), []string{dir}, nil)
		if err != nil || len(d.List) != 0 || !errors.Is(d.Skipped[path], ErrUnknown) {
			t.Errorf("%s: offered %v, skipped %v, %v", what, d.List, d.Skipped, err)
		}
		if !IsScript(path) || IsScript(gcc) {
			t.Errorf("%s: what is a script is not known", what)
		}
	}
}
