package results

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// signer is somebody who signs, in these tests by name.
type signer struct {
	name string
	err  error // of signing
}

func (s *signer) sign(sum [32]byte) ([]byte, error) {
	return fmt.Appendf(nil, "%s %x", s.name, sum), s.err
}

// signed is a cache whose near tier is this machine's own, and whose far one others use. It trusts the names in trusted, which may
// change.
type signed struct {
	*bench
	trusted []string
}

// signedBench returns one that signs as me, or not at all.
func signedBench(t *testing.T, me string, trusted ...string) *signed {
	t.Helper()
	b := &signed{bench: &bench{counts: make(map[string]int)}, trusted: trusted}
	by := func(signature []byte) error {
		name, _, _ := strings.Cut(string(signature), " ")
		for _, n := range b.trusted {
			if n == name {
				return nil
			}
		}
		return fmt.Errorf("%s does not count", name)
	}
	o := Options{
		Tiers: []Tier{{Name: resultcache.TierManager, Store: &b.near, Read: true, Write: true}, {Name: "far", Store: &b.far, Read: true, Write: true, Shared: true}},
		Log:   slog.New(slog.NewTextHandler(&b.log, nil)),
		Count: func(tier, outcome string) { b.counts[tier+" "+outcome]++ },
		Signing: Signing{
			Verify: func(sum [32]byte, _ time.Time, signature []byte) (string, error) {
				if name, of, _ := strings.Cut(string(signature), " "); of != fmt.Sprintf("%x", sum) {
					return "", errors.New("not the signature of " + name)
				}
				return "", by(signature)
			},
			Accepts: func(_ time.Time, signature []byte) error { return by(signature) },
		},
	}
	if me != "" {
		o.Signing.Sign = (&signer{name: me}).sign
	}
	b.Cache = New(o)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func signedBy(t *testing.T, name string, entry []byte, key resultcache.Key) []byte {
	t.Helper()
	b, err := resultcache.Sign(entry, key, (&signer{name: name}).sign)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSignedStore: what this machine keeps in a store that others use is signed, and found there again; its own tier needs no
// signature.
func TestSignedStore(t *testing.T) {
	b := signedBench(t, "me", "me")
	key := resultcache.Key{1}
	entry := entryOf(t, key, "h")
	b.Keep(nil, key, entry)
	b.writing.Wait()
	if !bytes.Equal(b.near.all[key], entry) || !bytes.Equal(b.far.all[key], signedBy(t, "me", entry, key)) {
		t.Error("the tiers have something else")
	}
	if b.find(t, key) != resultcache.TierManager {
		t.Error("it is not found here")
	}
	delete(b.near.all, key)
	if b.find(t, key) != "far" || !bytes.Equal(b.near.all[key], b.far.all[key]) {
		t.Error("it is not found in the store, or the copy here is another one")
	}
	if b.find(t, key) != resultcache.TierManager || len(b.Unsigned()) != 0 {
		t.Error("the copy is not found")
	}
}

// TestWriterWithoutKey: what somebody has put into a store who has no key that counts is a miss, whatever it is, and stays there; the
// log has one line about all of it, and what this machine then compiles takes its place.
func TestWriterWithoutKey(t *testing.T) {
	b := signedBench(t, "me", "me", "other")
	key, elsewhere := resultcache.Key{1}, resultcache.Key{2}
	good, moved := entryOf(t, key, "h"), entryOf(t, elsewhere, "h")
	right := signedBy(t, "other", good, key)
	signature := func(b []byte, key resultcache.Key) []byte {
		s, _, err := resultcache.Proof(b, key)
		if err != nil {
			t.Fatal(err)
		}
		return s.Signature
	}
	with := func(entry []byte, key resultcache.Key, signature []byte) []byte {
		b, err := resultcache.Sign(entry, key, func([32]byte) ([]byte, error) { return signature, nil })
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	forged, err := (&resultcache.Entry{Key: key, Files: []resultcache.File{{Data: []byte("another object")}}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	renamed, err := resultcache.Renamed(signedBy(t, "other", moved, elsewhere), elsewhere, key)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for what, entry := range map[string][]byte{
		"unsigned":                         good,
		"by a stranger":                    signedBy(t, "stranger", good, key),
		"another output, with a signature": with(forged, key, signature(right, key)),
		"of another name":                  with(good, key, signature(signedBy(t, "other", moved, elsewhere), elsewhere)),
		"renamed":                          renamed,
		"no signature in its place":        with(good, key, nil),
		"garbage in its place":             with(good, key, []byte("other")),
	} {
		b.far.all = map[resultcache.Key][]byte{key: entry}
		told := ""
		if e, tier := b.Find(t.Context(), &Look{Key: key, Room: room, Untrusted: func(tier string) { told += tier }}); e != nil || told != "far" {
			t.Errorf("%s: a hit in %s, told of %q", what, tier, told)
		}
		b.writing.Wait()
		if n++; b.far.drops != 0 || b.counts["far untrusted"] != n || len(b.near.all) != 0 {
			t.Errorf("%s: %d removed, %v, %d copies", what, b.far.drops, b.counts, len(b.near.all))
		}
		b.Keep(nil, key, good)
		b.writing.Wait()
		if delete(b.near.all, key); b.find(t, key) != "far" {
			t.Errorf("%s: it is not replaced", what)
		}
		delete(b.near.all, key)
	}
	// Damaged ones are damaged, as without signatures.
	for i := range right {
		if i%11 != 0 {
			continue
		}
		bent := bytes.Clone(right)
		bent[i] ^= 1
		for _, entry := range [][]byte{bent, right[:i]} {
			b.far.all = map[resultcache.Key][]byte{key: entry}
			if tier := b.find(t, key); tier != "" {
				t.Fatalf("byte %d: a hit in %s", i, tier)
			}
		}
	}
	b.far.all = map[resultcache.Key][]byte{elsewhere: right} // as it is, under another name
	if tier := b.find(t, elsewhere); tier != "" {
		t.Errorf("a hit in %s for another name", tier)
	}
	b.far.all = map[resultcache.Key][]byte{key: right}
	if tier := b.find(t, key); tier != "far" {
		t.Errorf("%q has what is right", tier)
	}
	if n := strings.Count(b.log.String(), "a kept result is not used"); n != 1 {
		t.Errorf("%d lines:\n%s", n, b.log.String())
	}
	if c := b.Counts()[1]; c.Untrusted != uint64(n) || c.Errors == 0 {
		t.Errorf("%+v", c)
	}
}

// TestNoMoreTrusted: copies here of what somebody has signed whose signature does not count any more are neither used nor left; what
// this machine has had compiled stays.
func TestNoMoreTrusted(t *testing.T) {
	b := signedBench(t, "me", "me", "other")
	mine, others, second := resultcache.Key{1}, resultcache.Key{2}, resultcache.Key{3}
	b.Keep(nil, mine, entryOf(t, mine, "h"))
	b.writing.Wait()
	b.far.all[others] = signedBy(t, "other", entryOf(t, others, "h"), others)
	if b.find(t, others) != "far" || b.find(t, others) != resultcache.TierManager {
		t.Fatal("no copy")
	}
	renamed, err := resultcache.Renamed(b.near.all[others], others, second) // as the second step keeps it
	if err != nil {
		t.Fatal(err)
	}
	b.near.all[second] = renamed
	if b.find(t, second) != resultcache.TierManager {
		t.Error("what the second step has kept is not found")
	}
	b.trusted = []string{"me"}
	for _, key := range []resultcache.Key{others, second} {
		if tier := b.find(t, key); tier != "" || b.near.has(key) {
			t.Errorf("%q has it, left here: %t", tier, b.near.has(key))
		}
	}
	if b.find(t, mine) != resultcache.TierManager || !b.far.has(others) {
		t.Error("more is gone")
	}
}

// TestOnlyOnesOwnIsSigned: this machine signs what it has had compiled. What comes from elsewhere goes into a store with the
// signature that it has, or not at all.
func TestOnlyOnesOwnIsSigned(t *testing.T) {
	key := resultcache.Key{1}
	plain := entryOf(t, key, "h")
	others := signedBy(t, "other", plain, key)
	renamed, err := resultcache.Renamed(signedBy(t, "other", entryOf(t, resultcache.Key{2}, "h"), resultcache.Key{2}), resultcache.Key{2}, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		me    string
		entry []byte
		from  origin
		want  []byte
	}{
		{"its own", "me", plain, own, signedBy(t, "me", plain, key)},
		{"its own, without a key", "", plain, own, nil},
		{"another's, from a store", "me", others, verified, others},
		{"another's, from here", "me", others, held, others},
		{"another's, from here, without a key", "", others, held, others},
		{"nobody's, from here", "me", plain, held, nil},
		{"renamed, from here", "me", renamed, held, nil},
	} {
		b := signedBench(t, c.me, "me", "other")
		b.put(b.tiers[1], key, c.entry, c.from)
		b.writing.Wait()
		if !bytes.Equal(b.far.all[key], c.want) {
			t.Errorf("%s: the store has %d bytes, want %d", c.what, len(b.far.all[key]), len(c.want))
		}
		if mute := strings.Contains(b.log.String(), "cannot be signed"); mute != (c.me == "") {
			t.Errorf("%s: the log has\n%s", c.what, b.log.String())
		}
	}
}

// TestCannotSign: where signing fails, the store is read, but not written to, and the log has a line.
func TestCannotSign(t *testing.T) {
	b := signedBench(t, "me", "me")
	b.signing(func(s *Signing) { s.Sign = (&signer{err: errors.New("the certificate has expired")}).sign })
	for i := range byte(5) {
		key := resultcache.Key{i}
		b.Keep(nil, key, entryOf(t, key, "h"))
		b.writing.Wait()
	}
	if b.far.puts != 0 || b.near.puts != 5 || strings.Count(b.log.String(), "the certificate has expired") != 1 {
		t.Errorf("%d written\n%s", b.far.puts, b.log.String())
	}
}

// signing changes how entries are signed.
func (b *signed) signing(change func(*Signing)) { change(b.tiers[0].signing) }

// TestUnsignedStore: without anybody to trust, a store is as it was, with signatures or without; it is called unsigned.
func TestUnsignedStore(t *testing.T) {
	for _, me := range []string{"", "me"} {
		b := signedBench(t, me)
		b.signing(func(s *Signing) { s.Verify, s.Accepts = nil, nil })
		key, other := resultcache.Key{1}, resultcache.Key{2}
		b.Keep(nil, key, entryOf(t, key, "h"))
		b.writing.Wait()
		if resultcache.IsSigned(b.far.all[key]) != (me != "") {
			t.Errorf("%q: wrongly signed", me)
		}
		b.far.all[other] = signedBy(t, "anybody", entryOf(t, other, "h"), other)
		for _, key := range []resultcache.Key{key, other} {
			if delete(b.near.all, key); b.find(t, key) != "far" {
				t.Errorf("%q: no hit", me)
			}
		}
		if names := b.Unsigned(); len(names) != 1 || names[0] != "far" {
			t.Errorf("unsigned: %v", names)
		}
	}
}
