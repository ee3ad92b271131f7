package textfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("text\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if text, info, err := Read(path, 5); err != nil || string(text) != "text\n" || info.Mode().Perm() != 0o640 {
		t.Errorf("Read = %q, %v, %v", text, info, err)
	}
	if _, _, err := Read(path, 4); err == nil || err.Error() != "longer than 4 bytes" {
		t.Errorf("of a long file: %v", err)
	}
	if _, _, err := Read(dir, 5); err == nil || err.Error() != "is a directory" {
		t.Errorf("of a directory: %v", err)
	}
	if _, _, err := Read(path+"x", 5); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), path) {
		t.Errorf("of no file: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(pipe, 5); err == nil || err.Error() != "is not a regular file" { // and it does not wait for a writer
		t.Errorf("of a pipe: %v", err)
	}
}

func TestStamp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s := Look(path); s != (Stamp{}) {
		t.Errorf("of no file: %+v", s)
	}
	write(path, "a")
	first := Look(path)
	if first == (Stamp{}) || first != Look(path) {
		t.Error("a file that nobody touched is another one")
	}
	write(filepath.Join(dir, "other"), "a")
	if err := os.Chtimes(filepath.Join(dir, "other"), time.Time{}, time.Unix(0, first.written)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "other"), path); err != nil {
		t.Fatal(err)
	}
	if Look(path) == first {
		t.Error("a file of the same size and time that was renamed over it is not noticed")
	}
	if s := Look(path); os.Chmod(path, 0o400) != nil || Look(path) == s {
		t.Error("another mode is not noticed")
	}
}

// TestSettled: what changes at every look is not waited for without end.
func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		same := func(a, b int) bool { return a == b }
		if got := Settled(func() int { looks++; return min(looks, 3) }, same); got != 3 || looks != 4 {
			t.Errorf("%d after %d looks, want the third, seen twice", got, looks)
		}
		looks = 0
		if got := Settled(func() int { looks++; return looks }, same); got != looks || looks > 2*attempts {
			t.Errorf("%d after %d looks", got, looks)
		}
	})
}
