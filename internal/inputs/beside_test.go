package inputs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestBeside: a file that is read in the directories of others and above them belongs to the Set wherever it is, and one that
// appears or goes away makes another Set.
func TestBeside(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("p/src/x.c", "#include \"../inc/deep/a.h\"\n")
	write("p/inc/deep/a.h", "")
	write("p/build/unrelated", "")
	write("p/other/.conf", "")
	tab := New(Options{})
	have := func() (names []string) {
		t.Helper()
		s, err := tab.Resolve(&Query{Key: "k", Source: "../src/x.c", Cwd: dir + "/p/build", Beside: ".conf"})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range s.Files {
			if filepath.Base(f.Name) == ".conf" {
				name, err := filepath.Rel(dir, f.Name)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, name)
			}
		}
		return names
	}
	var want []string
	check := func() {
		t.Helper()
		if got := have(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check()
	// The working directory counts because the letters of the source's name lead through it.
	for _, name := range []string{".conf", "p/build/.conf", "p/inc/.conf", "p/inc/deep/.conf", "p/src/.conf"} {
		write(name, "x")
		want = append(want, name)
		check()
	}
	if err := os.Remove(filepath.Join(dir, want[0])); err != nil {
		t.Fatal(err)
	}
	want = want[1:]
	check()
	if err := os.RemoveAll(filepath.Join(dir, "p/inc/.conf")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "p/inc/.conf"), 0o777); err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(s string) bool { return s == "p/inc/.conf" })
	check()
}
