package compile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestFindClangModules: a command that imports modules compiled by clang reads them, those that they import, and what
// they were made of. It stays here if one of them is not what it should be.
func TestFindClangModules(t *testing.T) {
	turns.Skip(t)
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
		header := "./x.h " + dir + "/x.h "
		for _, c := range []struct{ args, want string }{
			{"-fprebuilt-module-path=bmi", "bmi/a-p.pcm bmi/a.pcm " + whole},
			{"-fprebuilt-module-path=bmi/", "bmi/a-p.pcm bmi/a.pcm " + whole},
			{"-fmodule-file=a=bmi/a.pcm -fmodule-file=a:p=bmi/a-p.pcm", "bmi/a-p.pcm bmi/a.pcm " + whole},
			{"-fmodule-file=a:p=" + dir + "/bmi/a-p.pcm", dir + "/bmi/a-p.pcm " + dir + "/p.cppm "},
			{"-fprebuilt-module-path=empty", ""},
			{"-fprebuilt-module-path=none", "local"},
			{"-fprebuilt-module-path=bad", "local"},
			{"-fprebuilt-module-path=unit", "unit/x.pcm " + header},
			{"-fmodule-file=unit/x.pcm", "unit/x.pcm " + header},
			{"-fmodule-file=h=inner/h.pcm", "inner/h.pcm " + dir + "/unit/x.pcm " + dir + "/h.cppm " + header},
			{"-fmodule-file=x=unit/x.pcm", "local"},
			{"-fmodule-file=bmi/a.pcm", "local"},
			{"-fmodule-file=unit/none.pcm", "local"},
			{"-fprebuilt-module-path=bmi -fmodule-file=b=bmi/b.pcm", "local"},
		} {
			p := Parse(append(strings.Fields(c.args), "-std=c++20", "-c", "m.cc"), testDriver(t, "clang++"), nil)
			why := p.FindModules(dir, nil)
			got := "local"
			if why == "" {
				got = ""
				for _, name := range slices.Sorted(slices.Values(p.Inputs)) {
					if name != dir+"/bmi/a-p.pcm" || strings.Contains(c.args, dir) { // clang 16 tells it, later ones do not
						got += name + " "
					}
				}
				if p.Units != strings.Contains(got, "x.pcm") {
					t.Errorf("%s %s: units: %v", cxx, c.args, p.Units)
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

// TestFindHeaderUnit: a header unit has the name under which gcc finds the header, unless it is not certain which header that is.
func TestFindHeaderUnit(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"x.h", "d/x.h", "d/y.h", "own/z", "pch/p.h", "pch/p.h.gch", "e/p.h", "map"} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("./d/y.h y.gcm\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"-fmodule-header ./x.h":                            "gcm.cache/,/x.h.gcm ./x.h",
		"-fmodule-header " + dir + "/x.h":                  "gcm.cache/." + dir + "/x.h.gcm " + dir + "/x.h",
		"-fmodule-header none.h":                           "local",
		"-fmodule-header pch/p.h":                          "local",
		"-fmodule-header -fmodule-mapper=map d/y.h":        "y.gcm ./d/y.h",
		"-fmodule-header -fmodule-mapper=map d/x.h":        "local",
		"-x c++-user-header -Inone -iquote d -I. x.h":      "gcm.cache/,/d/x.h.gcm ./d/x.h",
		"-x c++-system-header -Inone -iquote d -I. x.h":    "gcm.cache/,/x.h.gcm ./x.h",
		"-x c++-header -fmodule-header=system -Id/ -c y.h": "gcm.cache/,/d/y.h.gcm ./d/y.h",
		"-x c++-system-header -idirafter d z":              "gcm.cache/,/own/z.gcm ./own/z",
		"-x c++-system-header -I./own z":                   "local",
		"-x c++-system-header -Ie -Ipch p.h":               "gcm.cache/,/e/p.h.gcm ./e/p.h",
		"-x c++-system-header -Ipch -Ie p.h":               "local",
		"-x c++-user-header none.h":                        "local",
	} {
		p := Parse(append([]string{"-std=c++20", "-fmodules-ts", "-MD"}, strings.Fields(args)...), testDriver(t, "g++"), nil)
		got := "local"
		if p.FindModules(dir, func([]string) []string { return []string{"missing", "own"} }) == "" {
			got = p.Main() + " " + p.ModuleRules.Module
		}
		if got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

// TestFindGccModuleRules: if a command has gcc write rules for make, its plan has the names that they may have for modules.
func TestFindGccModuleRules(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"p.cc": "export module a:p;\nimport :q;\nimport b;\n", "i.cc": "module a;\nimport \"x.h\";\n", "n.cc": "int x;\n",
		"map": "a:p m/p.gcm\nb b.gcm\n./y.h y.gcm\n", "gcm.cache/,/x.h.gcm": "", "gcm.cache/,,/z/,,/x.h.gcm": "", "gcm.cache/b.gcm": "",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]modules.Rules{
		"-c p.cc":                          {},
		"-MD -c p.cc":                      {Module: "a:p", File: "gcm.cache/a-p.gcm", Imports: []string{"../z/../x.h", "./x.h", "a:q", "b"}},
		"-MMD -MF d -c i.cc":               {Imports: []string{"../z/../x.h", "./x.h", "a"}},
		"-MD -c n.cc":                      {Imports: []string{"../z/../x.h", "./x.h"}},
		"-MD -fmodule-mapper=map -c p.cc":  {Module: "a:p", File: "m/p.gcm", Imports: []string{"./y.h", "a:q", "b"}},
		"-MD -fmodule-mapper=map -S n.cc":  {Imports: []string{"./y.h"}},
		"-MD -fmodule-mapper=none -c p.cc": {},
	} {
		p := Parse(append(strings.Fields(args), "-std=c++20", "-fmodules-ts"), testDriver(t, "g++"), nil)
		why := p.FindModules(dir, nil)
		got := p.ModuleRules
		slices.Sort(got.Imports)
		if (why != "") != strings.Contains(args, "none") || got.Module != want.Module || got.File != want.File || !slices.Equal(got.Imports, want.Imports) {
			t.Errorf("%s: %q %+v, want %+v", args, why, got, want)
		}
		if _, ok := p.Rules(); ok {
			t.Errorf("%s: the rules count as a list of what is read", args)
		}
	}
	var many strings.Builder
	for i := range maxModules + 1 {
		fmt.Fprintf(&many, "import m%d;\n", i)
	}
	if err := os.WriteFile(filepath.Join(dir, "many.cc"), []byte(many.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	p := Parse(strings.Fields("-std=c++20 -fmodules-ts -fmodule-mapper=map -MD -c many.cc"), testDriver(t, "g++"), nil)
	if p.FindModules(dir, nil) == "" {
		t.Error("too many imports are taken")
	}
}
