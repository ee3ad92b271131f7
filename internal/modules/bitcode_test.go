package modules

import (
	"bytes"
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

func from(b []byte) func(to []byte, off int64) bool {
	return func(to []byte, off int64) bool { return off <= int64(len(b)) && copy(to, b[off:]) == len(to) }
}
