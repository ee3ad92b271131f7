package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadsHeader(t *testing.T) {
	for _, text := range []string{
		"#pragma GCC pch_preprocess \"x\"\n", "# pragma GCC pch_pre\\\nprocess \"x\"", "p\\\nch_preprocess", "pch_\\ \t\npreprocess", "pch_\\\r\npreprocess",
		"p\\\nc\\\nh\\\n_\\\np\\\nr\\\ne\\\np\\\nr\\\no\\\nc\\\ne\\\ns\\\ns", "pch_??/\npreprocess", "pch_preproces\\\n\\\ns", "ppch_\\\npreprocess",
		"_Pragma(\"GCC pch_preprocess \\\"x\\\"\")",
	} {
		if !LoadsHeader([]byte(text)) {
			t.Errorf("%q loads nothing", text)
		}
	}
	for _, text := range []string{"", "\n", "\\\n", "pch_\npreprocess", "pch_\\\n\npreprocess", "pch_preproces\\\n", "pch\\\n preprocess", "#pragma GCC poison x\n", "p\\", "??/\n"} {
		if LoadsHeader([]byte(text)) {
			t.Errorf("%q loads a header", text)
		}
	}
}

// TestGccLoadsSpliced: gcc does put the word together in the text that keeps its macros,
// so looking for it whole is not enough.
func TestGccLoadsSpliced(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc here")
	}
	dir := t.TempDir()
	for _, text := range []string{"#pragma GCC pch_preprocess \"none\"\n", "#pragma GCC pch_\\\npre\\ \nprocess \"none\"\n"} {
		if !LoadsHeader([]byte(text)) {
			t.Errorf("%q loads nothing", text)
		}
		must(t, os.WriteFile(filepath.Join(dir, "a.i"), []byte(text), 0o666))
		cmd := exec.Command(gcc, "-fpreprocessed", "-fdirectives-only", "-x", "c", "-c", "a.i")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "none: ") {
			t.Errorf("gcc on %q: %v: %s; want that it looks for the file", text, err, out)
		}
	}
}

func FuzzLoadsHeader(f *testing.F) {
	f.Add([]byte("pch_\\\npreprocess"))
	f.Fuzz(func(t *testing.T, text []byte) {
		joined := strings.ReplaceAll(string(text), "\\\n", "")
		if strings.Contains(joined, loader) && !LoadsHeader(text) {
			t.Errorf("%q loads nothing", text)
		}
	})
}
