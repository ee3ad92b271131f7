package resultcache

import (
	"errors"
	"reflect"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// manifest returns a manifest of n results.
func manifest(n int) *Manifest {
	m := &Manifest{Key: Key{1, 2, 3}}
	for i := range n {
		m.Add(Item{Unread: []byte{byte(i), 7}, Sum: [32]byte{byte(i)}, Result: Key{byte(i), 9}})
	}
	return m
}

func TestManifest(t *testing.T) {
	for _, n := range []int{0, 1, MaxItems} {
		m := manifest(n)
		b, err := m.Append([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeManifest(b[len("before"):], m.Key)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%d results: %v, %+v\nwant %+v", n, err, got, m)
		}
	}
	m := manifest(MaxItems + 2)
	if len(m.Items) != MaxItems || m.Items[0].Result != (Key{MaxItems + 1, 9}) || m.Items[MaxItems-1].Result != (Key{2, 9}) {
		t.Errorf("the newest ones are not kept: %+v", m.Items)
	}
	known := m.Items[3]
	if m.Add(known) || len(m.Items) != MaxItems {
		t.Error("an item that is there changes something")
	}
	known.Result = Key{77}
	if !m.Add(known) || len(m.Items) != MaxItems || m.Items[0].Result != known.Result || m.Items[3].Result == known.Result {
		t.Errorf("another result for the same inputs: %+v", m.Items)
	}
	m.Items[0].Unread = make([]byte, maxUnread+1)
	if _, err := m.Append(nil); err == nil {
		t.Error("one with too many files is kept")
	}
	m = manifest(MaxItems)
	for i := range m.Items {
		m.Items[i].Unread = make([]byte, maxUnread)
	}
	if b, err := m.Append(nil); err != nil || len(b) != MaxManifest {
		t.Errorf("the longest one: %v, %d bytes, want %d", err, len(b), MaxManifest)
	}
}

// TestEveryBitOfManifest: a manifest that differs in any bit, or is cut at any place, is damaged.
func TestEveryBitOfManifest(t *testing.T) {
	m := manifest(3)
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if _, err := DecodeManifest(b, m.Key); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
			b[i] ^= 1 << bit
		}
		if _, err := DecodeManifest(b[:i], m.Key); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut after %d bytes: %v", i, err)
		}
	}
	if _, err := DecodeManifest(append(b, 0), m.Key); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
	if _, err := DecodeManifest(b, Key{9}); !errors.Is(err, ErrDamaged) {
		t.Errorf("the manifest of another compile: %v", err)
	}
	e, err := sample(300).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeManifest(e, sample(300).Key); !errors.Is(err, ErrDamaged) {
		t.Errorf("a result: %v", err)
	}
}

// FuzzDecodeManifest: no input makes DecodeManifest panic, and what it accepts is within its bounds.
func FuzzDecodeManifest(f *testing.F) {
	for _, n := range []int{0, 2} {
		b, err := manifest(n).Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headAt { // otherwise no input would get past the sum
			sum := sumOf(b)
			copy(b[sumAt:], sum[:])
		}
		m, err := DecodeManifest(b, Key{1, 2, 3})
		if err == nil && len(m.Items) > MaxItems {
			t.Errorf("%d results", len(m.Items))
		}
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
			t.Error(err)
		}
	})
}

// TestRenamed: an entry gets another key and nothing else.
func TestRenamed(t *testing.T) {
	for _, n := range []int{10, 5000} {
		e := sample(n)
		b, err := e.Append(nil)
		if err == nil {
			b, err = Renamed(b, e.Key, Key{9})
		}
		if err != nil {
			t.Fatal(err)
		}
		want := *e
		want.Key = Key{9}
		if got, err := Decode(b, want.Key, room); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%v: %+v", err, got)
		}
	}
}

// TestManifestKey: no result has the key of a manifest.
func TestManifestKey(t *testing.T) {
	b := &job.Body{Args: []string{"-c"}}
	if KeyOf(unit.ToolchainID{1}, b, [32]byte{2}) == ManifestKeyOf(unit.ToolchainID{1}, b, [32]byte{2}) {
		t.Error("a result and a manifest have the same key")
	}
}
