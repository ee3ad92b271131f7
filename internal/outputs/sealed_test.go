package outputs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestSealed: objects of real compilers whose names can be read are told from those whose names cannot.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "a.c")
	// Debug information is compressed only where that makes it shorter.
	if err := os.WriteFile(source, []byte("struct s { int a_rather_long_name, "+strings.Repeat("another", 40)+"; } s;\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{
		"gcc -c": false, "gcc -g -c": false, "gcc -g -gz -c": true, "gcc -g -Wa,--compress-debug-sections -c": true, "gcc -flto -c": true, "gcc -g -S": false,
		"clang -c": false, "clang -g -c": false, "clang -g -gz -c": true, "clang -flto -c": true, "clang -emit-llvm -c": true, "clang --target=aarch64-linux-gnu -g -c": false,
	} {
		words := strings.Fields(line)
		if _, err := exec.LookPath(words[0]); err != nil {
			need.Skipf(t, need.Tools, "no %s", words[0])
		}
		object := filepath.Join(dir, "a.o")
		if out, err := exec.Command(words[0], append(words[1:], source, "-o", object)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		b, err := os.ReadFile(object)
		if err != nil {
			t.Fatal(err)
		}
		if Sealed(b) != want {
			t.Errorf("%s: %v", line, !want)
		}
	}
	for text, want := range map[string]bool{"": false, "text": false, "\x7fELF and no object": true, "\x1f\x8b\x08": true} {
		if Sealed([]byte(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
