package identity_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
)

// ca is a CA of a test's with a directory for what it signs.
type ca struct {
	t    testing.TB
	dir  string
	ca   *authority.CA
	file string
}

func newCA(t testing.TB) *ca {
	t.Helper()
	a, pair, err := authority.New("test farm", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := &ca{t: t, dir: t.TempDir(), ca: a}
	c.file = c.write("ca.crt", pair.Cert, 0o644)
	return c
}

func (c *ca) write(name string, text []byte, mode os.FileMode) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, text, mode); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// request is an hour around now.
func request(role identity.Role, names ...string) authority.Request {
	return authority.Request{Role: role, Names: names, From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)}
}

// issue writes a pair that this CA has signed.
func (c *ca) issue(name string, r authority.Request) identity.Settings {
	c.t.Helper()
	p, err := c.ca.Issue(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return identity.Settings{Cert: c.write(name+".crt", p.Cert, 0o644), Key: c.write(name+".key", p.Key, 0o600), CA: c.file}
}

func (c *ca) daemon(names ...string) identity.Settings {
	if len(names) == 0 {
		names = []string{identity.Anyone}
	}
	return c.issue("daemon", request(identity.Daemon, names...))
}

func (c *ca) client() identity.Settings { return c.issue("client", request(identity.Client, "build7")) }

func mustNew(t testing.TB, role identity.Role, s identity.Settings) *identity.Identity {
	t.Helper()
	id, err := identity.New(role, s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// record keeps what an identity says of failures.
type record struct {
	mu     sync.Mutex
	causes []string
	log    bytes.Buffer
}

func (r *record) of(id *identity.Identity) {
	id.OnFailure(func(cause string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.causes = append(r.causes, cause)
	})
	id.SetLog(slog.New(slog.NewTextHandler(r, nil)))
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *record) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *record) failed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.causes, " ")
}

// use returns an identity whose clock changes once the files are read.
func use(t *testing.T, role identity.Role, s identity.Settings, clock func() time.Time) *identity.Identity {
	t.Helper()
	var moved atomic.Bool
	id, err := identity.NewAt(role, s, func() time.Time {
		if moved.Load() {
			return clock()
		}
		return time.Now()
	})
	if err != nil {
		t.Fatal(err)
	}
	moved.Store(true)
	return id
}
