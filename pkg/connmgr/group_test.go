package connmgr

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// signature of the tests' hosts: the name, and a digest of it and of the sum.
func signAs(name string) func(sum [32]byte) ([]byte, error) {
	return func(sum [32]byte) ([]byte, error) {
		d := sha256.Sum256(append([]byte(name), sum[:]...))
		return append(d[:], name...), nil
	}
}

func verifies(sum [32]byte, signature []byte) (string, error) {
	if len(signature) <= sha256.Size {
		return "", errors.New("too short")
	}
	name := string(signature[sha256.Size:])
	want, _ := signAs(name)(sum)
	switch {
	case string(want) != string(signature):
		return "", errors.New("forged")
	case name == "old":
		return "", fmt.Errorf("%w: since yesterday", identity.ErrExpired)
	}
	return name, nil
}

// sign puts an entry on the shelf that has been signed, and returns its Key.
func (h *host) sign(t *testing.T, n byte, object string, sign func([32]byte) ([]byte, error)) resultcache.Key {
	t.Helper()
	key := resultcache.Key{n, 1}
	e := resultcache.Raw{Key: key, Origin: resultcache.Origin{Made: time.Now()}, Files: []resultcache.RawFile{{Len: uint32(len(object))}}, Outputs: []byte(object)}
	front, tail, err := e.AppendSigned(nil, sign)
	if err != nil || !h.Put(key, front, e.Outputs, tail) {
		t.Fatal("not put", err)
	}
	return key
}

// TestGroupShelf: of the shelf of a group only what a host has signed is used. The result is known to be that host's. Anything
// else is an error and not read again, and the others are asked.
func TestGroupShelf(t *testing.T) {
	r, hosts := shelves(t, 2, func(o *Options) { o.Verify = verifies }, func(d *daemontest.Daemon) { d.Group = "team" })
	h, other := hosts[0], hosts[1]
	good := h.sign(t, 1, "object", signAs("build7"))
	old := []resultcache.Key{h.sign(t, 2, "object", signAs("old")), h.sign(t, 3, "object", signAs("old")), h.sign(t, 4, "object", signAs("old")), h.sign(t, 5, "object", signAs("old"))}
	bad := map[string]resultcache.Key{
		"without a signature": h.put(t, 11, "object"),
		"a forged signature":  h.sign(t, 12, "object", func([32]byte) ([]byte, error) { return signAs("build7")([32]byte{}) }),
		"no signature":        h.sign(t, 13, "object", func([32]byte) ([]byte, error) { return nil, nil }),
	}
	replica := other.sign(t, 12, "object", signAs("build7"))
	r.connect(hosts...)
	if s := r.status(h.Addr); s.Group != "team" {
		t.Errorf("the status has group %q", s.Group)
	}
	if e := r.look(good, h); e == nil || e.Host != "build7" || string(e.Files[0].Data) != "object" {
		t.Fatalf("%+v", e)
	}
	n := 0.0
	wrong := func(what string, key resultcache.Key) {
		t.Helper()
		if e := r.look(key, h); e != nil {
			t.Errorf("%s: %+v", what, e)
		}
		if _, _, got := r.counts(); got != n+1 {
			t.Errorf("%s: %v errors counted, want %v", what, got, n+1)
		}
		n++
		if e := r.look(key, h); e != nil {
			t.Errorf("%s: %+v", what, e)
		}
		if _, _, got := r.counts(); got != n {
			t.Errorf("%s: read again", what)
		}
	}
	for _, key := range old {
		wrong("an expired certificate", key)
	}
	if e := r.look(good, h); e == nil {
		t.Error("after several results whose certificates have expired, nothing of the host is used")
	}
	for what, key := range bad {
		wrong(what, key)
	}
	if e := r.look(good, h); e != nil {
		t.Error("after several forged results, others of the host are used")
	}
	if e := r.look(replica, h, other); e == nil || e.Host != "build7" {
		t.Errorf("a copy at another host: %+v", e)
	}
	// A host that was found to compile wrongly is not believed through another one's memory either.
	r.m.quarantine("build7", "a test")
	if e := r.look(replica, other); e != nil {
		t.Errorf("of a host in quarantine: %+v", e)
	}
}

// TestGroupShelfWithoutCA: a manager that cannot verify signatures uses nothing of a group's.
func TestGroupShelfWithoutCA(t *testing.T) {
	r, hosts := shelves(t, 1, nil, func(d *daemontest.Daemon) { d.Group = "team" })
	key := hosts[0].sign(t, 1, "object", signAs("build7"))
	r.connect(hosts...)
	if e := r.look(key, hosts[0]); e != nil {
		t.Errorf("%+v", e)
	}
}
