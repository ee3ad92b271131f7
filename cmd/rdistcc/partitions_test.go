package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEmpties: the makefiles of each gcc have an input emptied once its compile has gone well, by no program of its own.
func TestEmpties(t *testing.T) {
	const compile = "gcc  '-xlto' '-c' '-fltrans' '-o' '/tmp/x.ltrans0.ltrans.o' '/tmp/x.ltrans0.o'"
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := "a:\n\t@'" + me + "' --empty '/tmp/x.ltrans0.o' " + compile + "\n"
	file := filepath.Join(t.TempDir(), "makefile")
	for _, text := range []string{
		"a:\n\t@" + compile + "\n\t@-touch -r /tmp/x.ltrans0.o /tmp/x.ltrans0.o.tem > /dev/null 2>&1 && mv /tmp/x.ltrans0.o.tem /tmp/x.ltrans0.o\n",
		"a:\n\t@" + compile + " -truncate '/tmp/x.ltrans0.o'\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n := toFarm(file)
		if got, err := os.ReadFile(file); err != nil || n != 1 || string(got) != want {
			t.Errorf("%d compiles: %s, want %s", n, got, want)
		}
	}
	b := newTestManager(t).bench()
	b.write("a.c", "int a;\n")
	b.write("bad.c", "int a\n")
	for _, c := range []struct {
		source, link string
		exit, left   int
	}{{"a.c", "/a", 0, 0}, {"bad.c", "/a", 1, 5}, {"a.c", "", 1, 5}} {
		b.write("part", "part\n")
		b.env = append(b.env, "_RDISTCC_PART_OF="+c.link)
		if got := b.run(rdistcc, "--empty", "part", "gcc", "-c", c.source); got.code != c.exit || len(b.read("part")) != c.left {
			t.Errorf("%s of %q: %+v, %d bytes left", c.source, c.link, got, len(b.read("part")))
		}
		b.env = b.env[:len(b.env)-1]
	}
}

// TestMakeInTheLink: what is not lto-wrapper's makefile does what it does with make, word for word, also where it looks like one.
func TestMakeInTheLink(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	m := newTestManager(t)
	b := m.bench()
	for name, text := range map[string]string{
		"plain": "all:\n\t@echo one '-xlto' '-c'\n\t@echo $(MAKE) two\n",
		"empty": "", "damaged": "all\n\t\x00@gcc '-xlto' '-c' \xff\n", "cut": "all:\n\t@gcc '-xlto' '-c' '-o' 'x",
		"includes": "include plain\n", "missing": "all:\n\t@gcc '-xlto' '-c' '-fltrans' '-o' 'x.o' 'none.o'\n",
		"ends": "all:\n\texit 3\n", "other": "all:\n\t@'-xlto' '-c' \n",
	} {
		b.write(name, text)
	}
	for _, name := range []string{"plain", "empty", "damaged", "cut", "includes", "missing", "ends", "other", "absent", "."} {
		want := b.run("make", "-f", name, "all")
		b.env = append(b.env, linkEnv+"=\n\n")
		got := b.run(rdistcc, "-f", name, "all")
		b.env = b.env[:len(b.env)-1]
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
