package compile

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestWithDatabase: which commands of clang-tidy take which flags from a database.
func TestWithDatabase(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	put := func(name, text string) {
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(command string) string {
		return `[{"directory": "DIR", "file": "DIR/s/a.c", "command": "` + command + `"}]`
	}
	for _, name := range []string{"s", "none", "flags", "far"} {
		if err := os.Mkdir(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	put("compile_commands.json", entry("cc -DX -c DIR/s/a.c"))
	put("flags/compile_commands.json", entry("cc -DX -c DIR/s/a.c"))
	put("flags/compile_flags.txt", "-DX")
	put("far/compile_commands.json", `[{"directory": "DIR/far", "file": "DIR/s/a.c", "command": "cc -c DIR/s/a.c"}]`)
	for line, want := range map[string]string{
		"s/a.c":                        "-DX -c",
		"-p . --quiet s/a.c":           "-DX -c",
		"--p=DIR DIR/s/a.c":            "-DX -c",
		"s/a.c -- -DY":                 "",
		"./s/a.c":                      "",
		"s/../s/a.c":                   "",
		"s/b.c":                        "",
		"s/a.c s/a.c":                  "",
		"-p none s/a.c":                "",
		"-p flags s/a.c":               "",
		"-p far s/a.c":                 "",
		"-p . -p . s/a.c":              "",
		"-p= s/a.c":                    "",
		"--fix s/a.c":                  "",
		"s/a.c @x":                     "",
		"--vfsoverlay=x.yaml -p . s/a": "",
	} {
		argv := strings.Fields(strings.ReplaceAll(line, "DIR", dir))
		got := WithDatabase(argv, dir)
		whole := argv
		if want != "" {
			whole = slices.Concat(argv, []string{"--"}, strings.Fields(want))
		}
		if !slices.Equal(got, whole) {
			t.Errorf("%s: %q, want %q", line, got, whole)
		}
	}
	for command, want := range map[string]string{
		"/usr/bin/c++ -Ix -o a.o -c DIR/s/a.c":    "-ccc-install-dir /usr/bin --driver-mode=g++ -Ix -o a.o -c",
		"clang-14 -c DIR/s/a.c -o a.o":            "-c -o a.o",
		"g++-12.1 DIR/s/a.c":                      "--driver-mode=g++",
		"/usr/bin/x86_64-linux-gnu-gcc DIR/s/a.c": "not",
		"/opt/bin/cc DIR/s/a.c":                   "not",
		"bin/cc DIR/s/a.c":                        "not",
		"cc- DIR/s/a.c":                           "not",
		"ccache cc DIR/s/a.c":                     "not",
		"clang-cl DIR/s/a.c":                      "not",
		"cc s/a.c":                                "not",
		"cc DIR/s/a.c -x c++":                     "not",
		"cc DIR/s/a.c -DX":                        "not",
		"cc -Wl,-z,now DIR/s/a.c":                 "not",
		"cc -Wa,-x DIR/s/a.c":                     "not",
		"cc @x DIR/s/a.c":                         "not",
		"DIR/s/a.c":                               "not",
	} {
		put("compile_commands.json", entry(command))
		argv := []string{"s/a.c"}
		whole := argv
		if want != "not" {
			whole = append([]string{"s/a.c", "--"}, strings.Fields(want)...)
		}
		if got := WithDatabase(argv, dir); !slices.Equal(got, whole) {
			t.Errorf("%s: %q, want %q", command, got, whole)
		}
	}
	// The working directory may be known by another name.
	put("compile_commands.json", entry("cc -DX -c DIR/s/a.c"))
	if got := WithDatabase([]string{dir + "/s/a.c"}, dir+"x"); len(got) != 1 {
		t.Errorf("in another directory: %q", got)
	}
}

// TestTidyInstalled: the driver may take itself for one in just one directory, and only clang-tidy's.
func TestTidyInstalled(t *testing.T) {
	p := Parse(strings.Fields("a.c -- -ccc-install-dir /usr/bin -Ix -c"), tidyDriver, nil)
	s, ok := p.Search(nil)
	if p.Local || !ok || !slices.Equal(s.Ask, []string{"-ccc-install-dir", "/usr/bin"}) {
		t.Errorf("%q, search %+v", p.Reason, s)
	}
	if want := []string{"-Ix", "a.c", "-fsyntax-only"}; !slices.Equal(p.CompileWords(), want) {
		t.Errorf("compile %q, want %q", p.CompileWords(), want)
	}
	for _, line := range []string{"a.c -- -ccc-install-dir /opt", "a.c -- -ccc-install-dir", "a.c -- -Ix -ccc-install-dir /usr/bin", "--extra-arg=-ccc-install-dir --extra-arg=/usr/bin a.c --",
		"a.c -- -ccc-install-dir /usr/bin -ccc-install-dir /usr/bin"} {
		if p := Parse(strings.Fields(line), tidyDriver, nil); !p.Local {
			t.Errorf("%s may run elsewhere", line)
		}
	}
	if p := Parse(strings.Fields("-ccc-install-dir /usr/bin -c a.c"), Driver{Family: Clang}, nil); !p.Local {
		t.Error("clang may run elsewhere")
	}
}
