package plain

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// site is a directory with a source, and the environment of the commands there.
type site struct {
	dir string
	env []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir()}
	s.write(t, "a.c", "int a;\n")
	s.env = []string{"PATH=" + os.Getenv("PATH"), "PWD=" + s.dir, "RDISTCC_HOSTS=h/1"}
	return s
}

func (s *site) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (s *site) whole(argv []string, env ...string) *ipc.Whole {
	block := func(list []string) string { return strings.Join(list, "\x00") + "\x00" }
	return &ipc.Whole{Version: ipc.Version, View: ipc.Look(s.dir), Words: block(argv), Environ: block(slices.Concat(s.env, env))}
}

// TestRead: which commands are read for their wrappers. What they come to, the tests of the wrapper compare.
func TestRead(t *testing.T) {
	s := newSite(t)
	s.write(t, "words", "-c a.c")
	s.write(t, "script", "#!/bin/sh\nexec gcc \"$@\"\n")
	s.write(t, "p.so", "")
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		argv []string
		env  []string
		read bool
	}{
		{argv: []string{"rdistcc", "gcc", "-c", "a.c"}, read: true},
		{argv: []string{"/opt/bin/rdistcc", gcc, "-c", "a.c", "-O2", "-o", "b.o"}, read: true},
		{argv: []string{"gcc", "-c", "a.c"}, read: true}, // by a link
		{argv: []string{"rdistcc", "gcc", "-c", "a.c"}, env: []string{"RDISTCC_MODE=remote", "RDISTCC_FALLBACK=0", "RDISTCC_CACHE=refresh"}, read: true},
		{argv: []string{"rdistcc", "-c", "a.c"}},
		{argv: []string{"rdistcc", "rdistcc", "gcc", "-c", "a.c"}},
		{argv: []string{"rdistcc-dtlto", "gcc", "-c", "a.c"}},
		{argv: []string{"rdistcc", "./gcc", "-c", "a.c"}},
		{argv: []string{"rdistcc", "status", "-c"}},
		{argv: []string{"rdistcc"}},
		{argv: []string{"rdistcc", s.dir + "/script", "-c", "a.c"}},
		{argv: []string{"rdistcc", "gcc", "@words"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c", "-Wa,@words"}},
		{argv: []string{"rdistcc", "gcc", "-c", "none.c"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c", "-o", "a.c"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c", "-o", "/dev/null"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c", "-specs=x"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c", "-fplugin=" + s.dir + "/p.so"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c", "-B", s.dir}},
		{argv: []string{"rdistcc", "gcc", "a.c"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c"}, env: []string{"RDISTCC_MODE=local"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c"}, env: []string{"RDISTCC_MODE=nonsense"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c"}, env: []string{"RDISTCC_INPUTS=list"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c"}, env: []string{"DISTCC_DIR=/etc", "RDISTCC_HOSTS2=x"}, read: true}, // the hosts are given
		{argv: []string{"rdistcc", "gcc", "-c", "a.c"}, env: []string{"_RDISTCC_SAFEGUARD=1"}},
		{argv: []string{"rdistcc", "gcc", "-c", "a.c"}, env: []string{"LD_PRELOAD=/x.so"}},
	} {
		if got := Read(s.whole(c.argv, c.env...), 7); (got != nil) != c.read {
			t.Errorf("%q with %q: read %v, want %v", c.argv, c.env, got != nil, c.read)
		}
	}
}

// TestReadElsewhere: a wrapper that may see other files, or is told of another directory, reads its command itself.
func TestReadElsewhere(t *testing.T) {
	s := newSite(t)
	argv := []string{"rdistcc", "gcc", "-c", "a.c"}
	if Read(s.whole(argv), 7) == nil {
		t.Fatal("not read here")
	}
	for name, change := range map[string]func(w *ipc.Whole){
		"mounts":          func(w *ipc.Whole) { w.View.Mounts++ },
		"mounts unknown":  func(w *ipc.Whole) { w.View.Mounts = 0 },
		"root":            func(w *ipc.Whole) { w.View.Root++ },
		"directory":       func(w *ipc.Whole) { w.View.CwdIno++ },
		"rights":          func(w *ipc.Whole) { w.View.Rights++ },
		"no words":        func(w *ipc.Whole) { w.Words = "" },
		"no environment":  func(w *ipc.Whole) { w.Environ = "" },
		"no directory":    func(w *ipc.Whole) { w.Environ = strings.Replace(w.Environ, "PWD=", "OLDPWD=", 1) },
		"relative PATH":   func(w *ipc.Whole) { w.Environ = strings.Replace(w.Environ, "PATH=", "PATH=bin:", 1) },
		"its own process": func(w *ipc.Whole) { w.Environ = strings.Replace(w.Environ, "PATH=", "PATH=/proc/self/cwd:", 1) },
	} {
		w := s.whole(argv)
		change(w)
		if Read(w, 7) != nil {
			t.Errorf("%s: read", name)
		}
	}
	t.Chdir(s.dir)
	for _, pwd := range []string{"PWD=/\x00", ""} { // as of a make in another directory, and of no shell
		w := s.whole(argv)
		w.Environ = strings.Replace(w.Environ, "PWD="+s.dir+"\x00", pwd, 1)
		if c := Read(w, os.Getpid()); c == nil || c.Lease.Cwd != s.dir {
			t.Errorf("%s: read as %+v, want the kernel's name of the directory", pwd, c)
		}
	}
	if Read(s.whole(argv), 0) != nil {
		t.Error("read for a wrapper whose process is not known")
	}
}

// TestPlace: only a silent success with all its files is placed.
func TestPlace(t *testing.T) {
	s := newSite(t)
	c := Read(s.whole([]string{"rdistcc", "gcc", "-c", "a.c", "-o", "d/b.o", "-MD"}), 7)
	if c == nil {
		t.Fatal("not read")
	}
	part := func(off, n uint64) ipc.Segment { return ipc.Segment{Off: off, Len: n} }
	all := []ipc.File{{Index: 0, Segment: part(0, 5)}, {Index: 1, Segment: part(5, 6)}}
	got := c.Place(&ipc.Result{Files: all, Host: "h"})
	want := []ipc.Placed{{How: ipc.PlacedInPlace, Name: "d/b.d", Dir: "d/.", Segment: part(5, 6)}, {How: ipc.PlacedUnlinked, Name: "d/b.o", Dir: "d/.", Segment: part(0, 5)}}
	if got == nil || !slices.Equal(got.Files, want) || got.Report != "remote:h\n" {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, r := range map[string]*ipc.Result{
		"fails":     {Exit: 1, Files: all},
		"killed":    {Signal: 9, Files: all},
		"speaks":    {Stderr: part(11, 1), Files: all},
		"moved":     {Moved: true, Files: all},
		"one lacks": {Files: all[:1]},
		"twice":     {Files: append(slices.Clone(all), all[0])},
		"unknown":   {Files: append(slices.Clone(all), ipc.File{Index: 7})},
		"empty":     {Files: []ipc.File{{Index: 0}, all[1]}},
	} {
		if p := c.Place(r); p != nil {
			t.Errorf("%s: placed as %+v", name, p)
		}
	}
}
