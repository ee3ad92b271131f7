package caches

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/test/kit/reapiserver"
	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// password is for stores that ask for one. It must not be seen anywhere.
const password = "s3cret-of-the-team"

// sharedStore is a store that several managers use.
type sharedStore struct {
	settings string          // of a manager
	count    func() int      // of entries
	spoil    func()          // puts something else into the place of all entries; nil: the server does not let anybody do that
	stop     func()          // ends the server
	entries  func() []string // files of all entries; nil: they are in no files
}

// TestSharedStores: what one manager's build has compiled, another one's gets from the store, with equal objects. When the
// store is down, builds go on, and the log has a line.
func TestSharedStores(t *testing.T) {
	part.Skip(t)
	for tier, serve := range map[string]func(t *testing.T) sharedStore{"redis": serveRedis, "s3": serveS3, "reapi": serveREAPI, "team": serveHelper} {
		t.Run(tier, func(t *testing.T) { sharedBy(t, tier, serve(t)) })
	}
}

func sharedBy(t *testing.T, tier string, store sharedStore) {
	one, two := start(t, store.settings), start(t, store.settings)
	two.work = one.work // what differs with the directory is another test's
	one.write("a.c", "#include \"a.h\"\nint f(void) { int unused; return A; }\n")
	one.write("a.h", "#define A 1\n")
	cmd := []string{"gcc", "-O2", "-g", "-Wall", "-MD", "-c", "a.c", "-o", "a.o"}
	one.compiles("remote", cmd...)
	one.wait("the result to be in the store", func() bool { return store.count() == 1 })
	two.compiles("cached:"+tier, cmd...)
	two.settle(1) // there is a copy now
	two.compiles("cached:manager", cmd...)
	two.write("a.h", "#define A 2\n")
	two.compiles("remote", cmd...)
	two.wait("the other result to be in the store", func() bool { return store.count() == 2 })
	one.compiles("cached:"+tier, cmd...)
	if n := one.metric(one.Manager, `rdistcc_cm_cache_total{result="hit",tier="`+tier+`"}`); n != 1 {
		t.Errorf("%v hits counted", n)
	}

	if store.spoil != nil {
		one.write("a.h", "#define A 3\n")
		one.compiles("remote", cmd...)
		one.wait("the third result to be in the store", func() bool { return store.count() == 3 })
		store.spoil()
		two.compiles("remote", cmd...)
		two.wait("a line about the damaged result", func() bool { return strings.Contains(two.log(), "a kept result is damaged, or was on its way here") })
		two.compiles("cached:manager", cmd...)
	}

	store.stop()
	for i := range 6 {
		one.write("a.h", fmt.Sprintf("#define A %d\n", 10+i))
		one.compiles("remote", cmd...)
	}
	one.again() // it starts without its store
	for i := range 6 {
		one.write("a.h", fmt.Sprintf("#define A %d\n", 20+i))
		one.compiles("remote", cmd...)
	}
	one.wait("the copies in the manager's own tier", func() bool { return len(one.kept()) >= 14 })
	one.compiles("cached:manager", cmd...)
	if log := one.log(); strings.Count(log, "left alone for a while") != 2 || !strings.Contains(log, "tier="+tier) {
		t.Errorf("the log of two managers, each without its store:\n%s", log)
	}
	for _, s := range []*site{one, two} {
		show := exec.CommandContext(s.ctx, s.Wrapper, "config", "--origins")
		show.Env = s.Env()
		out, err := show.CombinedOutput()
		shown := " " + tier + ".timeout: 5s"
		if tier == "team" {
			shown = "timeout=5s"
		}
		if err != nil || !strings.Contains(string(out), shown) {
			t.Errorf("rdistcc config: %v\n%s", err, out)
		}
		if strings.Contains(s.log()+string(out), password) {
			t.Errorf("the password is shown:\n%s\n%s", s.log(), out)
		}
	}
}

// TestForgedInASharedStore: a result in a shared store whose sums are right, but which no compiler has made, is not used, whether it
// is for one directory or for any.
func TestForgedInASharedStore(t *testing.T) {
	store := serveS3(t)
	one, two := start(t, store.settings), start(t, store.settings)
	for _, base := range []bool{false, true} {
		if !base {
			two.work = one.work
		} else {
			two.work = two.Dir // another directory than that of one
		}
		vars := func(s *site) []string {
			if !base {
				return nil
			}
			return []string{"RDISTCC_BASE_DIR=" + s.work}
		}
		text := fmt.Sprintf("int x = %v;\n", map[bool]int{true: 1}[base])
		one.write("a.c", text)
		two.write("a.c", text)
		before := store.entries()
		one.compilesWith("remote", vars(one), "gcc", "-O2", "-c", "a.c")
		one.wait("the result to be in the store", func() bool { return store.count() == len(before)+1 })
		for _, name := range store.entries() {
			forge(t, name)
		}
		two.compilesWith("remote", vars(two), "gcc", "-O2", "-c", "a.c")
		if n := two.metric(two.Manager, `rdistcc_cm_distrusted_results_total{why="forged"}`); n == 0 {
			t.Errorf("base %v: no forged result counted", base)
		}
	}
}

// forge puts something that is no object into the place of an entry's output.
func forge(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := resultcache.Describe(b)
	if err != nil {
		t.Fatal(err)
	}
	e, err := resultcache.Decode(b, key, func(n int) ([]byte, error) { return make([]byte, n), nil })
	if err != nil {
		t.Fatal(err)
	}
	e.Files[0].Data = []byte("#!/bin/sh\necho this is no object\n")
	if b, err = e.Append(nil); err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func serveRedis(t *testing.T) sharedStore {
	program, addr := storetest.Program(t, "redis-server"), storetest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	stop := storetest.Start(t, addr, nil, program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--requirepass", password)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(command string) string {
		c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "AUTH %s\r\n%s\r\n", password, command)
		r := bufio.NewReader(c)
		_, _ = r.ReadString('\n')
		line, err := r.ReadString('\n')
		if err != nil || line[0] == '-' {
			t.Fatalf("%s: %q, %v", command, line, err)
		}
		return strings.TrimRight(line[1:], "\r\n")
	}
	count := func() int {
		n, err := strconv.Atoi(ask("DBSIZE"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	spoil := func() {
		ask(`EVAL "for _, k in ipairs(redis.call('keys', '*')) do redis.call('set', k, 'something else') end return 1" 0`)
	}
	return sharedStore{"cache:\n  redis: {url: \"redis://" + addr + "\", timeout: 5s, password-file: " + file + "}\n", count, spoil, stop, nil}
}

func serveS3(t *testing.T) sharedStore {
	program, addr, dir := storetest.Program(t, "versitygw"), storetest.FreeAddr(t), t.TempDir()
	results := filepath.Join(dir, "results")
	if err := os.Mkdir(results, 0o755); err != nil {
		t.Fatal(err)
	}
	stop := storetest.Start(t, addr, nil, program, "--quiet", "--port", addr, "--access", "AKIDEXAMPLE", "--secret", password, "posix", "--nometa", dir)
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[default]\naws_access_key_id=AKIDEXAMPLE\naws_secret_access_key="+password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries := func() []string {
		names, err := filepath.Glob(filepath.Join(results, "rdistcc/??/*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	count := func() int { return len(entries()) }
	spoil := func() {
		for _, name := range entries() {
			if err := os.Truncate(name, 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sharedStore{"cache:\n  s3: {bucket: results, endpoint: \"http://" + addr + "\", timeout: 5s, credentials-file: " + file + "}\n", count, spoil, stop, entries}
}

func serveREAPI(t *testing.T) sharedStore {
	server := reapiserver.Start(t, reapiserver.Options{Header: "authorization", Value: "Bearer " + password})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return sharedStore{"cache:\n  reapi: {url: \"grpc://" + server.Addr + "\", timeout: 5s, token-file: " + file + "}\n", server.Results, nil, server.Stop, nil}
}
