package toolchain

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is a directory to be made into the root of a namespace of its own, and
// the shell script that does so.
type root struct {
	t      *testing.T
	dir    string
	script strings.Builder
	done   map[string]bool
}

func newRoot(t *testing.T) *root {
	t.Helper()
	for _, tool := range []string{"unshare", "mount", "chroot"} {
		look(t, tool)
	}
	if out, err := exec.Command("unshare", "-rmpf", "true").CombinedOutput(); err != nil {
		t.Skipf("needs the right to make namespaces: %v: %s", err, out)
	}
	r := &root{t: t, dir: t.TempDir(), done: make(map[string]bool)}
	r.script.WriteString("set -e\ncd " + r.dir + "\n")
	r.mkdir("/dev")
	r.mkdir("/proc")
	r.mkdir("/tmp")
	r.plant("/dev/null")
	r.script.WriteString("mount -t proc proc proc\n") // loaders know $ORIGIN from there
	return r
}

func (r *root) mkdir(dir string) {
	if err := os.MkdirAll(r.dir+dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// plant shows a file or directory of the host, with the links that lead to it.
func (r *root) plant(path string) {
	at := "/"
	rest := strings.Split(strings.Trim(path, "/"), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		p := filepath.Join(at, name)
		if target, err := os.Readlink(p); err == nil {
			r.mkdir(at)
			if err := os.Symlink(target, r.dir+p); err != nil && !os.IsExist(err) {
				r.t.Fatal(err)
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
			continue
		}
		at = p
	}
	if r.done[at] {
		return
	}
	r.done[at] = true
	fi, err := os.Stat(at)
	if err != nil {
		r.t.Fatal(err)
	}
	if fi.IsDir() {
		r.mkdir(at)
	} else {
		r.mkdir(filepath.Dir(at))
		write(r.t, r.dir+at, "")
	}
	fmt.Fprintf(&r.script, "mount --rbind %s .%s\n", at, at)
}

// run gives what a command in the root prints, its status in words behind it.
func (r *root) run(dir string, env []string, argv ...string) string {
	script := r.script.String() + `exec "$@"`
	// chroot and env of the host are gone then; the compiler's loader is not.
	cmd := exec.Command("unshare", append([]string{"-rmpf", "sh", "-c", script, "sh", "chroot", ".", argv[0]}, argv[1:]...)...)
	cmd.Env = env
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s%v", out, err)
}

const shownSource = `#include <stdlib.h>
#include <limits.h>
#define TWICE(x) ((x) + (x))
int f(int *p) { return TWICE(*p) + INT_MAX - abs(p[1]); }
`

const shownSourceCXX = `#include <vector>
#include <string>
std::string f(std::vector<int> &v) { v.push_back(1); return std::to_string(v.size()) + __FILE__; }
`

// TestShown: in a root that has just a toolchain's files, and the sources of a
// compile under their own names, compilers write the objects and messages that
// they write outside.
func TestShown(t *testing.T) {
	for _, name := range []string{"cc", "gcc-11", "g++", "aarch64-linux-gnu-gcc", "clang", "clang++-13", "clang++-15", "clang++-16", "clang-19", "clang++-19"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cc := look(t, name)
			tc := identifyOK(t, new(Cache), cc)
			r := newRoot(t)
			for _, p := range tc.Files {
				r.plant(p)
			}
			for _, p := range tc.Dirs {
				r.plant(p)
			}
			work := t.TempDir()
			src, text := "in.c", shownSource
			if strings.Contains(name, "++") {
				src, text = "in.cc", shownSourceCXX
			}
			src = filepath.Join(work, src)
			write(t, src, text)
			bad := filepath.Join(work, "bad.c")
			write(t, bad, "int f(void) { return x; }\n")
			for _, p := range append(sources(t, cc, src), sources(t, cc, src, "-O2")...) {
				if r.mkdir(filepath.Dir(p)); r.done[p] {
					continue
				}
				r.done[p] = true
				b, err := os.ReadFile(p)
				if err != nil {
					t.Fatal(err)
				}
				write(t, r.dir+p, string(b))
			}
			r.mkdir(work)
			write(t, r.dir+bad, "int f(void) { return x; }\n")
			obj := filepath.Join(work, "out.o")
			options := [][]string{{"-O2", "-g"}, {"-g", "-gsplit-dwarf"}, {"-finput-charset=ISO-8859-1"}}
			if tc.Family == "clang" {
				options[len(options)-1] = []string{"-fno-integrated-as", "-g"}
			}
			for _, o := range options {
				argv := append([]string{cc}, append(o, "-c", src, "-o", obj)...)
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Dir = "/"
				here, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, here)
				}
				if there, want := r.run("/", os.Environ(), argv...), fmt.Sprintf("%s%v", here, error(nil)); there != want {
					t.Errorf("%v: prints %q, outside %q", o, there, want)
				}
				sameFile(t, o, obj, r.dir+obj)
				if len(o) > 1 && o[1] == "-gsplit-dwarf" {
					sameFile(t, o, strings.TrimSuffix(obj, ".o")+".dwo", r.dir+strings.TrimSuffix(obj, ".o")+".dwo")
				}
			}
			// What a driver finds out by itself: where headers are.
			for _, o := range [][]string{{"-###", "-c", src}, {"-c", bad}, {"-no-such-option", "-c", src}} {
				argv := append([]string{cc}, o...)
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Dir = "/"
				here, err := cmd.CombinedOutput()
				if there, want := r.run("/", os.Environ(), argv...), fmt.Sprintf("%s%v", here, err); temps(there) != temps(want) {
					t.Errorf("%v prints\n%s\noutside\n%s", o, there, want)
				}
			}
		})
	}
}

// temps takes the random names of temporary files out, and where the driver
// would look for libraries.
func temps(s string) string {
	var words []string
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "LIBRARY_PATH=") && !strings.HasPrefix(line, "COMPILER_PATH=") {
			words = append(words, strings.Fields(line)...)
		}
	}
	for i, w := range words {
		if strings.Contains(w, "/tmp/cc") || strings.Contains(w, "/tmp/in-") {
			words[i] = "TEMP"
		}
	}
	return strings.Join(words, " ")
}

// sources are the files that a compile reads.
func sources(t *testing.T, cc, src string, options ...string) []string {
	t.Helper()
	out, err := exec.Command(cc, append(options, "-M", src)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(out), ":")
	return strings.Fields(strings.ReplaceAll(list, "\\\n", " "))
}

func sameFile(t *testing.T, what any, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Error(what, err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Error(what, err)
	}
	if len(x) == 0 || !bytes.Equal(x, y) {
		t.Errorf("%v: %s differs", what, filepath.Base(a))
	}
}
