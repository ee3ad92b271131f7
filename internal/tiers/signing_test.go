package tiers

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/disk"
)

// machine returns the identity and the settings of a machine of that CA.
func machine(t testing.TB, ca *authority.CA, root []byte, name string) (*identity.Identity, *config.Config) {
	t.Helper()
	p, err := ca.Issue(authority.Request{Role: identity.Client, Names: []string{name}, From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
	dir, c := t.TempDir(), config.Default()
	c.Auth.TLS = config.TLS{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), CA: filepath.Join(dir, "a")}
	a := &c.Auth.TLS
	if err := errors.Join(err, os.WriteFile(a.Cert, p.Cert, 0o600), os.WriteFile(a.Key, p.Key, 0o600), os.WriteFile(a.CA, root, 0o600)); err != nil {
		t.Fatal(err)
	}
	id, err := identity.New(identity.Client, identity.Settings{Cert: a.Cert, Key: a.Key, CA: a.CA})
	if err != nil {
		t.Fatal(err)
	}
	return id, c
}

func newCA(t testing.TB) (*authority.CA, []byte) {
	t.Helper()
	ca, pair, err := authority.New("farm", time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca, pair.Cert
}

// cacheOf returns the cache of a machine with a directory of its own and a store that others use.
func cacheOf(t testing.TB, store string, s results.Signing) *results.Cache {
	t.Helper()
	near, err := disk.Open(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	far, err := disk.Open(store, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return results.New(results.Options{Tiers: []results.Tier{{Name: resultcache.TierManager, Store: near, Read: true, Write: true},
		{Name: resultcache.TierS3, Store: far, Read: true, Write: true, Shared: true}}, Log: slog.New(slog.DiscardHandler), Count: func(string, string) {}, Signing: s})
}

func find(t testing.TB, c *results.Cache, key resultcache.Key) string {
	t.Helper()
	_, tier := c.Find(t.Context(), &results.Look{Key: key, Room: func(n int) ([]byte, error) { return make([]byte, n), nil }})
	return tier
}

// TestSigning: what a machine has put into a store is taken by those who trust it, and by nobody else.
func TestSigning(t *testing.T) {
	ca, root := newCA(t)
	strangers, other := newCA(t)
	id, c := machine(t, ca, root, "ci")
	s, err := Signing(c, id)
	if err != nil {
		t.Fatal(err)
	}
	store, key := t.TempDir(), resultcache.Key{1}
	b, err := (&resultcache.Entry{Key: key, Origin: resultcache.Origin{Made: time.Now()}, Files: []resultcache.File{{Data: []byte("object")}}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	writer := cacheOf(t, store, s)
	writer.Keep(nil, key, b)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, root, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		of    *authority.CA
		root  []byte
		trust []string
		want  string
		wrong string // error
	}{
		"the farm":                    {ca, root, nil, resultcache.TierS3, ""},
		"another farm":                {strangers, other, nil, "", ""},
		"another farm that trusts it": {strangers, other, []string{"farm", file}, resultcache.TierS3, ""},
		"without a farm":              {nil, nil, []string{file}, resultcache.TierS3, ""},
		"anyone":                      {strangers, other, []string{"anyone"}, resultcache.TierS3, ""},
		"without certificates":        {nil, nil, nil, resultcache.TierS3, ""},
		"all but that machine":        {ca, root, []string{"not:ci"}, "", ""},
		"a file that is not there":    {nil, nil, []string{"/nowhere/ca.crt"}, "", "/nowhere/ca.crt"},
	} {
		var id *identity.Identity
		c := config.Default()
		if x.of != nil {
			id, c = machine(t, x.of, x.root, "reader")
		} else if id, err = identity.New(identity.Client, identity.Settings{}); err != nil {
			t.Fatal(err)
		}
		c.Cache.Trust = x.trust
		s, err := Signing(c, id)
		if (err != nil) != (x.wrong != "") || err != nil && !strings.Contains(err.Error(), x.wrong) {
			t.Errorf("%s: %v", what, err)
		}
		if (s.Sign != nil) != (x.of != nil) || (s.Verify == nil) != (s.Accepts == nil) {
			t.Errorf("%s: it signs: %t", what, s.Sign != nil)
		}
		reader := cacheOf(t, store, s)
		if tier := find(t, reader, key); tier != x.want {
			t.Errorf("%s: %q, want %q", what, tier, x.want)
		}
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkHit is what a hit in the own directory costs, of a result that needs no signature and of a copy of a signed one; and one
// in a store that others use. The figures are medians of CPU time, taken in turns.
func BenchmarkHit(b *testing.B) {
	ca, root := newCA(b)
	id, c := machine(b, ca, root, "ci")
	signing, err := Signing(c, id)
	if err != nil {
		b.Fatal(err)
	}
	key := resultcache.Key{1}
	object := make([]byte, 30<<10)
	for i, x := 0, uint32(1); i < len(object); i++ {
		x = x*1664525 + 1013904223
		object[i] = byte(x>>24) & 15
	}
	entry, err := (&resultcache.Entry{Key: key, Origin: resultcache.Origin{Made: time.Now()}, Files: []resultcache.File{{Data: object}}}).Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	kinds := []string{"unsigned/here", "signed/here", "unsigned/store", "signed/store"}
	caches := make(map[string]*results.Cache)
	for name, signing := range map[string]results.Signing{"unsigned": {}, "signed": signing} {
		store := b.TempDir()
		writer := cacheOf(b, store, signing)
		writer.Keep(nil, key, entry)
		if err := writer.Close(); err != nil {
			b.Fatal(err)
		}
		here := cacheOf(b, store, signing)
		for find(b, here, key) != resultcache.TierManager { // until there is a copy
			time.Sleep(time.Millisecond)
		}
		caches[name+"/here"] = here
		caches[name+"/store"] = results.New(results.Options{Tiers: []results.Tier{{Name: resultcache.TierS3, Store: opened(b, store), Read: true, Shared: true}},
			Log: slog.New(slog.DiscardHandler), Count: func(string, string) {}, Signing: signing})
	}
	const batch = 100
	took := make(map[string][]float64)
	for b.Loop() {
		for _, kind := range kinds {
			before := cpu(b)
			for range batch {
				if find(b, caches[kind], key) == "" {
					b.Fatal("no hit")
				}
			}
			took[kind] = append(took[kind], float64(cpu(b)-before)/batch/1000)
		}
	}
	for kind, all := range took {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], kind+"-us")
		if err := caches[kind].Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// cpu returns the CPU time of this process.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func opened(t testing.TB, dir string) *disk.Store {
	t.Helper()
	s, err := disk.Open(dir, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
