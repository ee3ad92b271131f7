package psk

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, want string // want: in the error; empty: none
	}{
		{write("good", keyA+"\n", 0o600), ""},
		{write("readonly", keyA, 0o400), ""},
		{write("two", keyA+"\n"+keyB+"\n", 0o600), ""},
		{write("group", keyA, 0o640), "chmod 600 "},
		{write("other", keyA, 0o604), "(mode 0604): chmod 600 "},
		{write("writable", keyA, 0o602), "chmod 600 "},
		{write("empty", "", 0o600), "is empty"},
		{write("line", "\n", 0o600), "is empty"},
		{write("short", keyA[:31]+"\n", 0o600), "31 characters (line 1): at least 32"},
		{write("second", keyA+"\nshort\n", 0o600), "5 characters (line 2)"},
		{write("three", keyA+"\n"+keyA+"\n"+keyA, 0o600), "3 lines"},
		{write("large", strings.Repeat(keyA, 200), 0o600), "8000 bytes"},
		{dir, "is a directory"},
		{fifo, "no ordinary file"},
		{filepath.Join(dir, "none"), "there is no "},
	} {
		k, err := Load(c.path)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.path, err)
		case c.want != "" && err == nil:
			t.Errorf("%s: taken, want an error with %q", c.path, c.want)
		case c.want != "" && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v; want one line with the name and %q", c.path, err, c.want)
		case err != nil && strings.Contains(err.Error(), "thirty-two"):
			t.Errorf("%s: the error shows the key: %v", c.path, err)
		case err == nil && (k == nil || len(k.all) == 0):
			t.Errorf("%s: no key", c.path)
		}
	}
}

// TestLoadUnreadable: the error says which user has to do what.
func TestLoadUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs an ordinary user: root can read everything")
	}
	path := filepath.Join(t.TempDir(), "psk")
	if err := os.WriteFile(path, []byte(keyA), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "cannot be read by user") {
		t.Errorf("error is %v", err)
	}
}

// TestLoadCredential: what systemd hands to a service is readable for its group, by
// the look of it.
func TestLoadCredential(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a credential belongs to root")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "psk")
	if err := os.WriteFile(path, []byte(keyA), 0o600); err != nil {
		t.Fatal(err)
	}
	try := func(mode os.FileMode, uid int) error {
		if err := os.Chown(path, uid, -1); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		return err
	}
	if err := try(0o440, 0); err == nil {
		t.Error("outside of the credentials' directory 0440 was taken")
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir+"/")
	if err := try(0o440, 0); err != nil {
		t.Errorf("a credential: %v", err)
	}
	if err := try(0o444, 0); err == nil {
		t.Error("a credential that all can read was taken")
	}
	if err := try(0o640, 0); err == nil {
		t.Error("a credential that can be written was taken")
	}
	if err := try(0o440, 65534); err == nil {
		t.Error("a credential of somebody else's was taken")
	}
}
