package made

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// now is when the tests take place.
var now = time.Unix(1e9, 0)

// image writes an image, and returns an entry for it that was used some time before now.
func image(t *testing.T, name string, before time.Duration) Header {
	t.Helper()
	if err := os.WriteFile(name, []byte("gpch"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := Header{Image: name, Sum: sha256.Sum256([]byte("gpch")), Compiler: "/usr/bin/gcc", Source: "h.h", Cwd: "/home/x", Argv0: "gcc", Real: "/usr/bin/gcc-12",
		Args: []string{"-x", "c-header", "h.h", "-o", name}, Env: []string{"LANG=C"}, Used: now.Add(-before).Unix()}
	h.List[1], h.Toolchain[2] = 3, 4
	h.At, _ = Look(name)
	return h
}

// TestSave: what was saved is read again, with what others have saved; what is of no use any more is not.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "new", "headers")
	at := func(name string) string { return filepath.Join(dir, name) }
	if list, err := Read(file); len(list) != 0 || err != nil {
		t.Fatalf("no file: %v, %v", list, err)
	}
	ours, theirs := image(t, at("ours"), time.Hour), image(t, at("theirs"), time.Minute)
	old, gone, changed := image(t, at("old"), maxAge+time.Second), image(t, at("gone"), 0), image(t, at("changed"), 0)
	if err := os.Remove(gone.Image); err != nil {
		t.Fatal(err)
	}
	changed.At.MTime++
	long := image(t, at("long"), 0)
	long.Args = []string{strings.Repeat("x", maxCommand)}
	want := []Header{theirs, ours}
	for _, list := range [][]Header{{theirs, old, gone}, {ours, changed, long}} {
		if err := Save(file, list, now); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if left, _ := filepath.Glob(file + ".*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestBounds: a file has no more entries than it may, and they are those that were used last.
func TestBounds(t *testing.T) {
	dir := t.TempDir()
	one := image(t, filepath.Join(dir, "image"), 0)
	list := make([]Header, maxEntries+10)
	for i := range list {
		list[i] = one
		list[i].Used -= int64(i)
		list[i].Source = fmt.Sprint(i)
	}
	if got := choose(list, nil, now); len(got) != maxEntries || got[maxEntries-1].Source != fmt.Sprint(maxEntries-1) {
		t.Errorf("%d entries", len(got))
	}
	for i := range list {
		list[i].Args = []string{strings.Repeat("x", maxCommand/2)}
	}
	b := encode(list[:maxEntries])
	if got, what := parse(b); len(b) > maxFile || what != "" || len(got) != 63 {
		t.Errorf("%d bytes with %d entries, %s", len(b), len(got), what)
	}
}

// TestDamaged: a file that was damaged anywhere, or that is of another kind, is an error of one line, and is replaced.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "headers")
	one := image(t, filepath.Join(dir, "image"), 0)
	good := encode([]Header{one, one})
	body := good[:len(good)-sha256.Size]
	for i := range good {
		bent := bytes.Clone(good)
		bent[i] ^= 1
		if list, what := parse(bent); what == "" || list != nil {
			t.Errorf("byte %d: %v", i, list)
		}
		if _, what := parse(good[:i]); what == "" {
			t.Errorf("cut at %d", i)
		}
	}
	for i := range body { // the sum is that of a program with a fault
		sum := sha256.Sum256(body[:i])
		if _, what := parse(append(bytes.Clone(body[:i]), sum[:]...)); what == "" {
			t.Errorf("cut at %d, and summed", i)
		}
	}
	for what, b := range map[string][]byte{"empty": nil, "another kind": []byte("rdcchist, and so on, to a length that an empty file might have"),
		"longer": append(bytes.Clone(good), 0), "too long": append(bytes.Clone(good), make([]byte, maxFile)...)} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := Read(file); !errors.Is(err, ErrFile) || strings.Contains(err.Error(), "\n") || list != nil {
			t.Errorf("%s: %v, %v", what, list, err)
		}
	}
	if err := Save(file, []Header{one}, now); err != nil {
		t.Fatal(err)
	}
	if list, err := Read(file); len(list) != 1 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("a directory was read")
	}
}

// TestSum: the sum of an image is that of its content, and there is none for another file in its place.
func TestSum(t *testing.T) {
	dir := t.TempDir()
	one := image(t, filepath.Join(dir, "image"), 0)
	for !one.At.Settled(time.Now().UnixNano()) {
		time.Sleep(time.Millisecond)
	}
	if sum, ok := Sum(one.Image, one.At); !ok || sum != one.Sum {
		t.Errorf("%x, %v", sum, ok)
	}
	other := one.At
	other.CTime--
	link := filepath.Join(dir, "link")
	if err := os.Symlink(one.Image, link); err != nil {
		t.Fatal(err)
	}
	if _, ok := Sum(one.Image, other); ok {
		t.Error("a sum of another state")
	}
	if _, ok := Sum(link, one.At); ok {
		t.Error("a sum of what a link leads to")
	}
	if _, ok := Sum(filepath.Join(dir, "none"), one.At); ok {
		t.Error("a sum of no file")
	}
}
