package compile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestRespelt: the words for spec files go, in every spelling, and what they stand for comes.
func TestRespelt(t *testing.T) {
	d, _ := DriverOf("gcc", "/usr/bin/gcc")
	p := Parse(strings.Fields("-g -specs=a -fPIC -specs b -c --specs=c x.c --specs d -o x.o"), d, nil)
	if got := strings.Join(p.SpecFiles(), " "); got != "a b c d" {
		t.Errorf("spec files %q", got)
	}
	got := strings.Join(p.Respelt([]string{"-fPIC", "x.c"}, []string{"-isystem", "i"}, []string{"-fno-pic"}), " ")
	if want := "-isystem i -g -c x.c -o x.o -fno-pic"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSpecsAgain: what could have another content when it is read again is found before the driver reads it.
func TestSpecsAgain(t *testing.T) {
	dir := t.TempDir()
	name := func(s string) string { return filepath.Join(dir, s) }
	write := func(file, text string) {
		if err := os.WriteFile(name(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(name("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	write("plain", "*cc1:\n+ -O1\n")
	write("includes", "%include <"+name("plain")+">\n\n%include_noerr <"+name("none")+">\n")
	write("deep", "%include <"+name("includes")+">\n%include\n%include <\n%include_noerr <"+name("pipe")+">\n")
	write("endless", "%include <"+name("endless")+">\n")
	write("large", strings.Repeat(" ", maxSpecs+1))
	for file, want := range map[string]bool{
		"plain": true, "includes": true, "none": true, "pipe": false, "deep": false, "endless": false, "large": false, ".": false, "/dev/null": false,
	} {
		if file[0] != '/' {
			file = name(file)
		}
		if got := SpecsAgain([]string{name("plain"), file}); got != want {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
	if SpecsAgain(slices.Repeat([]string{name("plain")}, maxSpecFiles+1)) {
		t.Error("any number of files")
	}
}
