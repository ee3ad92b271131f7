package toolchain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCopiedCompiler: a gcc with its parts in a directory of its own, as one might unpack it on two
// machines, differs after one byte of any part.
func TestCopiedCompiler(t *testing.T) {
	gcc := look(t, "gcc")
	var c Cache
	host := identifyOK(t, &c, gcc)
	cc1 := printed(t, gcc, "-print-prog-name=cc1")
	_, below, ok := strings.Cut(cc1, "/lib/gcc/")
	if !ok {
		t.Skipf("cc1 is %s, not below a lib/gcc", cc1)
	}
	dir := t.TempDir()
	parts := filepath.Join(dir, "lib/gcc", filepath.Dir(below))
	if err := os.MkdirAll(parts, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(dir, "bin", "gcc")
	copyFile(t, host.Path, mine)
	copyFile(t, cc1, filepath.Join(parts, "cc1"))
	copyFile(t, printed(t, gcc, "-print-libgcc-file-name"), filepath.Join(parts, "libgcc.a"))
	if got := printed(t, mine, "-print-prog-name=cc1"); filepath.Clean(got) != filepath.Join(parts, "cc1") {
		t.Skipf("the copy runs %s", got)
	}
	first := identifyOK(t, &c, mine)
	if first.ID == host.ID {
		t.Error("a compiler that looks for headers elsewhere has the host's ID")
	}
	if first.Version != host.Version || first.Target != host.Target {
		t.Errorf("the copy is %+v", first)
	}
	seen := map[any]string{first.ID: "at first"}
	note := func(what string) {
		t.Helper()
		id := identifyOK(t, &c, mine).ID
		if was, ok := seen[id]; ok {
			t.Errorf("%s the ID is as %s", what, was)
		}
		seen[id] = what
	}
	addByte(t, filepath.Join(parts, "cc1"))
	note("with another cc1")
	addByte(t, mine)
	note("with another driver")
	specs := printed(t, gcc, "-dumpspecs")
	write(t, filepath.Join(parts, "specs"), specs+"\n")
	note("with a specs file")
	write(t, filepath.Join(parts, "specs"), specs+"\n\n")
	note("with another specs file")
	if strings.Join(identifyOK(t, &c, mine).Files, "\n") == strings.Join(first.Files, "\n") {
		t.Error("the specs file is not shown")
	}
	for _, name := range []string{"specs", "libgcc.a"} {
		if err := os.Remove(filepath.Join(parts, name)); err != nil {
			t.Fatal(err)
		}
	}
	identifyOK(t, &c, mine)
	write(t, filepath.Join(parts, "specs"), "*cpp:\n-DX=1\n\n")
	note("with a specs file and without libgcc.a")
}

// TestLibraryByRunpath: a library that a part finds beside itself decides too.
func TestLibraryByRunpath(t *testing.T) {
	gcc := look(t, "gcc")
	dir := t.TempDir()
	fake := fakeGCC(t, dir, "gcc")
	write(t, filepath.Join(dir, "lib.c"), "int one(void) { return 1; }\n")
	write(t, filepath.Join(dir, "main.c"), "int one(void); int main(void) { return one(); }\n")
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-o", "libone.so", "lib.c"},
		{"-o", "as", "main.c", "-L.", "-lone", "-Wl,-rpath,$ORIGIN"},
	} {
		cmd := exec.Command(gcc, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var c Cache
	first := identifyOK(t, &c, fake)
	lib := filepath.Join(dir, "libone.so")
	if !strings.Contains(strings.Join(first.Files, "\n"), lib) {
		t.Errorf("the library is not shown: %q", first.Files)
	}
	addByte(t, lib)
	if identifyOK(t, &c, fake).ID == first.ID {
		t.Error("another library gives the same ID")
	}
}

func printed(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return strings.TrimSpace(string(out))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(b))
}

func addByte(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, string(append(b, 0)))
}
