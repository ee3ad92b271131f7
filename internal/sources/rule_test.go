package sources

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	for rule, want := range map[string][]string{
		"a.o: a.c\n":                          {"a.c"},
		"a.o: a.c b.h \\\n c.h \\\n  d/e.h\n": {"a.c", "b.h", "c.h", "d/e.h"},
		"a.o: a.c a.h a.h\n":                  {"a.c", "a.h"},
		"a\\ b.o: a\\ b.c x\\\ty.h\n":         {"a b.c", "x\ty.h"},
		"a.o: a.c \\\n d\\\\\\ e/h:1.h\n":     {"a.c", "d\\ e/h:1.h"},
		"x$$y\\ \\#1.o: x$$y\\ \\#1.c\n":      {"x$y #1.c"},
		"a:b.o: a:b.c\n":                      {"a:b.c"},
		"a.o: \\\n a.c\n":                     {"a.c"},
		"a.o: a\\b.c a\\\\#.h end\\\\ b.h\n":  {"a\\b.c", "a\\#.h", "end\\", "b.h"},
		"é.o: é.c\n":                          {"é.c"},
		"":                                    nil,
		"a.o: a.c":                            nil,
		"a.o:\n":                              nil,
		"a.o\n":                               nil,
		"a.o: a.c\nb.o: b.c\n":                nil,
		"a.o: new\nline.c\n":                  nil,
		"a.o: a.c new\\\nline.h\n":            nil,
		"a.o: $x.c\n":                         nil,
		"a.o: a.c#\n":                         nil,
		"a.o: a.c\x00\n":                      nil,
		"a.o: a.c \\\n\n":                     {"a.c"},
		"long.o: " + strings.Repeat("x", 5000) + "\n": {strings.Repeat("x", 5000)},
	} {
		got, err := ParseRule([]byte(rule))
		if want == nil != errors.Is(err, ErrRule) || !slices.Equal(got, want) {
			t.Errorf("%.60q: %q, %v; want %q", rule, got, err, want)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add([]byte("a\\ b.o: a\\ b.c \\\n c$$.h\n"))
	f.Fuzz(func(t *testing.T, rule []byte) {
		names, err := ParseRule(rule)
		if (err == nil) != (len(names) > 0) || slices.Contains(names, "") {
			t.Errorf("%q: %q, %v", rule, names, err)
		}
	})
}

// TestRulesOfRealCompilers: what gcc and clang write for odd names is read as these
// names, or refused; never as others.
func TestRulesOfRealCompilers(t *testing.T) {
	odd := []string{"plain.h", "a b.h", "x$y.h", "#1.h", "h:1.h", "t\tb.h", "é.h", "'q'.h", "end\\.h", "a\\ b.h", "n\nl.h", "%.h", "*.h", "a\\#b.h", "two  spaces.h", "(p).h"}
	for _, name := range []string{"gcc", "gcc-11", "clang", "clang-19"} {
		cc, err := exec.LookPath(name)
		if err != nil {
			t.Logf("%s is not installed", name)
			continue
		}
		for _, header := range odd {
			dir := t.TempDir()
			source := strings.TrimSuffix(header, ".h") + ".c"
			write(t, filepath.Join(dir, source), "int x;\n")
			write(t, filepath.Join(dir, header), "int y;\n")
			cmd := exec.Command(cc, "-M", "-include", header, source)
			cmd.Dir = dir
			rule, err := cmd.Output()
			if err != nil {
				continue // clang takes a backslash for a slash
			}
			got, err := ParseRule(rule)
			if err != nil {
				if !strings.ContainsAny(header, "\n") {
					t.Errorf("%s: %q: %v in %q", name, header, err, rule)
				}
				continue
			}
			for _, n := range got {
				if _, err := os.Stat(filepath.Join(dir, n)); err == nil && n != source && n != header {
					t.Errorf("%s: %q is read as %q", name, header, got)
				}
			}
			if !slices.Contains(got, source) && !strings.ContainsAny(header, "\t\\") {
				t.Errorf("%s: no %q in %q, read from %q", name, source, got, rule)
			}
		}
	}
}

// TestParseRules: what a compile writes is read, with the rules of -MP behind it; anything else is not.
func TestParseRules(t *testing.T) {
	for text, want := range map[string]string{
		"x.o: x.c a.h\n":                     "x.c a.h",
		"x.o y.o: x.c \\\n a.h\n":            "x.c a.h",
		"x.o: x.c a.h\na.h:\n":               "x.c a.h",
		"x.o: x.c a.h\n\na.h:\n\nb\\ c.h:\n": "x.c a.h",
		"x.o: x.c a.h\na.h:":                 "",
		"x.o: x.c a.h":                       "",
		"x.o: x.c a.h\nb.h\n":                "",
		"x.o: x.c a.h\nb.h c.h\nb.h:\n":      "",
		"x.o: x.c a.h\nb.h: c.h\n":           "",
		"x.o: x.c a.h\n\t.h\n":               "",
		"x.o: x.c a.h\\\n":                   "",
		"x.o: x.c \\\n":                      "",
		"x.o: x.c\\\na.h\n":                  "",
		"\n":                                 "",
		"":                                   "",
	} {
		got, err := ParseRules([]byte(text))
		if (err != nil) != (want == "") || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}
