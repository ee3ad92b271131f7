package compile

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/unit"
)

var tidyDriver = Driver{Family: Clang, Tidy: true}

func TestTidyIsKnown(t *testing.T) {
	for _, c := range []struct{ argv0, real string }{{"clang-tidy", "/usr/lib/llvm-14/bin/clang-tidy"}, {"x", "/usr/bin/clang-tidy-16"}} {
		if d, ok := DriverOf(c.argv0, c.real); !ok || d != tidyDriver {
			t.Errorf("%s: %v, %v", c.real, d, ok)
		}
	}
	if _, ok := DriverOf("clang-tidy-diff.py", "/usr/bin/clang-tidy-diff-14.py"); ok {
		t.Error("a script counts as clang-tidy")
	}
}

// TestTidyPlaces: which commands of clang-tidy run elsewhere, and why others do not.
func TestTidyPlaces(t *testing.T) {
	for line, want := range map[string]string{
		"a.c --":                            "",
		"-checks=* --quiet a.c -- -Wall":    "",
		"--checks=-*,x a.c -- cc -c a.c":    "",
		"-p build a.c -- -I.":               "",
		"--p=build --use-color=true a.c --": "",
		"--config-file f a.c --":            "",
		"--export-fixes=x/f.yaml --header-filter=.* --line-filter=[] --warnings-as-errors=* a.c -- cc -O2 -g -MD -MT a.o -MF a.o.d -o a.o -c a.c": "",
		"--extra-arg-before=--driver-mode=g++ a.c -- c++ -c a.c":                                                                                  "",
		"--extra-arg=-DX --system-headers a.c --":                                                                                                 "",
		"--config={Checks:*} a.c --":                                                                                                              "",
		"a.c":                                                                                                                                     "not-reproducible:compile-commands",
		"-p build a.c":                                                                                                                            "not-reproducible:compile-commands",
		"--":                                                                                                                                      "not-reproducible:several-sources",
		"a.c b.c --":                                                                                                                              "not-reproducible:several-sources",
		"a.c -- cc -c b.c":                                                                                                                        "not-reproducible:several-sources",
		"a.c -- cc -c a.c b.c":                                                                                                                    "not-reproducible:several-sources",
		"a.c -- -Wl,x -- b":                                                                                                                       "unknown-option:--",
		"@list a.c --":                                                                                                                            "not-reproducible:response-file",
		"a.c -- @list":                                                                                                                            "not-reproducible:response-file",
		"--extra-arg=@list a.c --":                                                                                                                "not-reproducible:response-file",
		"- --":                                                                                                                                    "stdin",
		"--fix a.c --":                                                                                                                            "not-reproducible:fix",
		"-fix-errors a.c --":                                                                                                                      "not-reproducible:fix",
		"--list-checks":                                                                                                                           "query",
		"--dump-config a.c --":                                                                                                                    "query",
		"--load=x.so a.c --":                                                                                                                      "not-reproducible:plugin",
		"--vfsoverlay=x a.c --":                                                                                                                   "unknown-option:--vfsoverlay",
		"--enable-check-profile a.c --":                                                                                                           "unknown-option:--enable-check-profile",
		"--format-style=file a.c --":                                                                                                              "unknown-option:--format-style",
		"--checks x a.c --":                                                                                                                       "unknown-option:--checks",
		"--export-fixes=f.o a.c --":                                                                                                               "unknown-option:--export-fixes",
		"--export-fixes=/dev/x.yaml a.c --":                                                                                                       "unknown-option:--export-fixes",
		"--config={ExtraArgs:[-fplugin=x]} a.c --":                                                                                                "not-reproducible:clang-tidy",
		"--extra-arg-before=--driver-mode=cl a.c --":                                                                                              "unknown-option:--driver-mode",
		"a.c -- -march=native":                                                                                                                    "not-reproducible:clang-tidy",
		"a.c -- --sysroot=/x":                                                                                                                     "not-reproducible:clang-tidy",
		"a.c -- -fplugin=x.so":                                                                                                                    "not-reproducible:plugin",
		"a.c -- -Xclang -load -Xclang x.so":                                                                                                       "unknown-option:-load",
		"a.c -- -save-temps":                                                                                                                      "unknown-option:-save-temps",
		"a.c -- -Wp,-MD,x.d":                                                                                                                      "unknown-option:-Wp,-MD,x.d",
		"a.c -- -MT a.c":                                                                                                                          "not-reproducible:clang-tidy",
		"a.c -- -nonesuch":                                                                                                                        "unknown-option:-nonesuch",
		"a.i --":                                                                                                                                  "not-reproducible:clang-tidy",
		"a.s --":                                                                                                                                  "assembler",
		"a.h --":                                                                                                                                  "not-reproducible:pch",
		"a.o --":                                                                                                                                  "no-source",
	} {
		p := Parse(strings.Fields(line), tidyDriver, nil)
		if p.Local != (want != "") || p.Reason != want {
			t.Errorf("%s: local %v, %q, want %q", line, p.Local, p.Reason, want)
		}
	}
}

// TestTidyPlan: what the plan of a command says of it.
func TestTidyPlan(t *testing.T) {
	argv := strings.Fields("-checks=* --config-file=f --extra-arg-before=--driver-mode=g++ --extra-arg-before=-Ix --extra-arg=-DY --export-fixes=f.yaml s/a.c -- c++ -Iz -MD -MF d -o a.o -c s/a.c")
	p := Parse(argv, tidyDriver, nil)
	if p.Local || p.Source != "s/a.c" || p.Language != "c++" || !p.Syntax || p.Main() != "" || p.Text == "" || p.ConfigFile() != "f" || !slices.Equal(p.Whole(), argv) {
		t.Errorf("plan %+v", p)
	}
	if want := []unit.Output{{Kind: unit.OutputSide, Name: "f.yaml", Optional: true}}; !slices.Equal(p.Outputs, want) {
		t.Errorf("outputs %v", p.Outputs)
	}
	if want := strings.Fields("-Ix -Iz s/a.c -DY -fsyntax-only"); !slices.Equal(p.CompileWords(), want) {
		t.Errorf("compile %q, want %q", p.CompileWords(), want)
	}
	if s, ok := p.Search(nil); !ok || !slices.Equal(s.Angle, []string{"x", "z"}) {
		t.Errorf("search %+v, %v", s, ok)
	}
	if !slices.Contains(p.Inputs, "f") {
		t.Errorf("inputs %q", p.Inputs)
	}
	user := func(name string) (string, bool) { return "a b", name == "USER" }
	if p := Parse([]string{"a.c", "--"}, tidyDriver, user); p.Reason != "not-reproducible:environment" {
		t.Errorf("a user's name with a blank: %q", p.Reason)
	}
}

func TestModestTidyConfig(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "Checks: '*'\nHeaderFilterRegex: 'src/.*\\.h$'\n": true, "ExtraArgs: [-DX]": false, "{ExtraArgsBefore: [x]}": false,
		`"Extra\x41rgs": [x]`: false, "\"Extra\\\nArgs\": [x]": false, `"Extra\u0041rgs": [x]`: false,
		"CheckOptions: [{key: clang-analyzer-alpha.security.taint.TaintPropagation:Config, value: f}]": false,
	} {
		if got := ModestTidyConfig([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
