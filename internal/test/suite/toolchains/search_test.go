package toolchains

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestSearchOfItsOwn: a compiler that searches in a way of which rdistcc knows nothing, here by another variable than any gcc, is
// found out by the first command for which it does so. Such commands stay here and are not kept, and `why` has the name; others of
// the same compiler go on.
func TestSearchOfItsOwn(t *testing.T) {
	part.Skip(t)
	gcc := compilers(t, "gcc")[0]
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	prefix := below(t, home)
	cc := copyGCC(t, gcc, prefix)
	cc1 := filepath.Join(prefix, "lib/gcc", ask(t, gcc, "-dumpmachine"), ask(t, gcc, "-dumpversion"), "cc1")
	b, err := os.ReadFile(cc1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cc1, bytes.ReplaceAll(b, []byte("C_INCLUDE_PATH\x00"), []byte("E_INCLUDE_PATH\x00")), 0o755); err != nil {
		t.Fatal(err)
	}
	s := prepare(t, bare)
	s.start()
	const asks = "#if __has_include(<x.h>)\nint there;\n#else\nint missing;\n#endif\n"
	for _, name := range []string{"a.c", "b.c", "c.c"} {
		s.write(name, asks)
	}
	s.remote(cc, "-c", "a.c", "-o", "x.o")
	plain := s.Vars
	s.Vars = append(plain[:len(plain):len(plain)], "E_INCLUDE_PATH="+filepath.Join(s.work, "own"))
	stays := func(source string) {
		t.Helper()
		got := s.run(cc, "-c", source, "-o", "x.o")
		if got.status == 0 && strings.HasPrefix(got.where, "remote:") {
			if b, err := os.ReadFile(s.Manager.Log); err == nil && bytes.Contains(b, []byte("compilers cannot be watched")) {
				need.Skipf(t, need.Sandbox, "this system does not let a process be watched")
			}
		}
		if got.status != 0 || got.where != "local:not-reproducible:sought" {
			t.Errorf("%s: exit %d, %s: %s%s", source, got.status, got.where, got.out, s.log())
		}
		s.equal(cc, "-c", source, "-o", "x.o")
		if why := s.run("why", source).out; !strings.Contains(why, filepath.Join(s.work, "own")) {
			t.Errorf("why does not say what was looked for: %s", why)
		}
	}
	stays("a.c") // would have been in the cache
	stays("b.c")
	if err := os.Mkdir(filepath.Join(s.work, "own"), 0o777); err != nil {
		t.Fatal(err)
	}
	s.write("own/x.h", "")
	stays("a.c")
	stays("c.c")
	s.Vars = plain
	s.remote(cc, "-c", "c.c", "-o", "x.o")
}
