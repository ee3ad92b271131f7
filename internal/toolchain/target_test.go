package toolchain

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestOtherTargets: a clang is another one with another gcc for a target that commands may choose, with another variant for its
// own, or with a configuration for a target; not with another version of a gcc that it does not take.
func TestOtherTargets(t *testing.T) {
	dir := t.TempDir()
	gcc := filepath.Join(dir, "lib/gcc")
	clang := filepath.Join(dir, "bin/clang")
	mkdir(t, filepath.Join(dir, "bin"))
	add := func(version string) string {
		mkdir(t, filepath.Join(gcc, version))
		name := filepath.Join(gcc, version, "crtbegin.o")
		write(t, name, "")
		return name
	}
	add("test-linux/12")
	write(t, clang, "#!/bin/sh\ncase $1 in\n-v) echo 'clang version 18.1.0' >&2; echo 'Target: test-linux' >&2; echo 'Found candidate GCC installation: "+gcc+
		"/test-linux/12' >&2; echo 'System configuration file directory: "+dir+"/etc' >&2;;\n-print-prog-name=*) echo ${1#*=};;\n*) exit 1;;\nesac\n")
	var c Cache
	first := identifyOK(t, &c, clang)
	add("test-linux/11")
	if id := identifyOK(t, &c, clang).ID; id != first.ID {
		t.Error("an older gcc makes it another compiler")
	}
	seen := map[any]bool{first.ID: true}
	other := func(what string) Toolchain {
		t.Helper()
		tc := identifyOK(t, &c, clang)
		if seen[tc.ID] {
			t.Errorf("%s changes nothing", what)
		}
		seen[tc.ID] = true
		return tc
	}
	name := add("other-linux/12")
	if tc := other("a gcc for another target"); !slices.Contains(tc.Files, name) {
		t.Errorf("%s is not shown: %q", name, tc.Files)
	}
	add("other-linux/13")
	other("a newer gcc for another target")
	add("test-linux/12/32")
	other("a variant for the same target")
	cfg := filepath.Join(dir, "bin/other-linux.cfg")
	write(t, cfg, "-DX=1\n")
	if tc := other("a configuration for another target"); !slices.Contains(tc.Files, cfg) {
		t.Errorf("%s is not shown: %q", cfg, tc.Files)
	}
	mkdir(t, filepath.Join(dir, "etc"))
	write(t, filepath.Join(dir, "etc/other-linux-clang.cfg"), "-DX=1\n")
	other("a configuration of the system's for another target")
}

// TestDeviceSpecs: what gcc reads for a controller that a command names is a part of it.
func TestDeviceSpecs(t *testing.T) {
	dir := t.TempDir()
	devices := filepath.Join(dir, "device-specs")
	mkdir(t, devices)
	spec := filepath.Join(devices, "specs-m8")
	write(t, spec, "*self_spec:\n-mshort\n")
	write(t, filepath.Join(dir, "cc1"), "cc1")
	gcc := filepath.Join(dir, "gcc")
	write(t, gcc, "#!/bin/sh\ncase $1 in\n-v) echo 'Target: test' >&2; echo 'gcc version 12.3.4' >&2;;\n-print-prog-name=cc1) echo "+dir+"/cc1;;\n"+
		"-print-file-name=device-specs) echo "+devices+";;\n-print-*=*) echo ${1#*=};;\n-print-libgcc-file-name) echo libgcc.a;;\n*) exit 1;;\nesac\n")
	var c Cache
	first := identifyOK(t, &c, gcc)
	if !slices.Contains(first.Files, spec) {
		t.Errorf("%s is not shown: %q", spec, first.Files)
	}
	write(t, spec, "*self_spec:\n-mlong\n\n")
	second := identifyOK(t, &c, gcc)
	write(t, filepath.Join(devices, "specs-m16"), "*self_spec:\n-mlong\n\n")
	if third := identifyOK(t, &c, gcc); first.ID == second.ID || second.ID == third.ID {
		t.Error("it is the same compiler with other files for controllers")
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
}
