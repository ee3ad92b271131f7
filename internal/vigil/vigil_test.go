package vigil

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// begin begins a Vigil, which must be possible here.
func begin(t *testing.T, w *Watcher, dirs ...string) *Vigil {
	t.Helper()
	v := w.Begin(dirs)
	if v == nil {
		t.Skip("the kernel tells of nothing here")
	}
	return v
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestComesAndGoes: what was there for a moment is told, with each file that was written and how often.
func TestComesAndGoes(t *testing.T) {
	var w Watcher
	dir := t.TempDir()
	for range 2 { // the second time, the directory is watched already
		v := begin(t, &w, dir)
		write(t, filepath.Join(dir, "x"), "1")
		write(t, filepath.Join(dir, "y"), "1")
		must(t, os.Remove(filepath.Join(dir, "x")))
		events, ok := v.End()
		wrote := func(name string) (n int) {
			for _, e := range events {
				if e.Dir == dir && e.Name == name && e.What == Wrote {
					n++
				}
			}
			return n
		}
		if !ok || wrote("x") != 1 || wrote("y") != 1 || wrote("z") != 0 {
			t.Errorf("%v, %v", events, ok)
		}
		must(t, os.Remove(filepath.Join(dir, "y")))
	}
	v := begin(t, &w, dir)
	if events, ok := v.End(); !ok || len(events) > 0 {
		t.Errorf("nothing happened, but it tells of %v, %v", events, ok)
	}
	if len(w.log) > 0 || len(w.active) > 0 {
		t.Errorf("%d events are remembered for nobody", len(w.log))
	}
}

// TestDirectoriesThatLeadElsewhere: if a directory of a Vigil, or one that leads there, was another one for a moment, it knows
// nothing. Those that begin later know what happens in the directory that is there then.
func TestDirectoriesThatLeadElsewhere(t *testing.T) {
	for name, change := range map[string]func(in string) error{
		"renamed and back": func(in string) error {
			if err := os.Rename(in+"/a", in+"/c"); err != nil {
				return err
			}
			return os.Rename(in+"/c", in+"/a")
		},
		"the directory itself": func(in string) error {
			if err := os.Rename(in+"/a/inc", in+"/a/old"); err != nil {
				return err
			}
			return os.Mkdir(in+"/a/inc", 0o755)
		},
		"moved into its place": func(in string) error {
			return os.Rename(in+"/b", in+"/a/none")
		},
		"comes into being": func(in string) error { return os.MkdirAll(in+"/a/none/inc", 0o755) },
		"a link to another one": func(in string) error {
			if err := os.Remove(in + "/link"); err != nil {
				return err
			}
			return os.Symlink("b", in+"/link")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w Watcher
			in := t.TempDir()
			must(t, os.MkdirAll(in+"/a/inc", 0o755), os.Mkdir(in+"/b", 0o755), os.Symlink("a", in+"/link"))
			dirs := []string{in + "/a/inc", in + "/a/none/inc", in + "/link"}
			v := begin(t, &w, dirs...)
			must(t, change(in))
			if events, ok := v.End(); ok {
				t.Errorf("it believes to know: %v", events)
			}
			v = begin(t, &w, dirs...)
			write(t, in+"/a/inc/h.h", "")
			events, ok := v.End()
			if !ok || !slices.ContainsFunc(events, func(e Event) bool { return e.Dir == in+"/a/inc" && e.Name == "h.h" && e.What == Wrote }) {
				t.Errorf("afterwards it tells of %v, %v", events, ok)
			}
		})
	}
}

// TestMoreThanIsRemembered: where too much happens, or too many directories are watched, a Vigil says that it knows nothing.
func TestMoreThanIsRemembered(t *testing.T) {
	var w Watcher
	dir := t.TempDir()
	v := begin(t, &w, dir)
	for range mostEvents/3 + 1 {
		name := filepath.Join(dir, "x")
		f, err := os.Create(name)
		must(t, err, f.Close(), os.Remove(name))
	}
	if _, ok := v.End(); ok {
		t.Error("it believes to know")
	}
	w.most = len(w.dirs)
	v = begin(t, &w, dir)
	w.most += 1
	other := w.Begin([]string{t.TempDir()})
	if _, ok := v.End(); ok || other == nil {
		t.Error("a watch has ended for another one's sake, but it believes to know")
	}
	if _, ok := other.End(); !ok {
		t.Error("the other one knows nothing")
	}
}
