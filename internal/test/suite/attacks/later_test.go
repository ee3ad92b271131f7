package attacks

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// later makes what the attacks of corpus/later.txt bring: bitcode, indexes of ThinLTO, gcc's partitions and compiled modules that are hostile. Where a
// compiler or a tool for that is missing, what it would make is a file that is none.
func (c *canaries) later(t *testing.T) {
	t.Helper()
	ir, lto, modules := filepath.Join(c.dir, "evil/ir"), filepath.Join(c.dir, "evil/lto"), filepath.Join(c.dir, "evil/modules")
	for _, dir := range []string{ir, lto, modules} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// made runs a tool, which is to make a file.
	made := func(dir, file, source, text string, words ...string) []byte {
		t.Helper()
		write(filepath.Join(dir, source), []byte(text))
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			say := t.Logf
			if need.Has(t, need.Tools) {
				say = t.Errorf // these attacks would show nothing
			}
			say("%s, which attacks lack: %v: %.200s", file, err, out)
			write(filepath.Join(dir, file), []byte("BC not one\n"))
		}
		return readFile(t, filepath.Join(dir, file))
	}

	// A module that calls f, and one outside of the job, to which f belongs and which has the secret in it.
	a := made(ir, "a.o", "a.c", "const char *f(void);\nconst char *g(void) { return f(); }\n", "clang", "-O2", "-flto=thin", "-c", "a.c", "-o", "a.o")
	inner := `const char *f(void) { __asm__(".pushsection .note\n.ascii \"` + c.tokens["secret"] + `\"\n.popsection"); return 0; }` + "\n"
	made(filepath.Join(c.dir, "sec"), "module.bc", "module.c", inner, "clang", "-O2", "-flto=thin", "-c", "module.c", "-o", "module.bc")
	var index []byte
	for name, paths := range map[string][]string{
		"secret": {c.names["SECRETDIR"] + "/module.bc"}, "shadow": {"/etc/shadow"}, "environ": {"/proc/self/environ"}, "memory": {"/proc/1/mem"}, "work": {c.names["WORK"] + "/x", c.names["LOG"]},
		"upward": {"../../../../../../.." + c.names["SECRETDIR"] + "/module.bc"}, "fifo": {c.names["FIFO"]}, "zero": {"/dev/zero"}, "many": many(3000),
	} {
		index = made(ir, name+".idx", name+".ll", indexOf(paths), "llvm-as", name+".ll", "-o", name+".idx")
	}
	r := rand.New(rand.NewPCG(1, 2)) // the same ones each time
	mutate := func(b []byte) []byte {
		b = bytes.Clone(b)
		for range 1 + len(b)/200 {
			b[4+r.IntN(len(b)-4)] ^= byte(1 << r.IntN(8))
		}
		return b
	}
	for i := range 6 {
		write(filepath.Join(ir, fmt.Sprintf("mutated-%d", i)), mutate(a))
		write(filepath.Join(ir, fmt.Sprintf("mutated-%d.idx", i)), mutate(index))
	}
	for i := range 2 {
		write(filepath.Join(ir, fmt.Sprintf("truncated-%d", i)), a[:len(a)*(i+1)/3])
	}

	// Partitions of links with LTO by gcc, as a link keeps them with -save-temps. The assembly in them names files, and the assembler reads those.
	// The link itself fails, as it assembles them.
	partition := func(name, asm string) []byte {
		const link = "gcc -O2 -fPIC -flto -c $0.c -o $0.unit && { gcc -O2 -shared -nostdlib -flto -flto-partition=one -save-temps $0.unit -o $0.so 2>/dev/null; mv $0.so.ltrans0.o $0.o; }"
		return made(lto, name+".o", name+".c", fmt.Sprintf("__asm__(%q);\nint f(int a) { return a + 1; }\n", asm), "sh", "-c", link, name)
	}
	for name, asm := range map[string]string{
		"incbin": `.incbin "` + c.names["SECRET"] + `"`, "private": `.incbin "` + c.names["PRIVATE"] + `"`, "include": `.include "/etc/shadow"`, "upward": `.incbin "../../../../../../..` + c.names["SECRET"] + `"`,
	} {
		partition(name, asm)
	}
	good := partition("a", "")
	for i := range 4 {
		write(filepath.Join(lto, fmt.Sprintf("truncated-%d.o", i)), good[:len(good)*i/4])
	}

	const unit = "export module m;\nexport inline int f(int a) { return a + 1; }\n"
	for suffix, words := range map[string][]string{
		".gcm": {"g++", "-std=c++20", "-fmodules-ts", "-fmodule-mapper=map", "-c", "m.cc", "-o", "m.o"},
		".pcm": {"clang++", "-std=c++20", "-x", "c++-module", "--precompile", "m.cc", "-o", "m.pcm"},
	} {
		write(filepath.Join(modules, "map"), []byte("m m.gcm\n"))
		m := made(modules, "m"+suffix, "m.cc", unit, words...)
		for i := range 4 {
			write(filepath.Join(modules, fmt.Sprintf("mutated-%d%s", i, suffix)), mutate(m))
		}
		write(filepath.Join(modules, "truncated"+suffix), m[:len(m)/2])
	}
}

// many returns names of n modules.
func many(n int) (paths []string) {
	for i := range n {
		paths = append(paths, fmt.Sprintf("/proc/self/task/../../self/fd/%d", i))
	}
	return paths
}

// indexOf returns an index of ThinLTO, as text, by which g of in.o calls f, which belongs to the first one of these modules.
func indexOf(paths []string) string {
	var b strings.Builder
	const flags = "flags: (linkage: external, visibility: default, notEligibleToImport: 0, live: 1, dsoLocal: 1, canAutoHide: 0), insts: 2"
	const f, g = "14740650423002898831", "13146401226427987378" // hashes of these names
	fmt.Fprintf(&b, "^0 = module: (path: \"in.o\", hash: (0, 0, 0, 0, 0))\n")
	for i, path := range paths {
		fmt.Fprintf(&b, "^%d = module: (path: %q, hash: (0, 0, 0, 0, 0))\n", i+1, path)
	}
	n := len(paths) + 1
	fmt.Fprintf(&b, "^%d = gv: (guid: %s, summaries: (function: (module: ^0, %s, calls: ((callee: ^%d)))))\n", n, g, flags, n+1)
	fmt.Fprintf(&b, "^%d = gv: (guid: %s, summaries: (function: (module: ^1, %s)))\n^%d = blockcount: 2\n", n+1, f, flags, n+2)
	return b.String()
}
