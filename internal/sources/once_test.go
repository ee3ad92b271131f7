package sources

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTwinsOfOnce: what gcc's list lacks is packed: a link to a header with the pragma,
// and a copy. The list is gcc's own.
func TestTwinsOfOnce(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, "src/a.h", "#pragma once\nint a;\n")
	write(t, "copy/a.h", "#pragma once\nint a;\n")
	if err := os.MkdirAll("inc", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../src/a.h", "inc/a.h"); err != nil {
		t.Fatal(err)
	}
	write(t, "y.c", "#include \"src/a.h\"\n#  include /* */ <a.h>\n#include \"copy/a.h\"\n#")
	rule, err := exec.Command(cc, "-M", "-Iinc", "y.c").Output()
	if err != nil {
		t.Fatal(err)
	}
	list, err := ParseRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	for _, twins := range []bool{true, false} {
		p, err := Make(&Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: future, Names: list,
			Dirs: []string{"inc"}, Own: func() []string { return []string{"/usr/include"} }, Twins: twins})
		if err != nil {
			t.Fatal(err)
		}
		got := names(p)
		if (len(p.Links) == 1) != twins || twins && p.Links[0].Name != dir+"/inc/a.h" || strings.Contains(got, "copy/a.h=20") != twins {
			t.Errorf("twins %v: %s", twins, got)
		}
	}
}

// TestTwinsOfAnotherName: a link to a header that is read once is left out of gcc's list
// also where nothing in the list has its name. What is not like such a header stays away.
func TestTwinsOfAnotherName(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	for word, text := range map[string]string{"include": "#pragma once\nint a;\n", "import": "int a;\n"} {
		dir := t.TempDir()
		t.Chdir(dir)
		write(t, "a.h", text)
		write(t, "inc/unlike.h", "")
		if err := errors.Join(os.Symlink("a.h", "b.h"), os.Symlink("../a.h", "inc/c.h"), os.Link("a.h", "inc/d.h")); err != nil {
			t.Fatal(err)
		}
		write(t, "y.c", strings.ReplaceAll("#W \"a.h\"\n#W \"b.h\"\n#W <c.h>\n#W <d.h>\n#if 0\n#W <unlike.h>\n#W \"none.h\"\n#endif\n", "W", word))
		rule, err := exec.Command(cc, "-M", "-w", "-Iinc", "y.c").Output()
		if err != nil {
			t.Fatal(err)
		}
		list, err := ParseRule(rule)
		if err != nil || strings.Contains(strings.Join(list, " "), "b.h") {
			t.Fatal(list, err)
		}
		p, err := Make(&Options{FD: memfd(t, 1<<20), Max: 1 << 20, Cwd: dir, Since: future, Names: list,
			Dirs: []string{"inc"}, Own: func() []string { return []string{"/nowhere"} }, Twins: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := names(p); len(p.Links) != 2 || !strings.Contains(got, "inc/d.h=0") || strings.Contains(got, "unlike") {
			t.Errorf("%s: %s, links %v", word, got, p.Links)
		}
	}
}
