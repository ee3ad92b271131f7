package toolchain

import (
	"errors"
	"path/filepath"
	"testing"
)

// TestClangConfiguration: a configuration file is a part of the compiler; one that
// means this machine makes it unknown.
func TestClangConfiguration(t *testing.T) {
	dir := t.TempDir()
	clang := filepath.Join(dir, "clang")
	cfg := filepath.Join(dir, "clang.cfg")
	write(t, clang, "#!/bin/sh\ncase $1 in\n-v) echo 'clang version 18.1.0' >&2; echo 'Target: test-linux' >&2; echo 'Configuration file: "+cfg+"' >&2;;\n"+
		"-print-prog-name=*) echo ${1#*=};;\n*) exit 1;;\nesac\n")
	var c Cache
	seen := make(map[any]bool)
	for _, text := range []string{"--gcc-triple=x86_64-redhat-linux\n", "# ours\n-O2 \\\n -DX=1\n-stdlib=libc++ -fstack-protector-strong\n", ""} {
		write(t, cfg, text)
		id := identifyOK(t, &c, clang).ID
		if seen[id] {
			t.Errorf("%q changes nothing", text)
		}
		seen[id] = true
	}
	for _, text := range []string{"-march=native\n", "-O2\n-mcpu=native", "@other.cfg\n", "-I/opt/include\n", "-isystem x\n", "--sysroot=<CFGDIR>\n",
		"-fplugin=x.so\n", "-fpass-plugin=x.so", "-include x.h", "-mllvm -x", "-D X", "-fprofile-use=/x"} {
		write(t, cfg, text)
		if tc, err := c.Identify(t.Context(), clang); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %+v, %v", text, tc, err)
		}
	}
}
