package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/config"
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

// TestFixed: a reload names the settings of received toolchains that it cannot change, and not the directories of the host's own
// compilers, which it can.
func TestFixed(t *testing.T) {
	for _, c := range []struct {
		change func(*config.Config)
		want   []string
	}{
		{func(*config.Config) {}, nil},
		{func(c *config.Config) { c.Toolchains.Accept = "none" }, []string{"toolchains.accept"}},
		{func(c *config.Config) { c.Toolchains.Dir = "/elsewhere" }, []string{"toolchains.dir"}},
		{func(c *config.Config) { c.Toolchains.Size = 1 }, []string{"toolchains.size"}},
		{func(c *config.Config) { c.Toolchains.Dirs = []string{"/elsewhere"} }, nil},
	} {
		a, b := new(config.Config), new(config.Config)
		c.change(b)
		if got := fixed(a, b); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
