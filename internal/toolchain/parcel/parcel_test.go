package parcel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

func TestMain(m *testing.M) {
	if os.Args[0] == privatetree.Arg0 {
		privatetree.Main()
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// small returns a parcel of the smallest size that makes sense.
func small() *Parcel {
	p := &Parcel{Toolchain: toolchain.Toolchain{Exec: "/opt/x/bin/gcc", Path: "/opt/x/bin/gcc-12", Family: "gcc", Version: "12.2.0", Target: "x86_64-linux-gnu", Major: 12,
		Files: []string{"/opt/x/bin/gcc", "/opt/x/lib/cc1"}, Dirs: []string{"/opt/x/share/locale"}}}
	p.Entries = []Entry{
		{Name: "/opt/x/bin/gcc", Target: "gcc-12"},
		{Name: "/opt/x/bin/gcc-12", Exec: true, Len: 1, Sum: sha256.Sum256([]byte("d"))},
		{Name: "/opt/x/lib", Target: "../../opt/x/lib64"},
		{Name: "/opt/x/lib64/cc1", Exec: true, Len: 2, Sum: sha256.Sum256([]byte("cc"))},
		{Name: "/opt/x/lib64/copy", Len: 2, Sum: sha256.Sum256([]byte("cc"))},
		{Name: "/opt/x/share/locale/de/LC_MESSAGES/gcc.mo", Len: 1, Sum: sha256.Sum256([]byte("m"))},
	}
	return p
}

func TestEncoding(t *testing.T) {
	p := small()
	b := p.Append(nil)
	got, err := Parse(b)
	must(t, err)
	p.identify(b)
	if !reflect.DeepEqual(got, p) {
		t.Errorf("%+v\nwant %+v", got, p)
	}
	if again := got.Append(nil); !bytes.Equal(again, b) {
		t.Error("another encoding")
	}
	for i := range b {
		if _, err := Parse(b[:i]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("%d of %d bytes: %v", i, len(b), err)
		}
		other := bytes.Clone(b)
		other[i] ^= 1
		if q, err := Parse(other); err == nil && q.ID == p.ID {
			t.Fatalf("byte %d is not part of the ID", i)
		} else if err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
	}
	if list, n := got.Contents(); len(list) != 3 || n != 4 {
		t.Errorf("%d contents, %d bytes", len(list), n)
	}
}

// TestHostileParcels: a parcel that could make its recipient write, read or show something beyond its root is refused.
func TestHostileParcels(t *testing.T) {
	long := "/" + strings.Repeat("x", maxName)
	for what, change := range map[string]func(p *Parcel){
		"relative":               func(p *Parcel) { p.Entries[1].Name = "opt/x/bin/gcc-12" },
		"dots":                   func(p *Parcel) { p.Entries[1].Name = "/opt/x/bin/../../../etc/passwd" },
		"double slash":           func(p *Parcel) { p.Entries[1].Name = "/opt/x/bin//gcc-12" },
		"slash behind":           func(p *Parcel) { p.Entries[5].Name += "/" },
		"the root":               func(p *Parcel) { p.Entries[0].Name = "/" },
		"empty":                  func(p *Parcel) { p.Entries[0].Name = "" },
		"zero byte":              func(p *Parcel) { p.Entries[5].Name = "/opt/x/share/locale/\x00" },
		"newline":                func(p *Parcel) { p.Entries[5].Name = "/opt/x/share/locale/\n" },
		"long name":              func(p *Parcel) { p.Entries[5].Name = "/opt/x/share" + long },
		"long target":            func(p *Parcel) { p.Entries[2].Target = long },
		"zero byte in a target":  func(p *Parcel) { p.Entries[2].Target = "x\x00" },
		"twice":                  func(p *Parcel) { p.Entries[4].Name = p.Entries[3].Name },
		"out of order":           func(p *Parcel) { p.Entries[3], p.Entries[4] = p.Entries[4], p.Entries[3] },
		"below a link":           func(p *Parcel) { p.Entries[3].Name = "/opt/x/lib/cc1" },
		"below a file":           func(p *Parcel) { p.Entries[4].Name = "/opt/x/lib64/cc1/copy" },
		"device":                 func(p *Parcel) { p.Entries[0].Name, p.Exec, p.Files[0] = "/dev/null", "/dev/null", "/dev/null" },
		"proc":                   func(p *Parcel) { p.Entries[0].Name = "/proc/self/mem" },
		"the tree's own":         func(p *Parcel) { p.Entries[0].Name = "/.host/etc/passwd" },
		"driver is missing":      func(p *Parcel) { p.Path = "/opt/x/bin/gcc-13" },
		"name is missing":        func(p *Parcel) { p.Exec = "/usr/bin/gcc" },
		"file is missing":        func(p *Parcel) { p.Files[1] = "/opt/x/lib/cc2" },
		"file is a directory":    func(p *Parcel) { p.Files[1] = "/opt/x/lib64" },
		"through a file":         func(p *Parcel) { p.Files[1] = "/opt/x/lib64/cc1/x" },
		"loop":                   func(p *Parcel) { p.Entries[0].Target = "gcc" },
		"to elsewhere":           func(p *Parcel) { p.Entries[0].Target = "/bin/sh" },
		"files out of order":     func(p *Parcel) { slices.Reverse(p.Files) },
		"directory is a file":    func(p *Parcel) { p.Dirs[0] = "/opt/x/lib64/cc1" },
		"whole root":             func(p *Parcel) { p.Dirs[0] = "/" },
		"directory of nothing":   func(p *Parcel) { p.Dirs[0] = "/opt/x/share/other" },
		"directory out":          func(p *Parcel) { p.Entries[2].Target, p.Dirs[0] = "/root", "/opt/x/lib/.ssh" },
		"directory up":           func(p *Parcel) { p.Entries[2].Target, p.Dirs[0] = "../../..", "/opt/x/lib" },
		"directory through /dev": func(p *Parcel) { p.Entries[2].Target, p.Dirs[0] = "/dev", "/opt/x/lib/shm" },
		"directory in a loop":    func(p *Parcel) { p.Entries[2].Target, p.Dirs[0] = "lib", "/opt/x/lib" },
		"long part":              func(p *Parcel) { p.Entries[5].Name = "/opt/x/share/" + strings.Repeat("x", maxPart+1) },
		"whole proc":             func(p *Parcel) { p.Dirs[0] = "/proc" },
		"no entries":             func(p *Parcel) { p.Entries = nil },
		"huge file":              func(p *Parcel) { p.Entries[1].Len = MaxFile + 1 },
		"huge in all":            func(p *Parcel) { p.Entries = many(5, MaxFile, p.Entries) },
		"overflow":               func(p *Parcel) { p.Entries[1].Len = 1<<64 - 1 },
		"million files":          func(p *Parcel) { p.Entries = many(maxEntries, 1, p.Entries) },
		"another kind":           func(p *Parcel) { p.Family = "rustc" },
		"version with a slash":   func(p *Parcel) { p.Version = "../12" },
		"target with a newline":  func(p *Parcel) { p.Target = "x\ny" },
		"no version":             func(p *Parcel) { p.Version = "" },
		"version beyond numbers": func(p *Parcel) { p.Major = 1 << 20 },
	} {
		p := small()
		change(p)
		if q, err := Parse(p.Append(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", what, q, err)
		}
	}
}

func many(n int, size uint64, list []Entry) []Entry {
	last := list[len(list)-1].Name
	for i := range n {
		list = append(list, Entry{Name: fmt.Sprintf("%s%06d", last, i), Len: size})
	}
	return list
}

func FuzzParse(f *testing.F) {
	f.Add(small().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(p.Append(nil), b) {
			t.Fatal("another encoding")
		}
	})
}

// compilers returns those that are installed here.
func compilers(t *testing.T) (list []string) {
	for _, name := range []string{"gcc", "g++", "gcc-11", "clang", "aarch64-linux-gnu-gcc"} {
		if path, err := exec.LookPath(name); err == nil {
			list = append(list, path)
		}
	}
	if len(list) == 0 {
		t.Fatal("no compiler")
	}
	return list
}

// TestCompileBelowARoot: a toolchain that is laid out elsewhere from its parcel compiles, in a tree that has nothing
// else, to the object that it makes at home.
func TestCompileBelowARoot(t *testing.T) {
	var cache toolchain.Cache
	defer cache.Close()
	for _, cc := range compilers(t) {
		t.Run(filepath.Base(cc), func(t *testing.T) {
			part.SkipCase(t)
			tc, err := cache.Identify(t.Context(), cc)
			must(t, err)
			p, err := Make(t.Context(), &tc)
			must(t, err)
			q, err := Parse(p.Append(nil))
			must(t, err)
			if q.ID != p.ID || p.ID == tc.ID {
				t.Errorf("IDs %x, %x, %x", p.ID, q.ID, tc.ID)
			}
			_, n := q.Contents()
			t.Logf("%d entries, %d bytes", len(q.Entries), n)

			dir, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			must(t, q.Lay(dir+"/root", func(e *Entry) string { return fetch(t, dir, e) }, nil))
			tr, err := privatetree.New(t.Context(), privatetree.Spec{Root: dir + "/root", Files: q.Files, Dirs: q.Dirs})
			if errors.Is(err, privatetree.ErrNoRight) {
				need.Skipf(t, need.Sandbox, "%v", err)
			}
			must(t, err)
			defer tr.Close()

			const source = "#define f(x) (x*x)\nstatic int twice(int x) { return f(x) + 1; }\nint one(int a) { return twice(a); }\n"
			must(t, tr.Mkdirs("/usr/include")) // gcc wants to have a directory to look in, which jobs bring
			must(t, tr.Write("/work/x.c", []byte(source), 0, false))
			must(t, os.Mkdir(dir+"/work", 0o755))
			must(t, os.WriteFile(dir+"/work/x.c", []byte(source), 0o644))
			words := []string{tc.Exec, "-O2", "-Wall", "-Wextra", "-c", "x.c", "-o", "x.o"}
			home := exec.Command(words[0], words[1:]...)
			home.Dir, home.Env = dir+"/work", []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
			if out, err := home.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			want, err := os.ReadFile(dir + "/work/x.o")
			must(t, err)
			if got := compileIn(t, tr, words); !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %d at home", len(got), len(want))
			}
		})
	}
}

// compileIn runs a compiler in /work of a tree, and returns the object x.o.
func compileIn(t *testing.T, tr *privatetree.Tree, words []string) []byte {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	defer out.Close()
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	r, err := tr.Start(&privatetree.Command{Argv: words, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, Dir: "/work",
		Stdin: int(null.Fd()), Stdout: int(out.Fd()), Stderr: int(out.Fd())})
	must(t, err)
	o, err := r.Wait()
	must(t, err)
	said, err := os.ReadFile(out.Name())
	must(t, err)
	if o.Exit != 0 || o.Signal != 0 || len(said) > 0 {
		t.Fatalf("exit %d, signal %d: %s", o.Exit, o.Signal, said)
	}
	f, err := tr.Open("/work/x.o")
	must(t, err)
	object := os.NewFile(uintptr(f.FD), "x.o")
	defer object.Close()
	b, err := io.ReadAll(object)
	must(t, err)
	return b
}

// fetch plays a transfer: it reads the content of an entry, as it is at home, into a file of dir.
func fetch(t *testing.T, dir string, e *Entry) string {
	t.Helper()
	name := filepath.Join(dir, hex.EncodeToString(e.Sum[:]))
	mode := os.FileMode(0o444)
	if e.Exec {
		name, mode = name+"x", 0o555
	}
	if _, err := os.Stat(name); err == nil {
		return name
	}
	from, err := e.Open()
	must(t, err)
	defer from.Close()
	b, err := io.ReadAll(from)
	must(t, err)
	must(t, os.WriteFile(name, b, mode))
	must(t, os.Chmod(name, mode))
	return name
}

// TestChanged: a file that changes after it was described does not get through as what it was.
func TestChanged(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "gcc")
	old := []byte(strings.Repeat("a compiler\n", 10000))
	must(t, os.WriteFile(name, old, 0o755))
	p, err := Make(t.Context(), &toolchain.Toolchain{Exec: name, Path: name, Family: "gcc", Version: "1", Major: 1, Target: "x", Files: []string{name}})
	if dir, _, _ := strings.Cut(dir[1:], "/"); slices.Contains(reserved, dir) { // as /tmp is
		if err == nil || !strings.Contains(err.Error(), "cannot travel") {
			t.Errorf("a compiler in /%s: %v", dir, err)
		}
	} else {
		must(t, err)
		_ = p
	}
	e := Entry{Name: name, Len: uint64(len(old)), Sum: sha256.Sum256(old)}
	read := func() error {
		f, err := e.Open()
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(io.Discard, f)
		return err
	}
	must(t, read())
	for what, now := range map[string][]byte{
		"other": bytes.Replace(old, []byte("comp"), []byte("c0mp"), 1), "shorter": old[1:], "longer": append([]byte("x"), old...), "empty": nil,
	} {
		must(t, os.WriteFile(name, now, 0o755))
		if err := read(); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, os.Remove(name))
	if err := read(); !errors.Is(err, ErrChanged) {
		t.Errorf("gone: %v", err)
	}
	must(t, os.Symlink("/etc/passwd", name))
	if err := read(); !errors.Is(err, ErrChanged) {
		t.Errorf("a link: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Make(ctx, &toolchain.Toolchain{Exec: "/bin/sh", Path: "/bin/sh", Files: []string{"/bin/sh"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestWhatIsPacked: of a directory that is shown whole, files and links within it are packed, and of a file's mode only whether it
// may be executed. What else can be in a directory is left out, and nothing of it is opened.
func TestWhatIsPacked(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Mkdir(dir+"/sub", 0o755))
	for name, mode := range map[string]os.FileMode{"plain": 0o644, "sub/program": 0o755, "set-id": 0o755 | os.ModeSetuid | os.ModeSetgid, "sub/sticky": 0o644 | os.ModeSticky} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	must(t, syscall.Mkfifo(dir+"/fifo", 0o666))
	l, err := net.Listen("unix", dir+"/socket")
	must(t, err)
	defer l.Close()
	if err := syscall.Mknod(dir+"/device", syscall.S_IFCHR|0o666, 1<<8|5); err != nil {
		t.Logf("without a device: %v", err)
	}
	for name, target := range map[string]string{"inside": "sub/program", "out": "/etc/passwd", "up": "../..", "nowhere": "gone", "loop": "loop", "to-fifo": "fifo"} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	m := maker{ctx: t.Context(), found: map[string]Entry{}}
	some, err := m.dir(dir)
	must(t, err)
	var got []string
	for name, e := range m.found {
		what := e.Target
		if !e.Link() {
			what = fmt.Sprint(e.Exec)
		}
		got = append(got, strings.TrimPrefix(name, dir+"/")+" "+what)
	}
	slices.Sort(got)
	want := []string{"inside sub/program", "plain false", "set-id true", "sub/program true", "sub/sticky false", "to-fifo fifo"}
	if !some || !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
