package identity_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/authority"
)

// kept is the sum of a result in a store.
var kept = [32]byte{1, 2, 3}

func trusts(t testing.TB, id *identity.Identity, whom identity.Trusted) *identity.Trust {
	t.Helper()
	x, err := identity.NewTrust(id, whom)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func keeps(t testing.TB, id *identity.Identity) []byte {
	t.Helper()
	sig, err := id.SignKept(kept)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// TestTrustTheFarm: machines of the farm count, whether they have a daemon's certificate or a client's, and with any kind of key;
// others do not, nor does what was signed for another purpose, or is other than what was signed.
func TestTrustTheFarm(t *testing.T) {
	now := time.Now()
	for kind, key := range kindsOfKeys {
		id := mustNew(t, identity.Daemon, newCA(t).chained(key))
		if who, err := trusts(t, id, identity.Trusted{Farm: true}).Verify(kept, now, keeps(t, id)); err != nil || who != "build7" {
			t.Errorf("%s: %q, %v", kind, who, err)
		}
	}
	farm, other := newCA(t), newCA(t)
	host, client := mustNew(t, identity.Daemon, farm.daemon("build9")), mustNew(t, identity.Client, farm.client())
	trust := trusts(t, client, identity.Trusted{Farm: true})
	for who, id := range map[string]*identity.Identity{"build9": host, "build7": client} {
		sig := keeps(t, id)
		if got, err := trust.Verify(kept, now, sig); err != nil || got != who {
			t.Errorf("%s: %q, %v", who, got, err)
		}
		if got, err := trust.Verify([32]byte{1}, now, sig); err == nil {
			t.Errorf("for another result: that of %s", got)
		}
		for i := range sig {
			sig[i] ^= 0x40
			if got, err := trust.Verify(kept, now, sig); err == nil && i < 60 {
				t.Errorf("byte %d is another: that of %s", i, got)
			}
			sig[i] ^= 0x40
			if _, err := trust.Verify(kept, now, sig[:i]); err == nil {
				t.Errorf("cut after %d bytes, and accepted", i)
			}
		}
	}
	if _, err := trust.Verify(kept, now, keeps(t, mustNew(t, identity.Client, other.client()))); !errors.Is(err, identity.ErrStranger) || !strings.Contains(err.Error(), "build7") {
		t.Errorf("a client of another CA: %v", err)
	}
	job, err := host.SignResult(kept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Verify(kept, now, job); err == nil {
		t.Error("a signature for what a host shares counts in a store")
	}
	if _, err := client.VerifyResult(kept, keeps(t, host)); err == nil {
		t.Error("a signature for a store counts for what a host shares")
	}
	if _, err := mustNew(t, identity.Client, identity.Settings{}).SignKept(kept); err == nil {
		t.Error("a side without a certificate signs")
	}
}

// TestTrustSome: of the farm's machines, only those that are named count, if any are; one that is excepted never does.
func TestTrustSome(t *testing.T) {
	farm := newCA(t)
	ci, alice := mustNew(t, identity.Client, farm.issue("ci", request(identity.Client, "ci"))), mustNew(t, identity.Client, farm.issue("alice", request(identity.Client, "alice")))
	for what, c := range map[string]struct {
		whom      identity.Trusted
		ci, alice bool
	}{
		"all":           {identity.Trusted{Farm: true}, true, true},
		"one":           {identity.Trusted{Names: []string{"ci", "other"}}, true, false},
		"all but one":   {identity.Trusted{Farm: true, Not: []string{"alice"}}, true, false},
		"none":          {identity.Trusted{Names: []string{"ci"}, Not: []string{"ci"}}, false, false},
		"nobody at all": {identity.Trusted{}, false, false},
	} {
		trust := trusts(t, ci, c.whom)
		for who, x := range map[string]struct {
			id   *identity.Identity
			want bool
		}{"ci": {ci, c.ci}, "alice": {alice, c.alice}} {
			sig := keeps(t, x.id)
			_, err := trust.Verify(kept, time.Now(), sig)
			if (err == nil) != x.want || err != nil && !errors.Is(err, identity.ErrStranger) {
				t.Errorf("%s: %s: %v", what, who, err)
			}
			if (trust.Accepts(time.Now(), sig) == nil) != x.want {
				t.Errorf("%s: %s: what was verified before counts otherwise", what, who)
			}
		}
	}
}

// TestTrustFiles: CAs, certificates and public keys of a file count, in a farm and without one; what a file says anew is taken, and
// what is wrong in it is not.
func TestTrustFiles(t *testing.T) {
	now := time.Now()
	ci, people := newCA(t), newCA(t)
	signer := mustNew(t, identity.Client, ci.client())
	sig := keeps(t, signer)
	leaf, err := os.ReadFile(filepath.Join(ci.dir, "client.crt"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := pem.Decode(leaf)
	cert, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(ci.file)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: cert.RawSubjectPublicKeyInfo})
	stranger := keeps(t, mustNew(t, identity.Client, ci.issue("other", request(identity.Client, "other")))) // of the same CA
	for what, c := range map[string]struct {
		text     []byte
		stranger bool // counts too
	}{
		"its CA":          {root, true},
		"its certificate": {leaf, false},
		"its key":         {append([]byte("a comment\n"), public...), false},
	} {
		file := people.write("trust.pem", c.text, 0o644)
		for kind, id := range map[string]*identity.Identity{"in a farm": mustNew(t, identity.Client, people.client()), "without one": mustNew(t, identity.Client, identity.Settings{})} {
			trust := trusts(t, id, identity.Trusted{Farm: kind == "in a farm", Files: []string{file}})
			if who, err := trust.Verify(kept, now, sig); err != nil || who != "build7" {
				t.Errorf("%s, %s: %q, %v", what, kind, who, err)
			}
			if _, err := trust.Verify(kept, now, stranger); (err == nil) != c.stranger {
				t.Errorf("%s, %s: another one of that CA: %v", what, kind, err)
			}
		}
	}
	for what, c := range map[string]struct {
		text []byte
		mode os.FileMode
		want string
	}{
		"empty":         {nil, 0o644, "holds neither a certificate"},
		"a private key": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}}), 0o600, "holds neither a certificate"},
		"garbage":       {pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte{1}}), 0o644, "trust.pem"},
		"writable":      {root, 0o666, "chmod go-w"},
	} {
		file := people.write("trust.pem", c.text, c.mode)
		if _, err := identity.NewTrust(signer, identity.Trusted{Files: []string{file}}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := identity.NewTrust(signer, identity.Trusted{Files: []string{"/nowhere/x.pem"}}); err == nil || !strings.Contains(err.Error(), "/nowhere/x.pem") {
		t.Error(err)
	}
	if _, err := identity.NewTrust(mustNew(t, identity.Client, identity.Settings{}), identity.Trusted{Farm: true}); err == nil {
		t.Error("a farm without certificates counts")
	}
}

// TestTrustFileChanges: whom a file does not name any more does not count any more, without a restart; a file that is broken changes
// nothing, and the log has one line.
func TestTrustFileChanges(t *testing.T) {
	one, two := newCA(t), newCA(t)
	sig := keeps(t, mustNew(t, identity.Client, one.client()))
	text := func(c *ca) []byte {
		b, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	clock := time.Now()
	id, err := identity.NewAt(identity.Client, identity.Settings{}, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	id.SetLog(slog.New(slog.NewTextHandler(&log, nil)))
	file := one.write("trust.pem", text(one), 0o644)
	trust := trusts(t, id, identity.Trusted{Files: []string{file}})
	verifies := func() bool {
		clock = clock.Add(2 * time.Second)
		_, err := trust.Verify(kept, time.Now(), sig)
		return err == nil
	}
	if !verifies() {
		t.Error("it does not count at first")
	}
	one.write("trust.pem", []byte("half a file"), 0o644)
	for range 3 {
		if !verifies() {
			t.Error("a broken file changes something")
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	one.write("trust.pem", text(two), 0o644)
	if verifies() {
		t.Error("who was removed counts")
	}
	if trust.Accepts(time.Now(), sig) == nil {
		t.Error("what was verified before counts")
	}
	one.write("trust.pem", append(text(two), text(one)...), 0o644)
	if !verifies() {
		t.Error("who was added does not count")
	}
}

// TestTrustAndTime: a signature counts while its certificate is valid, and for some time after that if it was made before. One who
// makes it with an expired certificate has to lie about the time.
func TestTrustAndTime(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	a, pair, err := authority.New("test farm", now, 400*day)
	if err != nil {
		t.Fatal(err)
	}
	farm := &ca{t: t, dir: t.TempDir(), ca: a}
	farm.file = farm.write("ca.crt", pair.Cert, 0o644)
	sig := keeps(t, mustNew(t, identity.Client, farm.client())) // valid from an hour ago for two hours
	end := now.Add(time.Hour)
	pinned := filepath.Join(farm.dir, "client.crt")
	text, err := os.ReadFile(pinned)
	if err != nil {
		t.Fatal(err)
	}
	own := farm.issue("own", authority.Request{Role: identity.Client, Names: []string{"reader"}, From: now.Add(-time.Hour), To: now.Add(390 * day)})
	for _, whom := range []identity.Trusted{{Farm: true}, {Files: []string{pinned}}} {
		for _, c := range []struct {
			clock, made time.Duration
			want        bool
		}{
			{0, 0, true},
			{0, -3 * time.Hour, true}, // a result that was made before its machine had this certificate
			{2 * time.Hour, 0, true},
			{2 * time.Hour, 90 * time.Minute, false},
			{2 * time.Hour, -3 * time.Hour, false},
			{29 * day, 0, true},
			{32 * day, 0, false},
			{-2 * time.Hour, 0, false}, // the clock here is behind
		} {
			for _, warm := range []bool{false, true} {
				clock := now
				trust := trusts(t, use(t, identity.Client, own, func() time.Time { return clock }), whom)
				if warm {
					if _, err := trust.Verify(kept, now, sig); err != nil {
						t.Fatal(err)
					}
				}
				if clock = now.Add(c.clock); warm && c.clock < 0 {
					continue // what was verified stays so
				}
				_, err := trust.Verify(kept, now.Add(c.made), sig)
				if (err == nil) != c.want || err != nil && !errors.Is(err, identity.ErrExpired) {
					t.Errorf("%+v: after %v, made at %v, seen before %t: %v", whom, c.clock, c.made, warm, err)
				}
				if err := trust.Accepts(now.Add(c.made), sig); err != nil {
					t.Errorf("a copy here: after %v: %v", c.clock, err)
				}
			}
		}
	}
	late := use(t, identity.Client, farm.client(), func() time.Time { return end.Add(time.Minute) })
	if _, err := late.SignKept(kept); err == nil || !strings.Contains(err.Error(), "expired on") {
		t.Errorf("with a certificate that has expired: %v", err)
	}
	// A key that counts by itself does so whatever its certificate says.
	b, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key := farm.write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: leaf.RawSubjectPublicKeyInfo}), 0o644)
	trust := trusts(t, use(t, identity.Client, own, func() time.Time { return now.Add(100 * day) }), identity.Trusted{Files: []string{key}})
	if _, err := trust.Verify(kept, now, sig); err != nil {
		t.Error(err)
	}
}

// TestRotatedCA: while both CAs are in the farm's file, what machines of either have signed counts; then that of the old one does not.
func TestRotatedCA(t *testing.T) {
	old, new := newCA(t), newCA(t)
	text := func(c *ca) []byte {
		b, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	was, is := keeps(t, mustNew(t, identity.Client, old.client())), keeps(t, mustNew(t, identity.Client, new.client()))
	for _, both := range []bool{true, false} {
		s := new.client()
		if both {
			s.CA = new.write("both.crt", append(text(new), text(old)...), 0o644)
		}
		trust := trusts(t, mustNew(t, identity.Client, s), identity.Trusted{Farm: true})
		if _, err := trust.Verify(kept, time.Now(), is); err != nil {
			t.Error(err)
		}
		if _, err := trust.Verify(kept, time.Now(), was); (err == nil) != both {
			t.Errorf("both %t: %v", both, err)
		}
	}
}

// BenchmarkKept is what a result costs whoever puts it into a store, whoever takes it from there, and each hit of the copy.
func BenchmarkKept(b *testing.B) {
	id := mustNew(b, identity.Client, newCA(b).client())
	trust := trusts(b, id, identity.Trusted{Farm: true})
	sig, now := keeps(b, id), time.Now()
	for name, do := range map[string]func() error{
		"sign":    func() error { _, err := id.SignKept(kept); return err },
		"verify":  func() error { _, err := trust.Verify(kept, now, sig); return err },
		"accepts": func() error { return trust.Accepts(now, sig) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
