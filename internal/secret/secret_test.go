package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	getenv := func(name string) string { return map[string]string{"PASS": "from-variable\n"}[name] }
	for _, c := range []struct{ file, want, err string }{
		{"", "from-variable", ""},
		{write("good", " s3cret word \nmore\n", 0o600), "s3cret word", ""},
		{write("open", "s3cret", 0o644), "", "(mode 0644): chmod 600 "},
		{write("empty", " \n", 0o600), "", "is empty"},
		{write("long", strings.Repeat("x", maxFile+1), 0o600), "", "longer"},
		{filepath.Join(dir, "none"), "", "no such file"},
		{dir, "", "is a directory"},
	} {
		s, err := Find(c.file, "PASS", getenv)
		if s.Reveal() != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %q, %v; want %q, %q", c.file, s.Reveal(), err, c.want, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	if s, err := Find("", "OTHER", getenv); s.Set() || err != nil {
		t.Errorf("no secret: %v, %v", s, err)
	}
}

// TestHidden: no way of printing shows a secret, nor does an error that repeats it.
func TestHidden(t *testing.T) {
	s := New("s3cret")
	if text := fmt.Sprintf("%v %s %+v %#v %v", s, s, s, s, struct{ S Secret }{s}); strings.Contains(text, "s3cret") {
		t.Error(text)
	}
	err := s.Hide(fmt.Errorf("unknown command AUTH s3cret: %w", fs.ErrPermission))
	if strings.Contains(err.Error(), "s3cret") || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if err := (Secret{}).Hide(fs.ErrExist); err != fs.ErrExist {
		t.Errorf("no secret: %v", err)
	}
}
