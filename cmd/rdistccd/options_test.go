package main

import (
	"path/filepath"
	"testing"
)

func TestCompilersFile(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, c := range []struct{ cache, state, want string }{
		{a + ":" + b, b, a},
		{"", b, b},
		{"/dev/null/x", "", ""},
	} {
		env := map[string]string{"CACHE_DIRECTORY": c.cache, "RDISTCC_DIR": c.state}
		want := c.want
		if want != "" {
			want = filepath.Join(want, "rdistccd.compilers")
		}
		if got := compilersFile(func(name string) string { return env[name] }); got != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}
