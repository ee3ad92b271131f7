package reapi

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/internal/test/kit/reapiserver"
	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

func open(t *testing.T, o cas.Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// TestStore runs the tests of all stores with servers of different limits.
func TestStore(t *testing.T) {
	for what, o := range map[string]reapiserver.Options{
		"no limits":     {},
		"inline":        {Inline: 1 << 20},
		"small batches": {Batch: 1000},
		"silent":        {Batch: 2 << 20, Silent: true},
		"instance":      {Instance: "team/main", Batch: 2 << 20},
	} {
		t.Run(what, func(t *testing.T) {
			s := open(t, cas.Options{URL: "grpc://" + reapiserver.Start(t, o).Addr, Instance: o.Instance})
			storetest.Suite(t, s)
		})
	}
}

func TestTrouble(t *testing.T) {
	addr := reapiserver.Start(t, reapiserver.Options{}).Addr
	storetest.Trouble(t, addr, func(t *testing.T, addr string) resultcache.Store { return open(t, cas.Options{URL: "grpc://" + addr}) })
}

// TestRequests: a small result takes two requests to keep and two to get, one if the server has it inline, and the
// server is asked once what it can do.
func TestRequests(t *testing.T) {
	for _, inline := range []int{0, 1 << 10} {
		server := reapiserver.Start(t, reapiserver.Options{Inline: inline})
		s := open(t, cas.Options{URL: "grpc://" + server.Addr})
		for i := range byte(3) {
			key, b := storetest.Entry(t, i, 100)
			if err := s.Put(t.Context(), key, b); err != nil {
				t.Fatal(err)
			}
			storetest.Has(t, s, key, b)
		}
		reads := 3
		if inline > 0 {
			reads = 0
		}
		for method, want := range map[string]int{"GetCapabilities": 1, "BatchUpdateBlobs": 3, "UpdateActionResult": 3, "GetActionResult": 3, "BatchReadBlobs": reads, "Read": 0, "Write": 0} {
			if n := server.Calls(method); n != want {
				t.Errorf("inline %d: %d calls of %s, want %d", inline, n, method, want)
			}
		}
	}
}

// TestEvicted: a result whose file has gone is a miss, and can be kept again.
func TestEvicted(t *testing.T) {
	server := reapiserver.Start(t, reapiserver.Options{})
	s := open(t, cas.Options{URL: "grpc://" + server.Addr})
	key, b := storetest.Entry(t, 1, 100)
	for range 2 {
		if err := s.Put(t.Context(), key, b); err != nil {
			t.Fatal(err)
		}
		storetest.Has(t, s, key, b)
		server.Evict()
		storetest.Misses(t, s, key)
	}
}

// TestReadOnly: a server that takes no results is read, and asked again after a while.
func TestReadOnly(t *testing.T) {
	server := reapiserver.Start(t, reapiserver.Options{ReadOnly: true})
	s := open(t, cas.Options{URL: "grpc://" + server.Addr})
	key, b := storetest.Entry(t, 1, 100)
	storetest.Misses(t, s, key)
	for range 2 {
		if err := s.Put(t.Context(), key, b); !errors.Is(err, resultcache.ErrReadOnly) {
			t.Errorf("Put: %v", err)
		}
		if err := s.Drop(t.Context(), key); !errors.Is(err, resultcache.ErrReadOnly) {
			t.Errorf("Drop: %v", err)
		}
	}
	if n := server.Calls("BatchUpdateBlobs"); n != 0 {
		t.Errorf("%d uploads for nothing", n)
	}
	server.Change(false)
	if err := s.Put(t.Context(), key, b); !errors.Is(err, resultcache.ErrReadOnly) && err != nil {
		t.Errorf("Put: %v", err)
	}
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Errorf("Put: %v", err)
	}
	storetest.Has(t, s, key, b)
}

func TestUnfitServer(t *testing.T) {
	key, b := storetest.Entry(t, 1, 100)
	for want, o := range map[string]struct {
		server reapiserver.Options
		client cas.Options
	}{
		"SHA256":           {server: reapiserver.Options{NoSHA256: true}},
		`no instance "me"`: {client: cas.Options{Instance: "me"}},
	} {
		o.client.URL = "grpc://" + reapiserver.Start(t, o.server).Addr
		s := open(t, o.client)
		for _, err := range []error{storetest.Fails(t, t.Context(), s, key), s.Put(t.Context(), key, b)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	if _, err := readAbilities(nil); err == nil {
		t.Error("a server without a cache gave no error")
	}
}

// TestTokens: the right token opens a server, a wrong one or none is an error without the token in it, and a server that
// wants it for writing only is read without.
func TestTokens(t *testing.T) {
	key, b := storetest.Entry(t, 1, 100)
	for _, c := range []struct {
		header, value string // that the server wants
		client        string // header of the client
		token         string
		ok            bool
	}{
		{"authorization", "Bearer r1ght-token", "", "r1ght-token", true},
		{"authorization", "Basic cjFnaHQ=", "Authorization", "Basic cjFnaHQ=", true},
		{"x-api-key", "r1ght-token", "X-API-Key", "r1ght-token", true},
		{"authorization", "Bearer r1ght-token", "", "wr0ng-token", false},
		{"authorization", "Bearer r1ght-token", "", "Basic wr0ng-token", false},
		{"authorization", "Bearer r1ght-token", "x-api-key", "r1ght-token", false},
		{"authorization", "Bearer r1ght-token", "", "", false},
	} {
		server := reapiserver.Start(t, reapiserver.Options{Header: c.header, Value: c.value})
		s := open(t, cas.Options{URL: "grpc://" + server.Addr, Header: c.client, Token: secret.New(c.token)})
		if c.ok {
			if err := s.Put(t.Context(), key, b); err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			storetest.Has(t, s, key, b)
			continue
		}
		for _, err := range []error{storetest.Fails(t, t.Context(), s, key), s.Put(t.Context(), key, b), s.Drop(t.Context(), key)} {
			if err == nil || strings.Contains(err.Error(), "r1ght") || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
	server := reapiserver.Start(t, reapiserver.Options{Header: "authorization", Value: "Bearer r1ght", AnyReads: true})
	anyone := open(t, cas.Options{URL: "grpc://" + server.Addr})
	if err := anyone.Put(t.Context(), key, b); !errors.Is(err, resultcache.ErrReadOnly) {
		t.Errorf("Put: %v", err)
	}
	storetest.Misses(t, anyone, key)
}

func TestTLS(t *testing.T) {
	f := storetest.Certificates(t)
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	server := reapiserver.Start(t, reapiserver.Options{TLS: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}})
	key, b := storetest.Entry(t, 1, 1<<20)
	s := open(t, cas.Options{URL: "grpcs://" + server.Addr, TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{client}}})
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, s, key, b)
	for what, o := range map[string]cas.Options{
		"unknown CA":             {URL: "grpcs://" + server.Addr},
		"no certificate of ours": {URL: "grpcs://" + server.Addr, TLS: &tls.Config{RootCAs: roots}},
		"another name":           {URL: "grpcs://" + server.Addr, TLS: &tls.Config{RootCAs: roots, ServerName: "elsewhere"}},
		"no TLS":                 {URL: "grpc://" + server.Addr},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := storetest.Fails(t, ctx, open(t, o), key); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
}

// TestAction: results of other versions are found by the same digest, whose parts are as the specification has them.
func TestAction(t *testing.T) {
	key := resultcache.Key{0xab, 31: 0xcd}
	a := actionOf(key)
	// Command: arguments (1) and output_paths (7); Action: command_digest (1), input_root_digest (2).
	command := "\n\x07rdistcc\n\x06result\n\x40" + key.String() + ":\x06result"
	digest := func(d *repb.Digest, size string) string { return "\n\x40" + d.Hash + size }
	sub := digest(a.command.Digest, fmt.Sprintf("\x10%c", len(command)))
	root := "\n\x40" + "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	want := fmt.Sprintf("\n%c%s\x12%c%s", len(sub), sub, len(root), root)
	if string(a.command.Data) != command || string(a.action.Data) != want {
		t.Errorf("got  %s\n     %s\nwant %s\n     %s", hex.EncodeToString(a.command.Data), hex.EncodeToString(a.action.Data), hex.EncodeToString([]byte(command)), hex.EncodeToString([]byte(want)))
	}
	if a.digest.Hash != cas.DigestOf([]byte(want)).Hash {
		t.Errorf("digest %s", a.digest)
	}
}

func TestTooBig(t *testing.T) {
	s := open(t, cas.Options{URL: "grpc://" + storetest.FreeAddr(t)})
	if err := s.Put(t.Context(), resultcache.Key{}, make([]byte, MaxEntry+1)); !errors.Is(err, resultcache.ErrTooBig) {
		t.Errorf("%v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, u := range []string{"", "host", "http://host", "grpc://id:s3cret@host", "grpcs://:s3cret@ho st/"} {
		if _, err := Open(cas.Options{URL: u}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", u, err)
		}
	}
}

// TestBazelRemote runs the tests of all stores with a server that many have, where it is installed.
func TestBazelRemote(t *testing.T) {
	program, err := exec.LookPath("bazel-remote")
	if err != nil {
		t.Skip("bazel-remote is not on PATH")
	}
	serve := func(settings ...string) string {
		addr, page := storetest.FreeAddr(t), storetest.FreeAddr(t)
		storetest.Start(t, addr, nil, program, append([]string{"--dir", t.TempDir(), "--max_size", "1", "--grpc_address", addr, "--http_address", page}, settings...)...)
		return addr
	}
	addr := serve()
	storetest.Suite(t, open(t, cas.Options{URL: "grpc://" + addr}))
	storetest.Trouble(t, addr, func(t *testing.T, addr string) resultcache.Store { return open(t, cas.Options{URL: "grpc://" + addr}) })

	const password = "s3cret"
	sum := sha1.Sum([]byte(password)) // as htpasswd -s has it
	file := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(file, []byte("ci:{SHA}"+base64.StdEncoding.EncodeToString(sum[:])+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr = serve("--htpasswd_file", file, "--allow_unauthenticated_reads")
	key, b := storetest.Entry(t, 1, 100)
	anyone := open(t, cas.Options{URL: "grpc://" + addr})
	storetest.Misses(t, anyone, key)
	if err := anyone.Put(t.Context(), key, b); !errors.Is(err, resultcache.ErrReadOnly) {
		t.Errorf("Put: %v", err)
	}
	ci := open(t, cas.Options{URL: "grpc://" + addr, Token: secret.New("Basic " + base64.StdEncoding.EncodeToString([]byte("ci:"+password)))})
	if err := ci.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, anyone, key, b)
}
