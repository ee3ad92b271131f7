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
	} {
		dirs := ParseSearch(text)
		if n := len(dirs); n != max(want, 0) || (dirs == nil) != (want < 0) {
			t.Errorf("%q: %q", text, dirs)
		}
	}
}
