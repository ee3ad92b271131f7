package caches

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/test/kit/reapiserver"
	"github.com/rdistcc/rdistcc/internal/test/kit/relay"
	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// farStore is a store that is some way off and counts what it is asked.
type farStore struct {
	settings string
	reads    func() int
}

const (
	aheadUnits = 24
	aheadMost  = 12 // requests of a build
)

// TestAhead: a machine that has nothing, with a checkout elsewhere, gets the results of a build by a few requests, and its objects are
// those of a plain build. So does one that builds something else besides.
func TestAhead(t *testing.T) {
	part.Skip(t)
	for tier, serve := range map[string]func(t *testing.T) farStore{"redis": farRedis, "s3": farS3, "reapi": farREAPI} {
		t.Run(tier, func(t *testing.T) {
			store := serve(t)
			one := aloneWith(t, store.settings)
			one.project(aheadUnits)
			one.makes("local:no-hosts", aheadUnits)
			if err := one.Manager.Stop(); err != nil {
				t.Fatal(err)
			}
			before := store.reads()
			two := aloneWith(t, store.settings)
			two.project(aheadUnits)
			two.makes("cached:"+tier, aheadUnits)
			asked := store.reads() - before
			t.Logf("%d compiles by %d requests", aheadUnits, asked)
			if asked > aheadMost {
				t.Errorf("%d requests, want at most %d", asked, aheadMost)
			}
			if n := two.ahead(tier); n.Ahead < aheadUnits || n.AheadHits < aheadUnits/2 {
				t.Errorf("counted: %+v", n)
			}
			two.settle(aheadUnits)
			if err := two.Manager.Stop(); err != nil {
				t.Fatal(err)
			}

			before = store.reads()
			three := aloneWith(t, store.settings)
			three.project(aheadUnits)
			three.write("a0.c", "int other(void) { return 1; }\n")
			three.makes("", 0)
			if asked := store.reads() - before; asked > aheadMost {
				t.Errorf("with one changed source: %d requests, want at most %d", asked, aheadMost)
			}
			if n := three.ahead(tier); n.Hits != aheadUnits-1 {
				t.Errorf("counted: %+v", n)
			}
		})
	}
}

// project writes a checkout with so many sources, and a Makefile.
func (s *site) project(units int) {
	s.Helper()
	s.write(".git/HEAD", "ref: refs/heads/main\n")
	s.write("a.h", "#define A 1\n")
	s.write("Makefile", "OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))\nall: $(OBJECTS)\n%.o: %.c\n\t$(CC) -O1 -MD -c $< -o $@\n")
	for i := range units {
		s.write(fmt.Sprintf("a%d.c", i), fmt.Sprintf("#include \"a.h\"\n#include <stdio.h>\nint f%d(void) { return printf(\"%%d\\n\", A + %d); }\n", i, i))
	}
}

// makes builds the project with make, four at a time, and compares its files with those of a plain build. If where is not "", all units come
// from there.
func (s *site) makes(where string, units int) {
	s.Helper()
	build := func(cc string, env ...string) {
		s.Helper()
		cmd := exec.CommandContext(s.ctx, "make", "-j4", "CC="+cc)
		cmd.Dir, cmd.Env = s.work, append(append(s.Env(), "PWD="+s.work), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.Fatalf("make: %v\n%s", err, out)
		}
	}
	name := filepath.Join(s.TempDir(), "report")
	build(s.Wrapper+" gcc", "RDISTCC_REPORT="+name)
	with := s.written()
	s.remove()
	build("gcc")
	for name, b := range s.written() {
		if !bytes.Equal(with[name], b) {
			s.Errorf("%s differs from that of the plain build", name)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		s.Fatal(err)
	}
	if n := strings.Count("\n"+string(text), "\n"+where); where != "" && n != units {
		s.Errorf("%d of %d from %s:\n%s", n, units, where, text)
	}
}

// ahead returns what the manager says of a tier.
func (s *site) ahead(tier string) report.TierCounts {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, s.Wrapper, "cache", "stats", "--json")
	cmd.Env = s.Env()
	out, err := cmd.Output()
	var x struct{ Counts *report.CacheCounts }
	if err == nil {
		err = json.Unmarshal(out, &x)
	}
	if err != nil || x.Counts == nil {
		s.Fatalf("rdistcc cache stats: %v\n%s", err, out)
	}
	for _, t := range x.Counts.Tiers {
		if t.Name == tier {
			return t
		}
	}
	s.Fatalf("no tier %s: %s", tier, out)
	panic("unreachable")
}

// away is how far off the stores are: so much of a way to each side.
const away = 10 * time.Millisecond

// behind returns the address of a relay to addr that delays all bytes.
func behind(t *testing.T, addr string) string {
	t.Helper()
	r, err := relay.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.SetDelay(away)
	return r.Addr()
}

func farRedis(t *testing.T) farStore {
	program, addr := storetest.Program(t, "redis-server"), storetest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	storetest.Start(t, addr, nil, program, "--port", port, "--bind", "127.0.0.1", "--save", "")
	reads := func() int {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "INFO commandstats\r\nQUIT\r\n")
		for in := bufio.NewScanner(c); in.Scan(); {
			if rest, is := strings.CutPrefix(in.Text(), "cmdstat_get:calls="); is {
				text, _, _ := strings.Cut(rest, ",")
				n, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		return 0
	}
	return farStore{"cache:\n  redis: {url: \"redis://" + behind(t, addr) + "\", timeout: 5s}\n", reads}
}

func farS3(t *testing.T) farStore {
	program, addr, dir := storetest.Program(t, "versitygw"), storetest.FreeAddr(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "results"), 0o755); err != nil {
		t.Fatal(err)
	}
	storetest.Start(t, addr, nil, program, "--quiet", "--port", addr, "--access", "AKIDEXAMPLE", "--secret", password, "posix", "--nometa", dir)
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[default]\naws_access_key_id=AKIDEXAMPLE\naws_secret_access_key="+password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			reads.Add(1)
		}
		if r.Body == nil {
			r.Body = io.NopCloser(strings.NewReader(""))
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return farStore{"cache:\n  s3: {bucket: results, endpoint: \"http://" + behind(t, l.Addr().String()) + "\", timeout: 5s, credentials-file: " + file + "}\n",
		func() int { return int(reads.Load()) }}
}

func farREAPI(t *testing.T) farStore {
	server := reapiserver.Start(t, reapiserver.Options{Inline: 1 << 20})
	reads := func() (n int) {
		for _, method := range []string{"GetCapabilities", "GetActionResult", "BatchReadBlobs", "Read"} {
			n += server.Calls(method)
		}
		return n
	}
	return farStore{"cache:\n  reapi: {url: \"grpc://" + behind(t, server.Addr) + "\", timeout: 5s}\n", reads}
}
