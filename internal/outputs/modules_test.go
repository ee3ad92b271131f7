package outputs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestModuleRules: names of the command's own modules are taken, and in gcc's lines only.
func TestModuleRules(t *testing.T) {
	const (
		head  = "x.o gcm.cache/B-p.gcm: x.cc x.h\n"
		lines = "x.o gcm.cache/B-p.gcm: A.c++m B:q.c++m ./k\\ \\#$$.h.c++m\n" +
			"B:p.c++m: gcm.cache/B-p.gcm\n.PHONY: B:p.c++m\ngcm.cache/B-p.gcm:| x.o\nCXX_IMPORTS += A.c++m B:q.c++m \\\n ./k\\ \\#$$.h.c++m\n"
	)
	later := strings.ReplaceAll(lines, ".c++m", ".c++-module") // gcc 15 and later
	m := modules.Rules{Module: "B:p", File: "gcm.cache/B-p.gcm", Imports: []string{"A", "B:q", "./k #$.h"}}
	target := func(w string) bool { return w == "x.o" }
	file := func(w string) bool { return slices.Contains([]string{"x.cc", "x.h", "A.c++m", "gcm.cache/A.gcm"}, w) }
	for text, want := range map[string]error{
		head + lines:            nil,
		head + "x.h:\n" + lines: nil,
		head + later:            nil,
		head + "B:p.c++-module p.c++-header-unit: gcm.cache/B-p.gcm\n.PHONY: B:p.c++-module p.c++-header-unit\n": nil,
		head + "B:p.c++-module q.c++-header-unit: gcm.cache/B-p.gcm\n":                                           ErrDoubt,
		head + "B:p.c++-module .c++-header-unit: gcm.cache/B-p.gcm\n":                                            ErrDoubt,
		head + "B:p.c++-module p.c++-header-unit x.h: gcm.cache/B-p.gcm\n":                                       ErrDoubt,
		head + "B:p.c++-module p.c++-header-unit: x.cc\n":                                                        ErrDoubt,
		head + "p.c++-header-unit: gcm.cache/B-p.gcm\n":                                                          ErrDoubt,
		head + ".PHONY: p.c++-header-unit\n":                                                                     ErrDoubt,
		head + "x.o: C.c++-module\n":                                                                             ErrDoubt,
		"x.o: x.cc\nx.o: A.c++m\nCXX_IMPORTS += A.c++m\n":                                                        nil,
		"x.o gcm.cache/B-p.gcm: A.c++m\n" + lines:                                                                nil, // a source of that name
		lines:                                                                     ErrDoubt,
		head + lines + "x.h:\n":                                                   ErrDoubt,
		head + lines + lines:                                                      ErrDoubt,
		head + lines + head:                                                       ErrDoubt,
		head + lines + "\trm -rf /\n":                                             ErrForged,
		head + "x.o: C.c++m\n":                                                    ErrDoubt,
		head + "x.o: B:q.c++m x.h\n":                                              ErrDoubt,
		head + "x.o: B:q.c++m clean\n":                                            ErrDoubt,
		head + "x.o: A.c++m $(shell evil)\n":                                      ErrForged,
		head + "x.cc: A.c++m\n":                                                   ErrDoubt,
		head + "x.cc gcm.cache/B-p.gcm: A.c++m\n":                                 ErrDoubt,
		head + "gcm.cache/B-p.gcm: A.c++m\n":                                      ErrDoubt,
		head + "gcm.cache/B-p.gcm x.o: A.c++m\n":                                  ErrDoubt,
		head + "gcm.cache/A.gcm:\n":                                               ErrDoubt,
		"gcm.cache/B-p.gcm: x.cc\n":                                               ErrDoubt,
		"x.o gcm.cache/A.gcm: x.cc\n":                                             ErrDoubt,
		head + "B:p.c++m: x.cc\n":                                                 ErrDoubt,
		head + "B:p.c++m: gcm.cache/A.gcm\n":                                      ErrDoubt,
		head + "B:p.c++m: gcm.cache/B-p.gcm x.h\n":                                ErrDoubt,
		head + "B:p.c++m:\n":                                                      ErrDoubt,
		head + "A.c++m: gcm.cache/A.gcm\n":                                        ErrDoubt,
		head + "A.c++m: gcm.cache/B-p.gcm\n":                                      ErrDoubt,
		head + "A.c++m:\n":                                                        ErrDoubt,
		head + "A.c++m:| gcm.cache/B-p.gcm\n":                                     ErrDoubt,
		head + "B:p.c++m:| x.o\n":                                                 ErrDoubt,
		head + ".PHONY: x.o\n":                                                    ErrDoubt,
		head + ".PHONY: A.c++m\n":                                                 ErrDoubt,
		head + ".PHONY: B:p.c++m x.cc\n":                                          ErrDoubt,
		head + ".PHONY B:p.c++m: gcm.cache/B-p.gcm\n":                             ErrDoubt,
		head + ".PHONY:\n":                                                        ErrDoubt,
		head + ".SILENT: B:p.c++m\n":                                              ErrDoubt,
		head + "gcm.cache/B-p.gcm:| x.cc\n":                                       ErrDoubt,
		head + "gcm.cache/B-p.gcm:| x.o x.o\n":                                    ErrDoubt,
		head + "gcm.cache/B-p.gcm:| x.o; evil\n":                                  ErrDoubt,
		head + "gcm.cache/B-p.gcm:| $(shell evil)\n":                              ErrForged,
		head + "gcm.cache/B-p.gcm:|\n":                                            ErrDoubt,
		head + "gcm.cache/B-p.gcm:| x.o\nB:p.c++m: gcm.cache/B-p.gcm\n":           ErrDoubt, // out of order
		head + "CXX_IMPORTS += A.c++m\nCXX_IMPORTS += A.c++m\n":                   ErrDoubt,
		head + "CXX_IMPORTS += C.c++m\n":                                          ErrDoubt,
		head + "CXX_IMPORTS += A\n":                                               ErrDoubt,
		head + "CXX_IMPORTS += $(shell evil)\n":                                   ErrForged,
		head + "CXX_IMPORTS += A.c++m \\\n$(shell evil)\n":                        ErrForged,
		head + "CXX_IMPORTS += \n":                                                ErrDoubt,
		head + "CXX_IMPORTS := A.c++m\n":                                          ErrDoubt,
		head + "CXX_IMPORTS = A.c++m\n":                                           ErrDoubt,
		head + "CXX_IMPORTS != A.c++m\n":                                          ErrDoubt,
		head + "CXX_IMPORTS += A.c++m: x.cc\n":                                    ErrDoubt,
		head + "override CXX_IMPORTS += A.c++m\n":                                 ErrDoubt,
		head + "x.o: CXX_IMPORTS += A.c++m\n":                                     ErrDoubt,
		head + "CXXFLAGS += A.c++m\n":                                             ErrDoubt,
		head + "include A.c++m\n":                                                 ErrForged,
		head + "-include A.c++m: gcm.cache/B-p.gcm\n":                             ErrDoubt,
		head + "x.o: ./k\\ \\#$.h.c++m\n":                                         ErrForged,
		head + "x.o: ./k \\#$$.h.c++m\n":                                          ErrDoubt,
		"x.o: x.cc | A.c++m\n":                                                    ErrDoubt,
		"x.o: A.c++m x.cc\nx.o: B:q.c++m\n.PHONY: B:p.c++m\ngcm.cache/B-p.gcm:\n": ErrDoubt,
	} {
		if err := CheckRules(text, m, target, file); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	for _, text := range []string{head, "x.o: x.cc\nx.o: A.c++m B:q.c++m\n", "x.o: x.cc\nCXX_IMPORTS += A.c++m\n", "x.o: x.cc\n:| x.o\n", "x.o: x.cc\n.c++m:\n", "x.o: x.cc\n.PHONY: .c++m\n"} {
		if err := CheckRules(text, modules.Rules{}, target, file); err == nil {
			t.Errorf("without modules, %q is taken", text)
		}
	}
}

// TestCompilersModuleRules: what gcc writes for modules is taken, whatever their names and those of headers.
func TestCompilersModuleRules(t *testing.T) {
	for _, cxx := range []string{"g++-11", "g++-12", "g++-14", "g++-15", "g++-16"} {
		if _, err := exec.LookPath(cxx); err != nil && cxx > "g++-12" {
			continue
		} else if err != nil {
			need.Skipf(t, need.Tools, "no %s", cxx)
		}
		dir := t.TempDir()
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run := func(args ...string) string {
			cmd := exec.Command(cxx, append([]string{"-std=c++20", "-fmodules-ts"}, args...)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s %v: %v\n%s", cxx, args, err, out)
			}
			return string(out)
		}
		long := "m" + strings.Repeat("o", 80)
		write("k #$.h", "inline int k() { return 1; }\n")
		write("x.h", "\n")
		write("map", "$root a b\nMap $#.gcm\n")
		run("-fmodule-header", "-x", "c++-header", "k #$.h")
		imported := []string{"A", "a.c", "a.c:p", long, "./k #$.h"}
		for _, c := range []struct{ module, text, args string }{
			{"A", "export module A;\nexport int a();\n", ""},
			{"a.c:p", "export module a.c:p;\nimport A;\nexport int p();\n", ""},
			{"a.c", "export module a.c;\nexport import :p;\nimport A;\n#include \"x.h\"\nexport int c();\n", "-MP"},
			{"", "module a.c;\n", "-MP"},
			{long, "module;\n#include \"k #$.h\"\nexport module " + long + ";\nimport a.c;\nexport int l();\n", "-MT|a$b c.o|-MQ|q$z w|-MT|$(X)"},
			{"", "import a.c;\nimport A;\nimport " + long + ";\nimport \"k #$.h\";\nint x;\n", "-MQ|q$z w|-MP"},
			{"m$y.n", "export module m$y.n;\n", ""}, // gcc does not read it again
			{"Map", "export module Map;\n", "-fmodule-mapper=map"},
		} {
			write("u.cc", c.text)
			args := []string{"-MMD", "-MF", "-", "-c", "u.cc", "-o", "u.o"}
			if c.args != "" {
				args = append(args, strings.Split(c.args, "|")...)
			}
			rules := run(args...)
			if strings.HasPrefix(cxx, "g++-1") && cxx >= "g++-15" && !strings.Contains(rules, ".c++-module") && c.module != "" {
				t.Errorf("%s %s: names without .c++-module:\n%s", cxx, args, rules)
			}
			m := modules.Rules{Module: c.module, Imports: imported}
			if c.module != "" {
				m.File, _ = modules.Default().File(c.module)
			}
			if c.module == "Map" {
				m.File = "a b/$#.gcm"
			}
			targets := Targets(args, "u.o", "u.cc")
			err := CheckRules(rules, m, func(w string) bool { return targets[w] }, func(name string) bool {
				return name == "u.cc" || name == "x.h" || cxx >= "g++-15" && (strings.HasSuffix(name, ".gcm") || name == "map") // these are files of the job
			})
			if err != nil {
				t.Errorf("%s %s: %v\n%s", cxx, args, err, rules)
			}
			if c.module != "" && !strings.Contains(rules, ".PHONY") {
				t.Errorf("%s %s: no rules about modules:\n%s", cxx, args, rules)
			}
		}
	}
}

// TestSameRules: the order of imports does not count, all else does.
func TestSameRules(t *testing.T) {
	const x = "x.o: x.cc x.h\nx.o: A.c++m B:p.c++m C.c++m\nCXX_IMPORTS += A.c++m B:p.c++m C.c++m\n"
	for y, want := range map[string]bool{
		x: true,
		"x.o: x.cc x.h\nx.o: C.c++m A.c++m \\\n B:p.c++m\nCXX_IMPORTS += \\\n B:p.c++m A.c++m C.c++m\n": true,
		"x.o: x.h x.cc\nx.o: A.c++m B:p.c++m C.c++m\nCXX_IMPORTS += A.c++m B:p.c++m C.c++m\n":           false,
		"x.o: x.cc x.h\nx.o: A.c++m B:p.c++m\nCXX_IMPORTS += A.c++m B:p.c++m C.c++m\n":                  false,
		"x.o: x.cc x.h\nx.o: A.c++m B:p.c++m D.c++m\nCXX_IMPORTS += A.c++m B:p.c++m C.c++m\n":           false,
		"x.o: x.cc x.h\nx.o: A.c++m B:p.c++m C.c++m\n":                                                  false,
		x + "y:\n": false,
		"":         false,
	} {
		if got := SameRules([]byte(x), []byte(y)); got != want {
			t.Errorf("%q: %v, want %v", y, got, want)
		}
	}
}

// TestQuote: quote is the inverse of unquote.
func TestQuote(t *testing.T) {
	for name, want := range map[string]string{"a": "a", "a b": `a\ b`, `a\ b`: `a\\\ b`, `a\b`: `a\b`, "#$": `\#$$`, "a:b": "a:b"} {
		got := quote(name)
		if got != want || unquote(got) != name {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
