package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// serve starts a Redis server with more settings on a free port, and returns its address.
func serve(t *testing.T, settings ...string) (addr string, stop func()) {
	t.Helper()
	program := storetest.Program(t, "redis-server")
	addr = storetest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	return addr, storetest.Start(t, addr, nil, program, append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}, settings...)...)
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Prefix == "" {
		o.Prefix = "test:"
	}
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

func TestStore(t *testing.T) {
	addr, _ := serve(t)
	storetest.Suite(t, open(t, Options{URL: "redis://" + addr}))
}

// TestWarm: looks find connections, and those that are there are not made again.
func TestWarm(t *testing.T) {
	addr, _ := serve(t)
	s := open(t, Options{URL: "redis://" + addr})
	for range 2 {
		s.Warm(t.Context())
	}
	if n := s.client.PoolStats(); n.IdleConns < 1 || n.TotalConns > warmConns {
		t.Errorf("%+v", n)
	}
	before := s.client.PoolStats().Misses
	storetest.Misses(t, s, resultcache.Key{1})
	if n := s.client.PoolStats().Misses; n != before {
		t.Errorf("a look has made %d connections", n-before)
	}
}

func TestTrouble(t *testing.T) {
	addr, _ := serve(t)
	storetest.Trouble(t, addr, func(t *testing.T, addr string) resultcache.Store { return open(t, Options{URL: "redis://" + addr}) })
}

func TestServerStops(t *testing.T) {
	addr, stop := serve(t)
	s := open(t, Options{URL: "redis://" + addr})
	key, b := storetest.Entry(t, 1, 100)
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	stop()
	for range 3 {
		_ = storetest.Fails(t, t.Context(), s, key)
	}
	if err := s.Put(t.Context(), key, b); err == nil {
		t.Error("Put succeeded without a server")
	}
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "rdistcc-redis-") // a short name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "sock")
	serve(t, "--unixsocket", socket)
	for limit := time.Now().Add(2 * time.Minute); ; { // it listens there after it does at its address
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	s := open(t, Options{URL: "unix://" + socket})
	key, b := storetest.Entry(t, 1, 100)
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, s, key, b)
}

// TestDatabasePrefixAndTTL: two stores of one server do not see each other's entries, and those expire.
func TestDatabasePrefixAndTTL(t *testing.T) {
	addr, _ := serve(t)
	url := "redis://" + addr
	s, key, b := open(t, Options{URL: url, TTL: time.Hour}), resultcache.Key{1}, []byte("entry")
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	storetest.Misses(t, open(t, Options{URL: url, Database: 3}), key)
	storetest.Misses(t, open(t, Options{URL: url, Prefix: "other:"}), key)
	if left, err := s.client.TTL(t.Context(), "test:"+key.String()).Result(); err != nil || left <= 0 || left > time.Hour {
		t.Errorf("it expires in %s, %v", left, err)
	}
	forever := open(t, Options{URL: url, Database: 3})
	if err := forever.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	if left, err := forever.client.TTL(t.Context(), "test:"+key.String()).Result(); err != nil || left != -1 {
		t.Errorf("without a TTL: %s, %v", left, err)
	}
}

// TestPasswords: the right password opens a server, a wrong one or none is an error without the password in it.
func TestPasswords(t *testing.T) {
	const right, wrong = "r1ght-password", "wr0ng-password"
	plain, _ := serve(t, "--requirepass", right)
	list := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(list, []byte("user ci on >"+right+" ~test:* +@all\nuser reader on >"+right+" ~test:* +get\nuser default off\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	users, _ := serve(t, "--aclfile", list)
	// A server without AUTH repeats the password in its answer.
	renamed, _ := serve(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	key, b := storetest.Entry(t, 1, 100)
	for _, c := range []struct {
		addr, user, password string
		ok                   bool
	}{
		{plain, "", right, true}, {plain, "", wrong, false}, {plain, "", "", false},
		{users, "ci", right, true}, {users, "ci", wrong, false}, {users, "", right, false}, {users, "nobody", wrong, false},
		{renamed, "", wrong, false}, {renamed, "ci", wrong, false},
	} {
		s := open(t, Options{URL: "redis://" + c.addr, User: c.user, Password: secret.New(c.password)})
		err := s.Put(t.Context(), key, b)
		if c.ok {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
				continue
			}
			storetest.Has(t, s, key, b)
			continue
		}
		if err == nil {
			t.Errorf("%+v: Put succeeded", c)
		}
		for _, err := range []error{err, storetest.Fails(t, t.Context(), s, key), s.Drop(t.Context(), key)} {
			if err == nil || strings.Contains(err.Error(), right) || strings.Contains(err.Error(), wrong) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
	reader := open(t, Options{URL: "redis://" + users, User: "reader", Password: secret.New(right)})
	storetest.Has(t, reader, key, b)
	if err := reader.Put(t.Context(), key, b); !errors.Is(err, resultcache.ErrReadOnly) {
		t.Errorf("Put of a user who may read only: %v", err)
	}
	if err := reader.Drop(t.Context(), key); !errors.Is(err, resultcache.ErrReadOnly) {
		t.Errorf("Drop of a user who may read only: %v", err)
	}
}

func TestReplica(t *testing.T) {
	addr, _ := serve(t)
	host, port, _ := net.SplitHostPort(addr)
	replica, _ := serve(t, "--replicaof", host+" "+port)
	s := open(t, Options{URL: "redis://" + replica})
	if err := s.Put(t.Context(), resultcache.Key{1}, []byte("entry")); !errors.Is(err, resultcache.ErrReadOnly) {
		t.Errorf("Put to a replica: %v", err)
	}
}

func TestTLS(t *testing.T) {
	f := storetest.Certificates(t)
	program := storetest.Program(t, "redis-server")
	addr := storetest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	storetest.Start(t, addr, nil, program, "--port", "0", "--tls-port", port, "--bind", "127.0.0.1", "--save", "",
		"--tls-cert-file", f.Cert, "--tls-key-file", f.Key, "--tls-ca-cert-file", f.CA)
	text, err := os.ReadFile(f.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	pair, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	key, b := storetest.Entry(t, 1, 1<<20)
	good := open(t, Options{URL: "rediss://" + addr, TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}})
	if err := good.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, good, key, b)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for what, o := range map[string]Options{
		"unknown CA":             {URL: "rediss://" + addr},
		"no certificate of ours": {URL: "rediss://" + addr, TLS: &tls.Config{RootCAs: roots}},
		"another name":           {URL: "rediss://" + addr, TLS: &tls.Config{RootCAs: roots, ServerName: "elsewhere"}},
		"no TLS":                 {URL: "redis://" + addr},
	} {
		if err := storetest.Fails(t, ctx, open(t, o), key); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTooBig(t *testing.T) {
	s := open(t, Options{URL: "redis://" + storetest.FreeAddr(t)})
	if err := s.Put(t.Context(), resultcache.Key{}, make([]byte, MaxEntry+1)); !errors.Is(err, resultcache.ErrTooBig) {
		t.Errorf("%v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, u := range []string{"", "host", "http://host", "redis://user:s3cret@host", "redis://:s3cret@ho st/"} {
		if _, err := Open(Options{URL: u}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", u, err)
		}
	}
}

// TestGuard: what servers may say passes however it is cut, and nothing else does.
func TestGuard(t *testing.T) {
	const good = "+OK\r\n$-1\r\n$5\r\na\r\n$9\r\n:3\r\n*2\r\n$1\r\n9\r\n:1\r\n-ERR no\r\n$0\r\n\r\n_\r\n"
	for n := 1; n <= len(good); n++ {
		var g guarded
		for i := 0; i < len(good); i += n {
			if err := g.look([]byte(good[i:min(i+n, len(good))])); err != nil {
				t.Fatalf("in pieces of %d: %v", n, err)
			}
		}
		if g.skip != 0 || len(g.line) != 0 {
			t.Errorf("in pieces of %d it ends in a value", n)
		}
	}
	for _, bad := range []string{"$99999999999\r\n", "$67108865\r\n", "*5000\r\n", "$-2\r\n", "$x\r\n", "HTTP/1.1\r\n", "\n", strings.Repeat("+", maxLine+1)} {
		var g guarded
		if g.look([]byte(bad)) == nil {
			t.Errorf("%.20q passes", bad)
		}
	}
}

func FuzzGuard(f *testing.F) {
	f.Add([]byte("+OK\r\n$5\r\nabcde\r\n"), 3)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		var whole, cut guarded
		err := whole.look(b)
		n = min(max(n, 0), len(b))
		cutErr := cut.look(b[:n])
		if cutErr == nil {
			cutErr = cut.look(b[n:])
		}
		if (err == nil) != (cutErr == nil) {
			t.Errorf("whole: %v, cut after %d: %v", err, n, cutErr)
		}
		if len(whole.line) > maxLine || whole.skip > MaxEntry+2 {
			t.Errorf("keeps %d bytes, skips %d", len(whole.line), whole.skip)
		}
	})
}

// TestLies: a server that greets as Redis does, and then announces what nobody could hold, costs an error.
func TestLies(t *testing.T) {
	for _, lie := range []string{"$9223372036854775806\r\n", "$9223372036854775807\r\n", "$200000000000000\r\nx", "$99999999999\r\n", "*2147483647\r\n:1\r\n", ":1\r\n", "-\r\n", "$3\r\nab"} {
		addr := storetest.Answers(t, "-ERR unknown command 'HELLO'\r\n", lie)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		got, err := open(t, Options{URL: "redis://" + addr}).Get(ctx, resultcache.Key{1}, nil)
		cancel()
		if errors.Is(err, resultcache.ErrMiss) || err == nil && string(got) != "1" {
			t.Errorf("%q: %q, %v", lie, got, err)
		}
	}
}
