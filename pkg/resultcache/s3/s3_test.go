package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/storetest"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Credentials of the server's administrator.
const (
	access = "AKIDEXAMPLE"
	secret = "s3cret-EXAMPLEKEY"
	bucket = "results"
)

// serve starts an S3 service with a bucket on a free port, and returns its address and the directory of its buckets.
func serve(t *testing.T, settings ...string) (addr, dir string, stop func()) {
	t.Helper()
	program, addr := storetest.Program(t, "versitygw"), storetest.FreeAddr(t)
	dir, about := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--quiet", "--port", addr, "--access", access, "--secret", secret}, settings...)
	return addr, dir, storetest.Start(t, addr, nil, program, append(args, "posix", "--sidecar", about, dir)...)
}

// login writes a file of credentials.
func login(t *testing.T, id, key string) Login {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = none\naws_secret_access_key = none\n[ci]\naws_access_key_id = " + id + "\naws_secret_access_key = " + key + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Login{File: file, Profile: "ci"}
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Bucket == "" {
		o.Bucket = bucket
	}
	if o.Login == (Login{}) {
		o.Login = login(t, access, secret)
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
	addr, dir, _ := serve(t)
	s := open(t, Options{Endpoint: "http://" + addr, Prefix: "team/"})
	storetest.Suite(t, s)
	key := resultcache.Key{0xab}
	if err := s.Put(t.Context(), key, []byte("entry")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, bucket, "team", "ab", key.String())); err != nil {
		t.Error(err)
	}
	storetest.Misses(t, open(t, Options{Endpoint: "http://" + addr, Prefix: "other/"}), key)
}

// TestLocation: where the bucket is, is asked once, by the first of all requests that begin at the same time, or before them.
func TestLocation(t *testing.T) {
	for _, warm := range []bool{false, true} {
		var asked, others atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("location") {
				asked.Add(1)
				fmt.Fprint(w, `<LocationConstraint xmlns="http://s3.amazonaws.com/doc/2006-03-01/">eu-west-3</LocationConstraint>`)
				return
			}
			if others.Add(1); !strings.Contains(r.Header.Get("Authorization"), "/eu-west-3/") {
				t.Errorf("signed for elsewhere: %s", r.Header.Get("Authorization"))
			}
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `<Error><Code>NoSuchKey</Code></Error>`)
		}))
		defer server.Close()
		s := open(t, Options{Endpoint: server.URL})
		if warm {
			s.Warm(t.Context())
			if asked.Load() != 1 || others.Load() != 0 {
				t.Errorf("Warm has asked %d times, and %d other requests", asked.Load(), others.Load())
			}
		}
		var all sync.WaitGroup
		for i := range byte(8) {
			all.Go(func() { storetest.Misses(t, s, resultcache.Key{i}) })
		}
		if all.Wait(); asked.Load() != 1 || others.Load() != 8 {
			t.Errorf("asked %d times where the bucket is, for %d requests", asked.Load(), others.Load())
		}
	}
}

func TestTrouble(t *testing.T) {
	addr, _, _ := serve(t)
	storetest.Trouble(t, addr, func(t *testing.T, addr string) resultcache.Store {
		return open(t, Options{Endpoint: "http://" + addr, Region: "us-east-1"})
	})
}

func TestServerStops(t *testing.T) {
	addr, _, stop := serve(t)
	s := open(t, Options{Endpoint: "http://" + addr})
	key, b := storetest.Entry(t, 1, 100)
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	stop()
	for range 3 {
		if err := storetest.Fails(t, t.Context(), s, key); strings.Contains(err.Error(), key.String()) {
			t.Errorf("a line that differs for each result: %v", err)
		}
	}
	if err := s.Put(t.Context(), key, b); err == nil {
		t.Error("Put succeeded without a server")
	}
}

// TestCredentials: from the environment, from a file, wrong ones and none; and no secret in an error.
func TestCredentials(t *testing.T) {
	addr, _, _ := serve(t)
	url := "http://" + addr
	key, b := storetest.Entry(t, 1, 100)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_ACCESS_KEY_ID", access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	s, err := Open(Options{Endpoint: url, Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, s, key, b)
	// A file that is named comes before the environment, and one in the usual place after it.
	storetest.Has(t, open(t, Options{Endpoint: url}), key, b)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wr0ng-secret")
	storetest.Has(t, open(t, Options{Endpoint: url}), key, b)
	usual := login(t, access, secret)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", usual.File)
	t.Setenv("AWS_PROFILE", "ci")
	fails := func(what, want string, l Login) {
		t.Helper()
		s, err := Open(Options{Endpoint: url, Bucket: bucket, Login: l})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{storetest.Fails(t, t.Context(), s, key), s.Put(t.Context(), key, b), s.Drop(t.Context(), key)} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
	fails("a wrong secret", "signature", Login{})
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	s, err = Open(Options{Endpoint: url, Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, s, key, b)
	fails("an unknown user", "", login(t, "AKIDNOBODY", "wr0ng-secret"))
	fails("no such profile", "no credentials", Login{Profile: "none"})
	fails("no such file", "no credentials", Login{File: "/none"})
}

// TestAnonymous: a bucket that everybody may read is read without credentials, and is not written to.
func TestAnonymous(t *testing.T) {
	addr, _, _ := serve(t)
	owner := open(t, Options{Endpoint: "http://" + addr})
	key, b := storetest.Entry(t, 1, 100)
	if err := owner.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	anyone := open(t, Options{Endpoint: "http://" + addr, Login: Login{Anonymous: true}})
	if err := storetest.Fails(t, t.Context(), anyone, key); !strings.Contains(err.Error(), "s3:ListBucket") {
		t.Errorf("a bucket that must not be read: %v", err)
	}
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:ListBucket"],"Resource":["arn:aws:s3:::results","arn:aws:s3:::results/*"]}]}`
	if err := owner.client.SetBucketPolicy(t.Context(), bucket, policy); err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, anyone, key, b)
	storetest.Misses(t, anyone, resultcache.Key{9})
	if err := anyone.Put(t.Context(), key, b); !errors.Is(err, resultcache.ErrReadOnly) {
		t.Errorf("Put: %v", err)
	}
	if err := anyone.Drop(t.Context(), key); !errors.Is(err, resultcache.ErrReadOnly) {
		t.Errorf("Drop: %v", err)
	}
}

// TestNoBucket: a bucket that is not there is trouble, not a miss.
func TestNoBucket(t *testing.T) {
	addr, _, _ := serve(t)
	s := open(t, Options{Endpoint: "http://" + addr, Bucket: "another"})
	if err := storetest.Fails(t, t.Context(), s, resultcache.Key{}); !strings.Contains(err.Error(), "bucket") {
		t.Errorf("Get: %v", err)
	}
	if err := s.Put(t.Context(), resultcache.Key{}, []byte("x")); err == nil {
		t.Error("Put succeeded")
	}
}

// TestHostAddressing: the bucket stands where the settings say.
func TestHostAddressing(t *testing.T) {
	addr, _, _ := serve(t, "--virtual-domain", "s3.localhost")
	_, port, _ := strings.Cut(addr, ":")
	key, b := storetest.Entry(t, 1, 100)
	path := open(t, Options{Endpoint: "http://" + addr, Addressing: Path})
	host := open(t, Options{Endpoint: "http://s3.localhost:" + port, Addressing: Host, Region: "us-east-1"})
	host.transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) { // no resolver knows the name
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	if err := path.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, host, key, b)
}

func TestTLS(t *testing.T) {
	f := storetest.Certificates(t)
	addr, _, _ := serve(t, "--cert", f.Cert, "--key", f.Key)
	text, err := os.ReadFile(f.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	key, b := storetest.Entry(t, 1, 1<<20)
	s := open(t, Options{Endpoint: "https://" + addr, TLS: &tls.Config{RootCAs: roots}})
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	storetest.Has(t, s, key, b)
	for what, o := range map[string]Options{
		"unknown CA":   {Endpoint: "https://" + addr},
		"another name": {Endpoint: "https://" + addr, TLS: &tls.Config{RootCAs: roots, ServerName: "elsewhere"}},
		"no TLS":       {Endpoint: "http://" + addr},
	} {
		if err := storetest.Fails(t, t.Context(), open(t, o), key); strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLies: an answer that cannot be an entry costs an error, and no memory.
func TestLies(t *testing.T) {
	for _, lie := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\nLast-Modified: Thu, 26 Nov 2026 07:00:00 GMT\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: 70000000\r\nLast-Modified: Thu, 26 Nov 2026 07:00:00 GMT\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nLast-Modified: Thu, 26 Nov 2026 07:00:00 GMT\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n<html",
		"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 403 \x1b[31mForbidden\r\nContent-Length: 70\r\n\r\n<Error><Code>X</Code><Message>two\nlines\x1b[31m</Message></Error>        ",
	} {
		s := open(t, Options{Endpoint: "http://" + storetest.Answers(t, lie), Region: "us-east-1"})
		got, err := s.Get(t.Context(), resultcache.Key{1}, nil)
		if err == nil || len(got) > 0 || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%.60q: %q, %v", lie, got, err)
		}
	}
}

func TestTooBig(t *testing.T) {
	s := open(t, Options{Endpoint: "http://" + storetest.FreeAddr(t)})
	if err := s.Put(t.Context(), resultcache.Key{}, make([]byte, MaxEntry+1)); !errors.Is(err, resultcache.ErrTooBig) {
		t.Errorf("%v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, u := range []string{"", "host", "ftp://host", "http://id:s3cret@host", "https://:s3cret@ho st/"} {
		if _, err := Open(Options{Endpoint: u, Bucket: bucket}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", u, err)
		}
	}
	if _, err := Open(Options{Endpoint: "http://host", Bucket: bucket, Addressing: "else"}); err == nil {
		t.Error("an unknown addressing gave no error")
	}
}
