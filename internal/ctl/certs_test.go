package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
)

// What certs makes is what daemons and managers take, whatever the mask of the user.
func TestCerts(t *testing.T) {
	s := newShell(t)
	dir := filepath.Join(s.dir, "new", "farm")
	at := func(name string) string { return filepath.Join(dir, name) }
	opens := func(role identity.Role, name string) *identity.Identity {
		t.Helper()
		id, err := identity.New(role, identity.Settings{Cert: at(name + ".crt"), Key: at(name + ".key"), CA: at("ca.crt")})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	out := s.want(0, "ca.key: anyone with the key", "", "certs", dir)
	for _, line := range []string{
		"any daemon, until ", `listen: ["0.0.0.0:7632"]`,
		"tls: {cert: /etc/rdistcc/rdistccd.crt, key: /etc/rdistcc/rdistccd.key, ca: /etc/rdistcc/ca.crt}",
		"tls: {cert: /etc/rdistcc/client.crt, key: /etc/rdistcc/client.key, ca: /etc/rdistcc/ca.crt}",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	for _, name := range []string{"ca.key", "client.key", "rdistccd.key"} {
		if st, err := os.Stat(at(name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v: want 0600", name, st.Mode(), err)
		}
	}
	opens(identity.Client, "client")
	opens(identity.Daemon, "rdistccd")

	// Nothing is overwritten, and nothing is half made.
	before, _ := os.ReadFile(at("client.key"))
	s.want(100, "", "client.crt is there already", "certs", dir, "--daemon", "build7", "--client", "client")
	after, _ := os.ReadFile(at("client.key"))
	if _, err := os.Stat(at("build7.crt")); err == nil || string(before) != string(after) {
		t.Error("a run that failed has made something")
	}
	if out := s.want(0, "build7.crt and .key: daemon build7, 10.0.0.7, ::1, until ", "", "certs", dir, "--daemon", "build7,10.0.0.7,::1", "--client", "alice@ci", "--days", "7"); strings.Contains(out, "ca.key:") {
		t.Errorf("a second CA:\n%s", out)
	}
	opens(identity.Client, "alice@ci")
	if left := time.Until(opens(identity.Daemon, "build7").Expires()); left < 6*24*time.Hour || left > 8*24*time.Hour {
		t.Errorf("--days 7: %v left", left)
	}
	if _, err := identity.New(identity.Daemon, identity.Settings{Cert: at("client.crt"), Key: at("client.key"), CA: at("ca.crt")}); err == nil {
		t.Error("a client's pair is taken for a daemon's")
	}

	for _, tt := range [][]string{
		{"is no name", "--daemon", "../x"}, {"is no name", "--daemon", ""}, {"is no name", "--client", "a b"}, {"is no name", "--daemon", "a_b"},
		{"is no name", "--daemon", "a,"}, {"one name for each", "--client", "a,b"}, {"or is the CA's", "--client", "ca"},
		{"twice", "--daemon", "a", "--client", "a"}, {"1 to ", "--days", "0"},
	} {
		s.want(101, "", tt[0], append([]string{"certs", dir}, tt[1:]...)...)
	}
	if err := os.Remove(at("ca.key")); err != nil {
		t.Fatal(err)
	}
	s.want(107, "", "without the CA's key nothing can be signed", "certs", dir, "--client", "bob")
	other := filepath.Join(s.dir, "other")
	s.want(0, "", "", "certs", other)
	foreign, _ := os.ReadFile(filepath.Join(other, "ca.key"))
	if err := os.WriteFile(at("ca.key"), foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(100, "", "does not belong to its certificate", "certs", dir, "--client", "bob")

	// A CA that has expired signs nothing.
	_, old, err := authority.New("x", time.Now().Add(-2*time.Hour), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("ca.key"), old.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("ca.crt"), old.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	s.want(100, "", "expired on", "certs", dir, "--client", "bob")
}
