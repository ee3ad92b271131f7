package connmgr

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestSumOfPartition: partitions of two links of the same objects say the same, and something else once an object has changed. What is
// cut or damaged says something else, or nothing.
func TestSumOfPartition(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	dir := t.TempDir()
	link := func(name, text string) []byte {
		if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"-O2", "-g", "-flto", "-frandom-seed=a", "-c", "a.c"},
			{"-O2", "-g", "-flto=2", "-flto-partition=one", "-save-temps", "-nostdlib", "-shared", "a.o", "-o", name},
		} {
			c := exec.Command(gcc, args...)
			c.Dir = dir
			if out, err := c.CombinedOutput(); err != nil {
				need.Skipf(t, need.Tools, "%v: %v: %s", args, err, out)
			}
		}
		b, err := os.ReadFile(filepath.Join(dir, name+".ltrans0.o"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const text = "static int t[9]; int f(int x) { return t[x & 7]++; }\n"
	sum := func(b []byte, name string) [sha256.Size]byte {
		sum, ok := sumOfPartition(b, "./"+name)
		if !ok {
			t.Fatalf("%s: not known", name)
		}
		return sum
	}
	one, two := link("x", text), link("another", text)
	want := sum(one, "x")
	if got := sum(two, "another"); got != want || bytes.Equal(one, two) {
		t.Errorf("in another link: %x, want %x", got, want)
	}
	if got := sum(link("x", text+"int g(int x) { return t[x & 3]; }\n"), "x"); got == want {
		t.Error("of another object: the same")
	}
	if got := sum(unnumbered(t, one), "x"); got != sum(unnumbered(t, two), "another") || got == want {
		t.Errorf("without numbers: %x", got)
	}
	for n := 0; n < len(one); n += 1 + n/50 {
		if got, ok := sumOfPartition(one[:n], "./x"); ok && got == want {
			t.Errorf("cut at %d: the same", n)
		}
		bad := bytes.Clone(one)
		bad[n] ^= 0x55
		_, _ = sumOfPartition(bad, "./x") // does not panic
	}
}

// unnumbered returns a partition as gcc 15 and later name its sections: without a number.
func unnumbered(t *testing.T, b []byte) []byte {
	t.Helper()
	objcopy, err := exec.LookPath("objcopy")
	if err != nil {
		need.Skipf(t, need.Tools, "no objcopy")
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, s := range f.Sections {
		if i := strings.LastIndexByte(s.Name, '.'); strings.HasPrefix(s.Name, gccSections) && s.Name != gccWords {
			args = append(args, "--rename-section", s.Name+"="+s.Name[:i])
		}
	}
	name := filepath.Join(t.TempDir(), "x.o")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(objcopy, append(args, name)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if b, err = os.ReadFile(name); err != nil {
		t.Fatal(err)
	}
	return b
}
