package compile

import (
	"os"
	"slices"
	"testing"
)

// TestMapsByLinks: a command that has gcc follow links runs elsewhere if no map of its names a directory behind one, and as sources.
func TestMapsByLinks(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/real", 0o777))
	must(t, os.Symlink("real", dir+"/link"))
	for old, here := range map[string]bool{dir + "/real": false, dir + "/none": false, dir + "/link": true, dir + "/link/x": true, dir + "/./real": true, dir + "/real/": true, "real": true, "": true} {
		for _, o := range []string{"-fmacro-prefix-map=", "-ffile-prefix-map=", "-fdebug-prefix-map="} {
			p := Parse([]string{"-fcanon-prefix-map", o + old + "=/src", "-c", "a.c"}, Driver{Family: GCC}, nil)
			if p.Local != here || !here && p.Text != "directory" {
				t.Errorf("%s%s=: Local = %v, want %v; Text %q", o, old, p.Local, here, p.Text)
			}
			if p := Parse([]string{o + old + "=/src", "-c", "a.c"}, Driver{Family: GCC}, nil); p.Local {
				t.Errorf("%s%s= alone: Local", o, old)
			}
		}
	}
}

// TestSuppressionMappings: clang reads the file.
func TestSuppressionMappings(t *testing.T) {
	p := Parse([]string{"--warning-suppression-mappings=sub/list", "-c", "a.c"}, Driver{Family: Clang}, nil)
	if p.Local || p.Text != "input-file" || !slices.Contains(p.Inputs, "sub/list") {
		t.Errorf("%+v", p)
	}
}
