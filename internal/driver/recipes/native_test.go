package recipes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

const nativeSource = `
#ifdef __AVX2__
int macro = __AVX2__;
#endif
void add(float *a, const float *b, int n) { for (int i = 0; i < n; i++) a[i] += b[i] * 2.5f; }
int bits(unsigned long x) { return __builtin_popcountl(x) + __builtin_clzl(x); }
double root(double x) { return __builtin_sqrt(x); }
`

// TestNative: the words that stand for `native` give the object that `native`
// gives, also among options that add and take features.
func TestNative(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	for _, cc := range []struct{ name, family string }{
		{"gcc-11", "gcc"}, {"gcc-12", "gcc"}, {"g++", "gcc"},
		{"clang-13", "clang"}, {"clang-14", "clang"}, {"clang-15", "clang"}, {"clang-16", "clang"}, {"clang-19", "clang"},
	} {
		t.Run(cc.name, func(t *testing.T) {
			part.SkipCase(t)
			t.Parallel()
			path, err := exec.LookPath(cc.name)
			if err != nil {
				need.Skipf(t, need.Tools, "%s is not installed", cc.name)
			}
			dir := t.TempDir()
			src := filepath.Join(dir, "x.c")
			write(t, src, nativeSource)
			var c NativeCache
			for _, machine := range [][]string{
				{"-march=native"}, {"-march=native", "-mtune=native"}, {"-mtune=native"}, {"-march=native", "-mtune=generic"},
				{"-mno-avx512f", "-march=native"}, {"-march=native", "-mno-avx", "-mfpmath=sse"}, {"-mavx2", "-mtune=native"},
				{"-march=x86-64-v3", "-mtune=native"}, {"-march=native", "-m32"},
			} {
				n, ok := c.Get(t.Context(), "id", path, cc.family, machine, os.Environ())
				if !ok {
					t.Errorf("%q: no words", machine)
					continue
				}
				if strings.Contains(strings.Join(n.Words, " "), "native") {
					t.Errorf("%q: %q", machine, n.Words)
				}
				instead := append(slices.Clone(n.Words), slices.DeleteFunc(slices.Clone(machine), isNative)...)
				options := []string{"-O3", "-ffast-math"}
				if !n.Order || cc.family == "clang" {
					options = append(options, "-g")
				} else {
					inFront(t, dir, path, n.Words, machine)
				}
				if here, there := compile(t, dir, path, append(options, machine...)), compile(t, dir, path, append(options, instead...)); !bytes.Equal(here, there) {
					t.Errorf("%q: another object by %q", machine, instead)
				}
			}
		})
	}
}

// inFront compiles without the driver: records of options are the same then.
func inFront(t *testing.T, dir, cc string, words, machine []string) {
	t.Helper()
	options := []string{"-O2", "-g", "-frecord-gcc-switches"}
	want := compile(t, dir, cc, append(slices.Clone(options), machine...))
	rest := slices.DeleteFunc(slices.Clone(machine), isNative)
	args := append(slices.Clone(words), append(append(options, rest...), "-c", "-x", "c", driver.Source, "-o", driver.Output)...)
	if strings.Contains(cc, "++") {
		args[slices.Index(args, "-x")+1] = "c++"
	}
	r, err := Expand(t.Context(), cc, args, os.Environ(), dir)
	if err != nil {
		t.Error(err)
		return
	}
	r = r.Front(words, rest)
	out := filepath.Join(dir, "direct.o")
	for i := range r.Steps() {
		run(t, dir, nil, r.Step(i, driver.Names{Source: "x.c", Output: out, Temp: filepath.Join(dir, "x.s")}))
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%q: another object with %q in front", machine, words)
	}
}

func compile(t *testing.T, dir, cc string, options []string) []byte {
	t.Helper()
	out := filepath.Join(dir, "out.o")
	run(t, dir, nil, append([]string{cc, "-c", "x.c", "-o", out}, options...))
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFrontAgain: a word of the command stays where it is if it is also among those in front.
func TestFrontAgain(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "gcc is not installed")
	}
	words, others := []string{"-march=x86-64", "-mno-avx", "-msse2", "-mtune=generic"}, []string{"-mno-avx", "-O2", "-g"}
	args := append(append(slices.Clone(words), others...), "-c", "-x", "c", driver.Source, "-o", driver.Output)
	r, err := Expand(t.Context(), cc, args, os.Environ(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got := r.Front(words, others).Step(0, driver.Names{Source: "x.c", Output: "x.o", Temp: "x.s"})
	at := slices.Index(got, "x.c") + 1
	if at == 0 || len(got) < at+len(words) || !slices.Equal(got[at:at+len(words)], words) {
		t.Fatalf("%q: want %q after the source", got, words)
	}
	if rest := got[at+len(words):]; !slices.Contains(rest, "-mno-avx") || slices.Contains(rest, "-msse2") {
		t.Errorf("%q: behind the source and %q, want the command's own -mno-avx and nothing else of these", got, words)
	}
}
