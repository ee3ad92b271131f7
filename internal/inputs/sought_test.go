package inputs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/lookups"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// laid makes a tree of files in a directory without links, and returns it.
func laid(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestUnthought: what a search like the walk's looks up is thought of, whether it exists or not; whatever else is looked up is not.
func TestUnthought(t *testing.T) {
	dir := laid(t, map[string]string{
		"w/a.c": "#include \"b.h\"\n#if __has_include(\"later.h\")\n#endif\n", "w/inc/b.h": "", "w/other/c.h": "", "w/b.h/x": "", "lib/x": "", "bin/x": "",
	})
	if err := os.Symlink(dir+"/w/other", dir+"/w/link"); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"bin/cc": dir + "/lib/x", "w/soon": "to/come", "w/idle": "to/come"} {
		if err := os.Symlink(target, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	q := &Query{Key: "k", Source: "a.c", Cwd: dir + "/w", Angle: []string{"none", "soon", "inc"}, GCC: true}
	p := &Parts{Programs: []string{dir + "/bin"}, Libraries: []string{dir + "/lib"}, Tested: []string{dir + "/tmp"}}
	table := New(Options{})
	set, err := table.Resolve(q)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]*Sought{
		"/w/a.c": nil, "/w/inc/b.h": nil, "/w/inc/../inc/b.h": nil, "/w/b.h": nil, "/w/none": nil, "/w/none/b.h": nil, "/w": nil,
		"/w/later.h": nil, "/w/inc/later.h": nil, "/w/none/later.h": nil,
		"/w/soon": nil, "/w/soon/b.h": nil,
		"/w/idle/b.h":         {dir + "/w/to", false},
		"/w/other/c.h":        {dir + "/w/other/c.h", true},
		"/w/other":            {dir + "/w/other", true},
		"/w/link/c.h":         {dir + "/w/link", true},
		"/w/other/b.h":        {dir + "/w/other/b.h", false},
		"/w/never/b.h":        {dir + "/w/never", false},
		"/w/inc/other.h":      {dir + "/w/inc/other.h", false},
		"/bin/as":             nil, // a program
		"/bin/cc":             nil,
		"/lib/x/../libc.so.6": nil, "/lib/tls": nil, "/lib": nil, "/lib/specs": nil, "/lib/h/.": nil,
		"/lib/h.h": {dir + "/lib/h.h", false},
		"/tmp":     nil,
	} {
		got, ok := table.Unthought(q, set, []string{dir + name}, p)
		if !ok || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %v, %v; want %v", name, got, ok, want)
		}
	}
	libraries, _ := filepath.Glob("/usr/lib*/*/libc.so.[0-9]") // the pattern is right
	for _, name := range append(libraries, "/proc/self/maps", "/proc/self/cwd/inc/b.h", "//proc/self/./cwd/none/later.h", "/dev/null", "/usr/include/rdistcc-none.h", "/usr/lib/none") {
		if got, ok := table.Unthought(q, set, []string{name}, p); got != nil || !ok {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	if err := os.WriteFile(dir+"/w/later.h", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, ok := table.Unthought(q, set, nil, p); ok {
		t.Error("the Set is that of other files")
	}
}

// TestUnthoughtOfCompilers: what real compilers look up is thought of, and a way to search of which the query does not tell is not.
func TestUnthoughtOfCompilers(t *testing.T) {
	part.Skip(t)
	dir := laid(t, map[string]string{
		"a.c":   "#include \"in/b.h\"\n#include <stdio.h>\n#if __has_include(\"absent.h\")\n#endif\n",
		"i/c.h": "#include_next <limits.h>\n", "in/b.h": "#include \"c.h\"\n", "hidden/absent.h": "",
	})
	for _, compiler := range []string{"gcc", "clang"} {
		path, err := exec.LookPath(compiler)
		if err != nil {
			t.Logf("no %s", compiler)
			continue
		}
		q := newCompiler(t, compiler, "c").query(dir, "a.c", "i", "void")
		table := New(Options{})
		set, err := table.Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		for more, want := range map[string]*Sought{"-Ivoid": nil, "-Ihidden": {dir + "/hidden", true}, "-Ilater": {dir + "/later", false}} {
			names, _, err := lookups.Run(t.Context(), path, []string{compiler, "-M", "-Ii", "-Ivoid", more, "a.c"}, syscall.ProcAttr{Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}})
			if errors.Is(err, lookups.ErrUnseen) {
				need.Skipf(t, need.Sandbox, "%v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			// Files of a compiler are known to those who have identified it.
			var mine []string
			for _, name := range names {
				if below(name, dir) || below(name, "/usr/include") {
					mine = append(mine, name)
				}
			}
			got, ok := table.Unthought(q, set, mine, &Parts{})
			if !ok || (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Errorf("%s %s: %v, %v; want %v", compiler, more, got, ok, want)
			}
		}
	}
}
