package main

import (
	"os/exec"
	"testing"
)

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
