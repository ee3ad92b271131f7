package identity_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
)

// clock is one that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// TestNewFilesAreTaken: new files take effect by themselves, once they are complete; an invalid change
// keeps the old ones and is logged once. Existing connections continue.
func TestNewFilesAreTaken(t *testing.T) {
	a, next := newCA(t), newCA(t)
	k := &clock{at: time.Now()}
	s := a.daemon()
	d, err := identity.NewAt(identity.Daemon, s, k.now)
	if err != nil {
		t.Fatal(err)
	}
	var r record
	r.of(d)
	addr, got := listen(t, d)
	old, fresh := mustNew(t, identity.Client, a.client()), mustNew(t, identity.Client, next.client())
	works := func(id *identity.Identity, want bool, when string) {
		t.Helper()
		answer, err := ask(t, id, addr)
		<-got
		if (answer == "yes") != want {
			t.Fatalf("%s: answer %q, %v; should work: %v", when, answer, err, want)
		}
	}
	works(old, true, "at first")
	works(fresh, false, "client of a CA that is not in force")

	to := next.daemon()
	replace := func(path, with string) {
		t.Helper()
		text, err := os.ReadFile(with)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace(s.Cert, to.Cert)
	k.advance(500 * time.Millisecond)
	works(old, true, "with a new certificate without its key, before the next look")
	for range 5 {
		k.advance(3 * time.Second)
		works(old, true, "with a new certificate without its key")
	}
	replace(s.Key, to.Key)
	k.advance(3 * time.Second)
	works(old, true, "with a pair that another CA has signed")
	if n := strings.Count(r.text(), "are not taken"); n != 2 || !strings.Contains(r.text(), "does not belong to") || !strings.Contains(r.text(), "not signed by the CA") {
		t.Errorf("%d lines about two bad changes:\n%s", n, r.text())
	}
	if err := d.Reload(); err == nil {
		t.Error("Reload took what is not whole")
	}
	replace(s.CA, to.CA)
	k.advance(3 * time.Second)
	works(fresh, true, "all three are new")
	works(old, false, "client of the CA before")
	if n := strings.Count(r.text(), "are in force"); n != 1 {
		t.Errorf("%d lines about what is in force now:\n%s", n, r.text())
	}
	replace(s.Key, s.Cert)
	if err := d.Reload(); err == nil || !strings.Contains(err.Error(), "no private key") {
		t.Errorf("Reload of a file without a key: %v", err)
	}
	replace(s.Key, to.Key)
	if err := d.Reload(); err != nil {
		t.Errorf("Reload: %v", err)
	}
	works(fresh, true, "after all that")
}

// Files that are rewritten without a pause while connections are made: none of these
// ever sees half of them.
func TestReloadUnderWay(t *testing.T) {
	a := newCA(t)
	k := &clock{at: time.Now()}
	s := a.daemon()
	d, err := identity.NewAt(identity.Daemon, s, k.now)
	if err != nil {
		t.Fatal(err)
	}
	addr, got := listen(t, d)
	c := mustNew(t, identity.Client, a.client())
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				a.daemon() // over the same files
			}
			if i < 3000 { // the certificates are good for an hour
				k.advance(time.Second)
			}
		}
	}()
	for range 100 {
		if answer, err := ask(t, c, addr); err != nil || answer != "yes" {
			t.Errorf("answer %q, %v", answer, err)
		}
		<-got
	}
	close(stop)
	<-ended
}

// A shared key is read, and read again when it changes.
func TestKeyFile(t *testing.T) {
	a := newCA(t)
	k := &clock{at: time.Now()}
	path := a.write("key", []byte(strings.Repeat("k", 32)+"\n"), 0o600)
	id, err := identity.NewAt(identity.Daemon, identity.Settings{PSKFile: path}, k.now)
	if err != nil || id.Mode() != identity.PSK || id.Key() == nil {
		t.Fatalf("%v, mode %v", err, id.Mode())
	}
	old := id.Key()
	k.advance(3 * time.Second)
	a.write("key", []byte("short\n"), 0o600)
	if id.Key() != old {
		t.Error("a key that is too short was taken")
	}
	k.advance(3 * time.Second)
	a.write("key", []byte(strings.Repeat("n", 32)+"\n"), 0o600)
	if id.Key() == old {
		t.Error("the new key was not taken")
	}
	if _, err := identity.New(identity.Client, identity.Settings{PSKFile: path + "x"}); err == nil || !strings.Contains(err.Error(), path+"x") {
		t.Errorf("a key file that is not there: %v", err)
	}
}

// TestExpires: the end is the certificate's, or of the CA above it if that is earlier; that of new
// files is seen without a connection.
func TestExpires(t *testing.T) {
	a := newCA(t) // for an hour
	k := &clock{at: time.Now()}
	in := func(d time.Duration) time.Time { return k.now().Add(d).Truncate(time.Second) }
	issue := func(d time.Duration) identity.Settings {
		return a.issue("daemon", authority.Request{Role: identity.Daemon, Names: []string{"x"}, From: k.now().Add(-time.Hour), To: in(d)})
	}
	id, err := identity.NewAt(identity.Daemon, issue(20*time.Minute), k.now)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := id.Expires(), in(20*time.Minute); !got.Equal(want) {
		t.Errorf("expires at %v, want %v", got, want)
	}
	want := in(40 * time.Minute)
	issue(40 * time.Minute)
	k.advance(2 * time.Second) // it looks once a second
	if got := id.Expires(); !got.Equal(want) {
		t.Errorf("of new files: expires at %v, want %v", got, want)
	}
	issue(5 * time.Hour)
	k.advance(2 * time.Second)
	if got, want := id.Expires(), a.ca.Expires(); !got.Equal(want) {
		t.Errorf("of a CA that ends before: expires at %v, want %v", got, want)
	}
	if got := mustNew(t, identity.Client, identity.Settings{}).Expires(); !got.IsZero() {
		t.Errorf("without certificates: expires at %v", got)
	}
}
