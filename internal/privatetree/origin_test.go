package privatetree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOrigin: a program finds libraries by where it is itself, through a link too, as clang of LLVM's own packages does.
func TestOrigin(t *testing.T) {
	dir := bareDir(t)
	must(t, os.Chmod(dir, 0o755)) //nolint:gosec // for other users
	for _, d := range []string{"bin", "lib", "links"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755)) //nolint:gosec // for other users
	}
	must(t, os.WriteFile(filepath.Join(dir, "a.c"), []byte("int a(void) { return 7; }\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "b.c"), []byte("int a(void); int main(void) { return a(); }\n"), 0o600))
	for _, args := range [][]string{{"-shared", "-fPIC", "-o", "lib/liba.so", "a.c"}, {"-o", "bin/b", "b.c", "-Llib", "-la", "-Wl,-rpath,$ORIGIN/../lib"}} {
		cmd := exec.Command("gcc", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("needs gcc: %v: %s", err, out)
		}
	}
	must(t, os.Symlink("../bin/b", filepath.Join(dir, "links/c")))
	files := append(programs(t, filepath.Join(dir, "bin/b")), filepath.Join(dir, "links/c"), filepath.Join(dir, "lib/liba.so"))
	trees := map[string]Spec{"tree": {Files: files, Confine: true}}
	if os.Getenv(coveredVar) == "" { // part of TestCoveredMounts otherwise
		trees["answered"] = Spec{Files: files, Confine: true, Bare: bareDir(t), Answered: true}
	}
	for name, spec := range trees {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, spec)
			for _, prog := range []string{"bin/b", "links/c"} {
				if o, out := runIn(t, tr, "/", filepath.Join(dir, prog)); o.Exit != 7 {
					t.Errorf("%s: %+v, %s", prog, o, out)
				}
			}
		})
	}
}

// TestNoLibraries: a library that a job brings is not loaded, by whatever name a loader looks for it.
func TestNoLibraries(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "x.c"), []byte("#include <unistd.h>\n__attribute__((constructor)) static void f(void) { write(1, \"in it\", 5); }\n"), 0o600))
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(dir, "x.so"), filepath.Join(dir, "x.c")).CombinedOutput(); err != nil {
		t.Skipf("needs gcc: %v: %s", err, out)
	}
	library, err := os.ReadFile(filepath.Join(dir, "x.so"))
	must(t, err)
	for name, spec := range map[string]Spec{
		"tree":     {Files: programs(t, "/bin/sh"), Confine: true},
		"answered": {Files: programs(t, "/bin/sh"), Confine: true, Bare: bareDir(t), Answered: true},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t, spec)
			must(t, tr.Write("/work/x.so", library, when, true))
			must(t, tr.Write("/etc/ld.so.preload", []byte("/work/x.so\n"), when, false))
			if o, out := runIn(t, tr, "/work", "/bin/sh", "-c", "echo done"); o.Excess != 0 || !strings.Contains(out, "done") || strings.Contains(out, "in it") {
				t.Errorf("got %+v, %q", o, out)
			}
		})
	}
}
