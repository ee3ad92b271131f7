package driver

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestParseSearch: the directories of the list are where the compiler's own
// headers are.
func TestParseSearch(t *testing.T) {
	for _, name := range []string{"gcc", "clang"} {
		cc, err := exec.LookPath(name)
		if err != nil {
			t.Logf("%s is not installed", name)
			continue
		}
		for lang, header := range map[string]string{"c": "stdio.h", "c++": "vector"} {
			cmd := exec.Command(cc, SearchWords(lang)...)
			cmd.Env = append(os.Environ(), "LC_ALL=C")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatal(err)
			}
			dirs := ParseSearch(string(out))
			if !slices.ContainsFunc(dirs, func(d string) bool {
				_, err := os.Stat(filepath.Join(d, header))
				return err == nil
			}) {
				t.Errorf("%s -x %s: no %s in %q", name, lang, header, dirs)
			}
		}
	}
	for text, want := range map[string]int{
		"": -1,
		"#include \"...\" search starts here:\n#include <...> search starts here:\n":                                         -1,
		"#include \"...\" search starts here:\n#include <...> search starts here:\nEnd of search list.\n":                    0,
		"x\n#include \"...\" search starts here:\n a b\n#include <...> search starts here:\n /c\nEnd of search list.\n# 1\n": 2,
		// Of these it is not the name of a header that says which file is read.
		"#include \"...\" search starts here:\n#include <...> search starts here:\n f (framework directory)\n /c\nEnd of search list.\n": -1,
		"#include \"...\" search starts here:\n m.hmap (headermap)\n#include <...> search starts here:\n /c\nEnd of search list.\n":      -1,
	} {
		dirs := ParseSearch(text)
		if n := len(dirs); n != max(want, 0) || (dirs == nil) != (want < 0) {
			t.Errorf("%q: %q", text, dirs)
		}
	}
}

// TestParseInstallations: what clang says of a gcc, and of directories that it has twice or not at all.
func TestParseInstallations(t *testing.T) {
	text := `Debian clang version 14.0.6
Target: x86_64-pc-linux-gnu
InstalledDir: /usr/bin
Found candidate GCC installation: root/usr/lib/gcc/x86_64-linux-gnu/11
Found candidate GCC installation: root/usr/lib/gcc/x86_64-linux-gnu/12
Selected GCC installation: root/usr/lib/gcc/x86_64-linux-gnu/12
ignoring nonexistent directory "root/include"
ignoring duplicate directory "root/usr/include"
  as it is a non-system directory that duplicates a system directory
`
	target, dirs := ParseInstallations(text)
	if want := []string{"root/usr/lib/gcc/x86_64-linux-gnu/11", "root/usr/lib/gcc/x86_64-linux-gnu/12"}; target != "x86_64-pc-linux-gnu" || !slices.Equal(dirs, want) {
		t.Errorf("%q, %q; want %q", target, dirs, want)
	}
	if missing, twice := ParseMissing(text), ParseTwice(text); !slices.Equal(missing, []string{"root/include"}) || !slices.Equal(twice, []string{"root/usr/include"}) {
		t.Errorf("missing %q, twice %q", missing, twice)
	}
	if target, dirs := ParseInstallations(""); target != "" || dirs != nil {
		t.Errorf("of nothing: %q, %q", target, dirs)
	}
}
