package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnwrap: scripts around a compiler, and what must not be taken for one.
func TestUnwrap(t *testing.T) {
	for _, c := range []struct{ script, args, want string }{
		{"#!/bin/sh\nexec gcc -m32 \"$@\"\n", "-c a.c", "gcc -m32 -c a.c"},
		{"#! /bin/sh\n# ours\n\n\texec /opt/bin/gcc ${1+\"$@\"} -specs=/x.specs\n", "-c a.c", "/opt/bin/gcc -c a.c -specs=/x.specs"},
		{"#!/bin/bash\nclang \"$@\"", "", "clang"},
		{"#!/bin/sh\nset -e\nexec gcc \"$@\"\n", "-c a.c", "gcc -c a.c"},
		{"#!/bin/sh\nexec \"${REALGCC:-x-gcc}\" \"$@\" -specs \"/lib/musl-gcc.specs\"\n", "-c a.c", "x-gcc -c a.c -specs /lib/musl-gcc.specs"},
		{"#!/bin/sh\nset -eu\nexec ${SETCC:-gcc} -DX ${1+\"$@\"}\n", "-c a.c", "clang -DX -c a.c"},
		{"#!/bin/sh\nexec ${SETCC-gcc} \"$@\"\n", "-c a.c", "clang -c a.c"},
		{"#!/bin/sh\nexec ${EMPTYCC:-gcc} \"$@\"\n", "-c a.c", "gcc -c a.c"},
		{"#!/bin/sh\nexec ${EMPTYCC-gcc} \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec ${WORDSCC:-gcc} \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec ${RANDOM:-gcc} \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec \"${XCC:-$(gcc)}\" \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec \"${XCC:=gcc}\" \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec \"${XCC}\" \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec gcc \"-D X\" \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nset -x\nexec gcc \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec gcc -m32 $@\n", "-c a.c", ""},
		{"#!/bin/sh\nexec gcc '-DX' \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nA=1\nexec gcc \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nCPATH=/x gcc \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec -a x gcc \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec gcc \"$@\" | cat\n", "-c a.c", ""},
		{"#!/bin/sh\nexec gcc \"$@\"; rm x\n", "-c a.c", ""},
		{"#!/bin/sh\nexec gcc \"$@\" \"$@\"\n", "-c a.c", ""},
		{"#!/bin/sh\nexec gcc -c a.c\n", "-c a.c", ""},
		{"#!/bin/sh -e\nexec gcc \"$@\"\n", "-c a.c", ""},
		{"#!/usr/bin/perl\nexec gcc \"$@\"\n", "-c a.c", ""},
		{"exec gcc \"$@\"\n", "-c a.c", ""},
		{"\x7fELF", "-c a.c", ""},
	} {
		argv, ok := Unwrap(c.script, strings.Fields(c.args), func(name string) (string, bool) {
			v, set := map[string]string{"SETCC": "clang", "EMPTYCC": "", "WORDSCC": "gcc -m32", "RANDOM": "gcc"}[name]
			return v, set
		})
		if got := strings.Join(argv, " "); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.script, got, ok, c.want)
		}
	}
}

// TestUnwrapStandards: c89 and c99 of this machine start what Unwrap says, as a
// gcc that tells its arguments shows.
func TestUnwrapStandards(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gcc"), []byte("#!/bin/sh\necho gcc \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c89-gcc", "c99-gcc"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip("needs Debian's " + name)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"", "-c a.c", "-O2 -std=c99 -c a.c", "-std=c9x -c a.c", "-std=iso9899:1999 a.c", "-std=iso9899:199x",
			"-std=c89 a.c", "-ansi -c a.c", "-std=iso9899:1990 -c a.c", "-std=gnu99 -c a.c", "-std=c11 -c a.c"} {
			cmd := exec.Command(path, strings.Fields(args)...)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := cmd.Output()
			argv, ok := Unwrap(string(text), strings.Fields(args), os.LookupEnv)
			if ok != (err == nil) {
				t.Errorf("%s %s: understood %v, the script ends with %v", name, args, ok, err)
			} else if want := strings.TrimSpace(string(out)); ok && strings.Join(argv, " ") != want {
				t.Errorf("%s %s: %q, it runs %q", name, args, argv, want)
			}
		}
	}
}
