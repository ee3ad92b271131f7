//go:build amd64 || arm64

package lookups

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// What a compiler looks for in vain is reported, by __has_include too, and what its children look for.
func TestRunSeesWhatIsAbsent(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a.c": "#if __has_include(\"absent.h\")\n#endif\n#include \"i/b.h\"\n", "i/b.h": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names, ws, err := Run(t.Context(), sh, []string{"sh", "-c", "gcc -E -o /dev/null -I '" + dir + "/void' a.c && exit 3"},
		syscall.ProcAttr{Dir: dir, Env: os.Environ()})
	if errors.Is(err, ErrUnseen) {
		need.Skipf(t, need.Sandbox, "%v", err)
	}
	if err != nil || ws.ExitStatus() != 3 {
		t.Fatalf("status %v, error %v; want 3", ws.ExitStatus(), err)
	}
	for _, want := range []string{dir + "/a.c", dir + "/absent.h", dir + "/i/b.h", dir + "/void"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %d names", want, len(names))
		}
	}
}

// A call about a descriptor that is closed says nothing of names, and ends no watch.
func TestRunWithClosedDescriptors(t *testing.T) {
	dir := t.TempDir()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal(err)
	}
	names, ws, err := Run(t.Context(), gcc, []string{"gcc", "-E", "-o", "/dev/null", "-x", "c", "/dev/null"}, syscall.ProcAttr{Dir: dir, Env: os.Environ()})
	if errors.Is(err, ErrUnseen) && len(names) == 0 {
		need.Skipf(t, need.Sandbox, "%v", err)
	}
	if err != nil || ws.ExitStatus() != 0 || !slices.Contains(names, "/dev/null") {
		t.Errorf("status %v, error %v, %d names", ws.ExitStatus(), err, len(names))
	}
}

func TestRunWithoutProgram(t *testing.T) {
	if _, _, err := Run(t.Context(), "/nonexistent", []string{"x"}, syscall.ProcAttr{}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("error %v, want ENOENT", err)
	}
}
