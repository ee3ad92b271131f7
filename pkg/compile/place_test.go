package compile

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// TestPlaceAsCompiler makes the same starting point twice, lets the compiler
// write its output over one and Place over the other, and compares what is there.
func TestPlaceAsCompiler(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	write := func(path string, mode os.FileMode, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	start := map[string]func(dir string){
		"missing":   func(string) {},
		"empty":     func(d string) { write(d+"/out", 0o600, "") },
		"full":      func(d string) { write(d+"/out", 0o600, "old") },
		"read-only": func(d string) { write(d+"/out", 0o400, "old") },
		"hard link": func(d string) { write(d+"/keep", 0o600, "old"); must(t, os.Link(d+"/keep", d+"/out")) },
		"hard link, empty": func(d string) {
			write(d+"/keep", 0o600, "")
			must(t, os.Link(d+"/keep", d+"/out"))
		},
		"symlink":           func(d string) { write(d+"/keep", 0o600, "old"); must(t, os.Symlink("keep", d+"/out")) },
		"symlink, empty":    func(d string) { write(d+"/keep", 0o600, ""); must(t, os.Symlink("keep", d+"/out")) },
		"symlink, dangling": func(d string) { must(t, os.Symlink("keep", d+"/out")) },
		"symlink, null":     func(d string) { must(t, os.Symlink("/dev/null", d+"/out")) },
	}
	for _, cc := range []struct {
		name string
		f    Family
	}{{"gcc", GCC}, {"clang", Clang}} {
		path, err := exec.LookPath(cc.name)
		if err != nil {
			t.Logf("no %s here", cc.name)
			continue
		}
		for _, kind := range []job.OutputKind{job.OutputObject, job.OutputAssembly} {
			mode := map[job.OutputKind]string{job.OutputObject: "-c", job.OutputAssembly: "-S"}[kind]
			for name, setup := range start {
				t.Run(cc.name+" "+mode+" "+name, func(t *testing.T) {
					theirs, ours := t.TempDir(), t.TempDir()
					setup(theirs)
					setup(ours)
					source := filepath.Join(t.TempDir(), "a.c")
					write(source, 0o644, "int f(int x) { return x * 2; }\n")
					result := filepath.Join(filepath.Dir(source), "result")
					run(t, filepath.Dir(source), path, mode, "a.c", "-o", "result")
					cmd := exec.Command(path, mode, source, "-o", "out")
					cmd.Dir = theirs
					failed := cmd.Run() != nil
					src, err := os.Open(result)
					must(t, err)
					defer src.Close()
					st, err := src.Stat()
					must(t, err)
					err = Place(job.Output{Kind: kind, Name: ours + "/out"}, cc.f, int(src.Fd()), 0, st.Size())
					if failed {
						if err == nil {
							t.Error("the compiler fails here, Place does not")
						}
						return
					}
					if err != nil {
						t.Fatalf("Place: %v", err)
					}
					if got, want := listing(t, ours), listing(t, theirs); got != want {
						t.Errorf("got\n%swant\n%s", got, want)
					}
				})
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir, path string, args ...string) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", path, args, err, out)
	}
}

// listing is what a directory holds: names, kinds, modes, links, contents.
func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var lines []string
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		line := e.Name() + " " + info.Mode().String()
		if e.Type()&os.ModeSymlink != 0 {
			to, _ := os.Readlink(filepath.Join(dir, e.Name()))
			line += " -> " + to
		} else {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			must(t, err)
			line += " " + string(bytes.ToValidUTF8(text, []byte("?")))
		}
		lines = append(lines, line)
	}
	sort.Strings(lines)
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	return b.String()
}

// TestPlaceRefuses: what the compiler would fail at is an ErrPlace, and leaves
// nothing behind.
func TestPlaceRefuses(t *testing.T) {
	src, err := os.CreateTemp(t.TempDir(), "src")
	must(t, err)
	defer src.Close()
	_, err = src.WriteString("0123456789")
	must(t, err)
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/d", 0o755))
	must(t, syscall.Mkfifo(dir+"/pipe", 0o644))
	before := mapNames(t, dir)
	for _, f := range []Family{GCC, Clang} {
		for _, name := range []string{dir + "/no/such/dir", dir + "/d", dir + "/pipe", "/dev/full", dir + "/a.c/x", ""} {
			err := Place(job.Output{Name: name}, f, int(src.Fd()), 0, 10)
			if !errors.Is(err, ErrPlace) {
				t.Errorf("family %d: Place(%q) = %v, want ErrPlace", f, name, err)
			}
		}
		// Promised more than there is.
		if err := Place(job.Output{Name: dir + "/short"}, f, int(src.Fd()), 4, 10); !errors.Is(err, ErrPlace) {
			t.Errorf("family %d: short source: %v, want ErrPlace", f, err)
		}
	}
	if after := mapNames(t, dir); after != before {
		t.Errorf("left behind: %s, was %s", after, before)
	}
}

func mapNames(t *testing.T, dir string) (all string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		all += e.Name() + " "
	}
	return all
}

// TestPlaceOffset: only the named part is written, and fd keeps its offset.
func TestPlaceOffset(t *testing.T) {
	src, err := os.CreateTemp(t.TempDir(), "src")
	must(t, err)
	defer src.Close()
	_, err = src.WriteString("0123456789")
	must(t, err)
	for _, f := range []Family{GCC, Clang} {
		out := filepath.Join(t.TempDir(), "o")
		must(t, Place(job.Output{Name: out}, f, int(src.Fd()), 3, 4))
		got, err := os.ReadFile(out)
		must(t, err)
		if string(got) != "3456" {
			t.Errorf("family %d: got %q, want 3456", f, got)
		}
		if at, _ := src.Seek(0, 1); at != 10 {
			t.Errorf("family %d: offset is now %d, want 10", f, at)
		}
		empty := filepath.Join(t.TempDir(), "e")
		must(t, Place(job.Output{Name: empty}, f, int(src.Fd()), 0, 0))
		if st, err := os.Stat(empty); err != nil || st.Size() != 0 {
			t.Errorf("family %d: empty output: %v, %v", f, st, err)
		}
	}
}
