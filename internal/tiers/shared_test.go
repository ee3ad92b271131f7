package tiers

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// parse returns the settings of a file whose section cache has more lines.
func parse(t *testing.T, lines ...string) *config.Config {
	t.Helper()
	c, err := config.Parse("test", []byte("cache:\n  size: 0\n  farm: false\n  "+strings.Join(lines, "\n  ")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func none(string) string { return "" }

// TestOrder: stores are asked in the order of their tiers, and used as their modes say.
func TestOrder(t *testing.T) {
	c := parse(t, "reapi: {url: \"grpc://127.0.0.1:1\"}", "s3: {bucket: results}", "redis: {url: \"redis://127.0.0.1:1\", mode: read}")
	c.Cache.Size, c.Cache.Dir, c.Cache.Farm = config.GiB, t.TempDir(), true
	all, err := Open(c, none, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tier := range all {
		names = append(names, tier.Name)
		if tier.Store == nil { // the farm's come with each look
			continue
		}
		if err := tier.Store.Close(); err != nil {
			t.Error(err)
		}
	}
	order := slices.DeleteFunc(resultcache.Tiers(), func(name string) bool { return !slices.Contains(names, name) })
	if len(names) != 5 || !slices.Equal(names, order) {
		t.Errorf("tiers are %q, want them in the order of %q", names, order)
	}
	for mode, want := range map[string][2]bool{"read-write": {true, true}, "read": {true, false}, "write": {false, true}} {
		c := parse(t, "redis: {url: \"redis://127.0.0.1:1\", timeout: 7ms, mode: "+mode+"}")
		all, err := Open(c, none, nil)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		if got := [2]bool{all[0].Read, all[0].Write}; got != want || all[0].Timeout != 7e6 {
			t.Errorf("%s: %v, %v", mode, got, all[0].Timeout)
		}
	}
	c.Cache.Use = false
	if all, err := Open(c, none, nil); err != nil || len(all) != 0 {
		t.Errorf("switched off: %v, %v", all, err)
	}
}

// TestUnusable: what a store lacks is an error of its use, in one line that names the key, and no reason not to start.
func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, []byte("s3cret"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := storetest.Certificates(t)
	for _, c := range []struct{ lines, want string }{
		{"redis: {url: \"redis://127.0.0.1\", password-file: " + open + "}", "cache.redis.password-file: " + open + " can be read or written by others"},
		{"redis: {url: \"redis://127.0.0.1\", password-file: /none}", "cache.redis.password-file: /none: no such file"},
		{"redis: {url: \"rediss://127.0.0.1\", ca: /none}", "cache.redis.ca: open /none: no such file"},
		{"redis: {url: \"rediss://127.0.0.1\", ca: " + open + "}", "has no certificate in PEM form"},
		{"redis: {url: \"rediss://127.0.0.1\", cert: " + f.ClientCert + ", key: " + f.Key + "}", "cache.redis.cert: "},
		{"s3: {bucket: results, ca: " + open + "}", "cache.s3.ca: "},
		{"reapi: {url: \"grpc://127.0.0.1\", token-file: " + open + "}", "cache.reapi.token-file: " + open + " can be read or written by others"},
		{"reapi: {url: \"grpcs://127.0.0.1\", ca: /none}", "cache.reapi.ca: open /none: no such file"},
	} {
		all, err := Open(parse(t, c.lines), none, nil)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		s := all[0].Store
		err = storetest.Fails(t, t.Context(), s, resultcache.Key{})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.lines, err, c.want)
		}
		if !errors.Is(s.Put(t.Context(), resultcache.Key{}, nil), err) || !errors.Is(s.Drop(t.Context(), resultcache.Key{}), err) || s.Close() != nil {
			t.Errorf("%s: other errors than that of Get", c.lines)
		}
	}
}
