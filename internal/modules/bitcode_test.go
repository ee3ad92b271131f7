package modules

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestReadBitcode reads what clang makes of sources with and without assembly that reads files, and an index.
func TestReadBitcode(t *testing.T) {
	clang, err := exec.LookPath("clang")
	if err != nil {
		need.Skipf(t, need.Tools, "no clang")
	}
	dir := t.TempDir()
	run := func(args ...string) error {
		c := exec.Command(clang, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Logf("%v: %s", args, out)
		}
		return err
	}
	for _, c := range []struct {
		name, text string
		reads      bool
	}{
		{"plain", `const char *s = ".incbin"; int f(void) { __asm__("nop"); return 1; }`, false},
		{"beside", `__asm__(".InCbin \"x\"");`, true},
		{"within", `void f(void) { __asm__(".include \"x\""); }`, true},
		{"macro", `__asm__(".macro m a b\n .inc\\a \"\\b\"\n.endm");`, true},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.name+".c"), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := run("-O1", "-g", "-flto=thin", "-c", c.name+".c"); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, c.name+".o"))
		if err != nil {
			t.Fatal(err)
		}
		m, ok := ReadBitcode(from(b), int64(len(b)))
		if !ok || m.Reads != c.reads || len(m.Paths) > 0 {
			t.Errorf("%s: %+v, %v", c.name, m, ok)
		}
		for n := 0; n < len(b); n += 1 + n/7 { // what is cut or damaged ends with no more than an error
			ReadBitcode(from(b[:n]), int64(n))
			bad := bytes.Clone(b)
			bad[n] ^= 0x55
			ReadBitcode(from(bad), int64(len(bad)))
		}
	}
	if run("-flto=thin", "-fuse-ld=gold", "-shared", "-Wl,-plugin-opt,thinlto-index-only", "plain.o", "beside.o", "-o", "x.so") != nil {
		return // the linker lacks the plug-in for ThinLTO, which is not installed with all versions of clang
	}
	b, err := os.ReadFile(filepath.Join(dir, "plain.o.thinlto.bc"))
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := ReadBitcode(from(b), int64(len(b))); !ok || m.Reads || !slices.Contains(m.Paths, "plain.o") {
		t.Errorf("index: %+v, %v", m, ok)
	}
}

// TestMeaning: an index says the same whatever its modules are called, and something else when one has changed.
func TestMeaning(t *testing.T) {
	clang, err := exec.LookPath("clang")
	if err != nil {
		need.Skipf(t, need.Tools, "no clang")
	}
	dir := t.TempDir()
	run := func(args ...string) error {
		c := exec.Command(clang, append([]string{"-O1", "-flto=thin", "-fPIC"}, args...)...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Logf("%v: %s", args, out)
		}
		return err
	}
	// index links two modules with these names and returns what the first one's index means, and the index.
	index := func(one, two, more string) (sum [32]byte, b []byte) {
		for name, text := range map[string]string{one: "int g(int); int f(int x) { return g(x) + 1; }\n", two: "static int t[9]; int g(int x) { return t[x & 7]++; }\n" + more} {
			if err := os.WriteFile(filepath.Join(dir, "x.c"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := run("-c", "x.c", "-o", name); err != nil {
				t.Fatal(err)
			}
		}
		if run("-fuse-ld=gold", "-shared", "-Wl,-plugin-opt,thinlto-index-only", one, two, "-o", "x.so") != nil {
			t.Skip("the linker lacks the plug-in for ThinLTO, which is not installed with all versions of clang")
		}
		b, err := os.ReadFile(filepath.Join(dir, one+".thinlto.bc"))
		if err != nil {
			t.Fatal(err)
		}
		sum, ok := Meaning(b, func(path string) ([32]byte, bool) {
			in, err := os.ReadFile(filepath.Join(dir, path))
			return sha256.Sum256(in), err == nil
		})
		if !ok {
			t.Fatalf("%s: not known", one)
		}
		return sum, b
	}
	want, b := index("a.o", "b.o", "")
	if got, other := index("lib a.a(unit at 123).o", "lib b.a(unit of another length at 4).o", ""); got != want || bytes.Equal(b, other) {
		t.Errorf("with other names: %x, want %x", got, want)
	}
	if got, _ := index("a.o", "b.o", "int more(int x) { return x * t[3]; }\n"); got == want {
		t.Error("with another module: the same")
	}
	none := func(string) (sum [32]byte, ok bool) { return sum, true }
	for n := 0; n < len(b); n += 1 + n/50 { // what is cut or damaged is not known, or is something else
		Meaning(b[:n], none)
		bad := bytes.Clone(b)
		bad[n] ^= 0x55
		Meaning(bad, none)
	}
	if _, ok := Meaning(b, func(string) (sum [32]byte, ok bool) { return sum, false }); ok {
		t.Error("known without its modules")
	}
}

func from(b []byte) func(to []byte, off int64) bool {
	return func(to []byte, off int64) bool { return off <= int64(len(b)) && copy(to, b[off:]) == len(to) }
}
