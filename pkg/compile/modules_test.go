package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestFindClangModules: a command that imports modules compiled by clang reads them, those that they import, and what
// they were made of. It stays here if one of them is not what it should be.
func TestFindClangModules(t *testing.T) {
	for _, cxx := range []string{"clang++-16", "clang++-19"} {
		if _, err := exec.LookPath(cxx); err != nil {
			need.Skipf(t, need.Tools, "no %s", cxx)
		}
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run := func(args ...string) {
			cmd := exec.Command(cxx, append([]string{"-std=c++20"}, args...)...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s %v: %v\n%s", cxx, args, err, out)
			}
		}
		for _, d := range []string{"bmi", "bad", "empty", "unit", "inner"} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write("p.cppm", "export module a:p;\nexport int p();\n")
		write("a.cppm", "export module a;\nexport import :p;\n")
		write("x.h", "int x();\n")
		write("bad/a.pcm", "no module")
		run("--precompile", "p.cppm", "-o", "bmi/a-p.pcm")
		run("--precompile", "a.cppm", "-fprebuilt-module-path=bmi", "-o", "bmi/a.pcm")
		run("-fmodule-header=user", "x.h", "-o", "unit/x.pcm")
		write("h.cppm", "export module h;\nimport \"x.h\";\n")
		run("--precompile", "h.cppm", "-fmodule-file=unit/x.pcm", "-o", "inner/h.pcm")
		whole := dir + "/a.cppm " + dir + "/p.cppm "
		for _, c := range []struct{ args, want string }{
			{"-fprebuilt-module-path=bmi", "bmi/a-p.pcm bmi/a.pcm " + whole},
			{"-fprebuilt-module-path=bmi/", "bmi/a-p.pcm bmi/a.pcm " + whole},
			{"-fmodule-file=a=bmi/a.pcm -fmodule-file=a:p=bmi/a-p.pcm", "bmi/a-p.pcm bmi/a.pcm " + whole},
			{"-fmodule-file=a:p=" + dir + "/bmi/a-p.pcm", dir + "/bmi/a-p.pcm " + dir + "/p.cppm "},
			{"-fprebuilt-module-path=empty", ""},
			{"-fprebuilt-module-path=none", "local"},
			{"-fprebuilt-module-path=bad", "local"},
			{"-fprebuilt-module-path=unit", "local"},
			{"-fmodule-file=h=inner/h.pcm", "local"},
			{"-fprebuilt-module-path=bmi -fmodule-file=b=bmi/b.pcm", "local"},
		} {
			p := Parse(append(strings.Fields(c.args), "-std=c++20", "-c", "m.cc"), testDriver(t, "clang++"), nil)
			why := p.FindModules(dir)
			got := "local"
			if why == "" {
				got = ""
				for _, name := range slices.Sorted(slices.Values(p.Inputs)) {
					if name != dir+"/bmi/a-p.pcm" || strings.Contains(c.args, dir) { // clang 16 tells it, later ones do not
						got += name + " "
					}
				}
				if p.Imports != (got != "") {
					t.Errorf("%s %s: imports: %v", cxx, c.args, p.Imports)
				}
			}
			if !sameWords(got, c.want) {
				t.Errorf("%s %s: %q (%s), want %q", cxx, c.args, got, why, c.want)
			}
		}
	}
}

// sameWords reports whether two lists have the same words, in any order.
func sameWords(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
