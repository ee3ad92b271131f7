package compile

import (
	"strings"
	"testing"
)

// TestIncluders: wherever clang may look for headers as Microsoft's compiler does, the command does not say what it reads.
func TestIncluders(t *testing.T) {
	for line, want := range map[string]bool{
		"-c a.c":                                            false,
		"-fms-compatibility -c a.c":                         true,
		"-Xclang -fms-compatibility -c a.c":                 true,
		"-fms-extensions -c a.c":                            false,
		"-fms-compatibility-version=19 -c a.c":              false,
		"--target=x86_64-pc-windows-msvc -c a.c":            true,
		"-target aarch64-pc-win32 -c a.c":                   true,
		"--target=x86_64-pc-windows -c a.c":                 true,
		"--target=x86_64-unknown-uefi -c a.c":               true,
		"--target=i686-pc-windows-gnu -c a.c":               false,
		"--target=x86_64-w64-mingw32 -c a.c":                false,
		"--target=aarch64-linux-gnu -c a.c":                 false,
		"--target=aarch64-linux-gnu -fms-compatibility a.c": true,
	} {
		p := Parse(strings.Fields(line), Driver{Family: Clang}, nil)
		if got := p.Includers(); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
		if _, ok := p.Search(nil); ok == want {
			t.Errorf("%s: the search is known: %v", line, ok)
		}
	}
	if p := Parse([]string{"-c", "a.c"}, Driver{Family: GCC}, nil); p.Includers() {
		t.Error("gcc looks beside the file that asks alone")
	}
}
