package ctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/disk"
)

// TestCacheForPeople: the directory of results is shown and maintained, with a manager and without one.
func TestCacheForPeople(t *testing.T) {
	s := newShell(t)
	dir := filepath.Join(s.dir, "cache", "rdistcc", "results")
	s.env["XDG_CACHE_HOME"] = filepath.Join(s.dir, "cache")
	s.want(101, "", "rdistcc: cache needs one of stats, clear, prune and verify, as in: rdistcc cache stats\n", "cache")
	s.want(101, "", "rdistcc: cache: no \"empty\"; there are stats, clear, prune and verify\n", "cache", "empty")
	s.want(101, "", "rdistcc: prune needs --older or --size, as in: rdistcc cache prune --older 720h\n", "cache", "prune")
	s.want(101, "", "rdistcc: --size 1: ", "cache", "prune", "--size", "1")
	s.want(101, "", "rdistcc: --older -1s: not negative\n", "cache", "prune", "--older", "-1s")
	s.want(0, dir+": 0 results, 0B of 5.0GiB\n", "", "cache", "stats")
	s.want(0, dir+": 0 results, 0B, all undamaged\n", "", "cache", "verify")

	store, err := disk.Open(dir, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range byte(3) {
		e := &resultcache.Entry{Key: resultcache.Key{i}, Files: []resultcache.File{{Data: make([]byte, 100)}}}
		b, err := e.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Put(t.Context(), e.Key, b); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, e.Key.String()[:1], e.Key.String()[1:3], e.Key.String()[3:])
		at := time.Now().Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	s.want(0, dir+": 3 results, 12.0KiB of 5.0GiB; the least recent use was 2h0m ago\n", "", "cache", "stats")
	s.want(0, dir+": 1 result removed, 4.0KiB\n", "", "cache", "prune", "--older", "90m")
	if err := os.WriteFile(names[0], []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(1, "", names[0]+": removed: a damaged result: ", "cache", "verify")
	s.want(0, dir+": 1 result, 4.0KiB, all undamaged\n", "", "cache", "verify")

	st := report.Stats{Since: time.Now(), Cache: report.CacheCounts{Asked: 10, Hits: map[string]uint64{"manager": 4, "redis": 1}, SavedCPUUS: 90e6}}
	s.manager(func(*ipc.Control) *ipc.Reply { return reply(t, st) })
	s.want(0, "5 of 10 compiles from the cache (50%): manager 4, redis 1; 90 s of compilers' time saved\n", "", "cache", "stats")
	var x cacheStats
	if err := json.Unmarshal([]byte(s.want(0, "", "", "cache", "stats", "--json")), &x); err != nil || x.Results != 1 || x.Limit != 5<<30 || x.Counts.AllHits() != 5 {
		t.Errorf("%v: %+v", err, x)
	}
	s.want(0, dir+": 1 result removed, 4.0KiB\n", "", "cache", "clear")
	st.Cache.Tiers = []report.TierCounts{{Name: "web", Looks: 10, Hits: 4, Errors: 1, Kept: 6, Read: 4096, Written: 8192, TimeUS: 25_000, SavedUS: 90e6}, {Name: "farm"}}
	st.Cache.Hits["web"] = 2
	s.want(0, "manager 4, redis 1, web 2; 90 s", "", "cache", "stats")
	st.Cache.Tiers[0].Untrusted, st.Cache.Unsigned = 3, []string{"s3", "web"}
	s.want(0, "\n\nweb: 3 looks had a result that nobody has signed whose signature counts: a miss\nunsigned: s3, web; whoever can write there can give this machine wrong objects\n", "", "cache", "stats")
	st.Cache.Tiers[0].Ahead, st.Cache.Tiers[0].AheadHits = 7, 3
	s.want(0, "\n\nweb: 7 results fetched before builds asked, 3 of them used\nweb: 3 looks", "", "cache", "stats")
	s.want(0, "\nweb   10     4     1       4.0KiB  2.5 ms        6     8.0KiB   90 s\nfarm  0      0     0       0", "", "cache", "stats")

	config := filepath.Join(s.dir, "config.yaml")
	s.env["RDISTCC_CONFIG"] = config
	if err := os.WriteFile(config, []byte("cache: {use: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(0, "since ", "", "cache", "stats") // of tiers elsewhere
	st.Cache.Tiers = nil
	out := s.want(100, "", "rdistcc: no results are kept here: cache.use is off or cache.size is 0 (", "cache", "stats")
	if strings.Contains(out, "\n\n") {
		t.Errorf("%q", out)
	}
}
