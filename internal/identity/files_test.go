package identity_test

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
)

// TestFilesAreChecked: every error in the files is reported at the start, in one line that names the file.
func TestFilesAreChecked(t *testing.T) {
	a, other := newCA(t), newCA(t)
	good := a.daemon()
	client := a.client()
	foreign := other.issue("foreign", request(identity.Daemon, identity.Anyone))
	now := time.Now()
	old := request(identity.Daemon, identity.Anyone)
	old.From, old.To = now.Add(-48*time.Hour), now.Add(-24*time.Hour)
	early := request(identity.Daemon, identity.Anyone)
	early.From = now.Add(30 * time.Minute)
	expired, notYet := a.issue("expired", old), a.issue("early", early)
	odd := a.issue("odd", request(identity.Daemon, "a\nlevel=ERROR"))
	long := a.issue("long", request(identity.Daemon, strings.Repeat("x", 101)))
	text := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	with := func(change func(*identity.Settings)) identity.Settings {
		s := good
		change(&s)
		return s
	}
	locked := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	for _, tt := range []struct {
		what string
		s    identity.Settings
		want string // parts of the line
	}{
		{"two methods", with(func(s *identity.Settings) { s.PSKFile = "/x" }), "choose one"},
		{"no certificate", with(func(s *identity.Settings) { s.Cert = "" }), "certificate (tls-cert) is not set"},
		{"no key", with(func(s *identity.Settings) { s.Key = "" }), "key (tls-key) is not set"},
		{"no CA", with(func(s *identity.Settings) { s.CA = "" }), "CA (tls-ca) is not set"},
		{"missing", with(func(s *identity.Settings) { s.Cert = "/nowhere/x.crt" }), "certificate /nowhere/x.crt: no such file"},
		{"directory", with(func(s *identity.Settings) { s.CA = a.dir }), "not a regular file"},
		{"key of another", with(func(s *identity.Settings) { s.Key = client.Key }), client.Key + ": does not belong to the certificate " + good.Cert},
		{"key that others may write", with(func(s *identity.Settings) { s.Key = a.write("w.key", text(good.Key), 0o660) }), "chmod go-w"},
		{"key that all may read", with(func(s *identity.Settings) { s.Key = a.write("r.key", text(good.Key), 0o604) }), "chmod o="},
		{"certificate that others may write", with(func(s *identity.Settings) { s.Cert = a.write("w.crt", text(good.Cert), 0o646) }), "chmod go-w"},
		{"CA that a group may write", with(func(s *identity.Settings) { s.CA = a.write("w.ca", text(good.CA), 0o664) }), "chmod go-w"},
		{"no PEM", with(func(s *identity.Settings) { s.Cert = a.write("junk", []byte("junk"), 0o644) }), "holds no certificate in PEM"},
		{"no key in it", with(func(s *identity.Settings) { s.Key = a.write("junk.key", text(good.Cert), 0o600) }), "holds no private key"},
		{"passphrase", with(func(s *identity.Settings) { s.Key = a.write("l.key", locked, 0o600) }), "is encrypted"},
		{"broken certificate", with(func(s *identity.Settings) {
			s.Cert = a.write("b.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), 0o644)
		}), "b.crt: "},
		{"too long", with(func(s *identity.Settings) { s.CA = a.write("big", bytes.Repeat([]byte("\n"), 1<<20+1), 0o644) }), "longer than"},
		{"CA that is none", with(func(s *identity.Settings) { s.CA = good.Cert }), "is no CA's"},
		{"other CA", with(func(s *identity.Settings) { s.CA = other.file }), "not signed by the CA in " + other.file},
		{"signed by another", with(func(s *identity.Settings) { s.Cert, s.Key = foreign.Cert, foreign.Key }), "not signed by the CA in " + a.file},
		{"expired", expired, "expired on " + old.To.UTC().Format("2006-01-02")},
		{"not yet valid", notYet, "not valid before " + early.From.UTC().Format("2006-01-02")},
		{"clock", notYet, "the clock here says " + now.UTC().Format("2006-01-02 15:")},
		{"client's as a daemon's", client, "it lacks the extended key usage serverAuth"},
		{"name for a log", odd, "visible characters"},
		{"long name", long, "visible characters"},
	} {
		_, err := identity.New(identity.Daemon, tt.s)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want a line with %q", tt.what, err, tt.want)
		}
	}
	if _, err := identity.New(identity.Client, good); err == nil || !strings.Contains(err.Error(), "clientAuth") {
		t.Errorf("a daemon's certificate as a client's: %v", err)
	}
	for _, s := range []identity.Settings{good, with(func(s *identity.Settings) { s.Key = a.write("g.key", text(good.Key), 0o640) })} {
		if id, err := identity.New(identity.Daemon, s); err != nil || id.Mode() != identity.TLS {
			t.Errorf("good files: %v", err)
		}
	}
	if id, err := identity.New(identity.Daemon, identity.Settings{}); err != nil || id.Mode() != identity.Open {
		t.Errorf("no files: %v", err)
	}
}

// TestUnreadableKey: as a user other than root, a file that may not be read is named, together with the user.
func TestUnreadableKey(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("left out as root, who may read everything")
	}
	a := newCA(t)
	s := a.daemon()
	s.Key = a.write("k", []byte("x"), 0)
	if _, err := identity.New(identity.Daemon, s); err == nil || !strings.Contains(err.Error(), filepath.Base(s.Key)+": permission denied (for user ") {
		t.Errorf("unreadable key: %v", err)
	}
}
