package shelves

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

func join(t *testing.T, s *Shelves, name string) *Tenant {
	t.Helper()
	x, err := s.Join(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func fill(t *Tenant, n int) {
	e := bytes.Repeat([]byte("r"), 64<<10)
	for i := range n {
		t.Put(resultcache.Key{byte(i), byte(i >> 8)}, e)
	}
}

// TestBudget: shelves together take no more than the budget, however many tenants come, and each has its even part.
func TestBudget(t *testing.T) {
	const budget = 64 << 20
	s := New(Options{Budget: budget, Keep: time.Hour})
	defer s.Close()
	var all []*Tenant
	for i := range budget/least + 3 {
		x := join(t, s, strconv.Itoa(i))
		if (x == nil) != (i >= budget/least) {
			t.Fatalf("tenant %d has a shelf: %v", i, x != nil)
		}
		if x == nil {
			continue
		}
		fill(x, 2000)
		all = append(all, x)
		if st := s.Stats(); st.Bytes > budget || st.Bytes < budget*3/4 && i == 0 {
			t.Errorf("%d tenants have %d bytes", i+1, st.Bytes)
		}
	}
	for _, x := range all {
		fill(x, 100)
		if st := x.Stats(); st.Bytes < least*3/4 || st.Bytes > least {
			t.Errorf("one of %d tenants has %d bytes", len(all), st.Bytes)
		}
	}
	st := s.Stats()
	if st.Bytes > budget || st.Kept != uint64(len(all)*2100) || st.Evicted != st.Kept-uint64(st.Entries) {
		t.Errorf("%+v", st)
	}
}

// TestIdle: a shelf outlives its tenant's connections until another tenant needs the memory, or for long.
func TestIdle(t *testing.T) {
	s := New(Options{Budget: 2 * least, Keep: 0})
	defer s.Close()
	a := join(t, s, "a")
	fill(a, 3)
	if join(t, s, "a") != a {
		t.Error("a second shelf for a tenant")
	}
	s.Leave(a)
	s.Tick(time.Now().Add(2*idleMost), false)
	s.Leave(a)
	s.Leave(nil)
	s.Tick(time.Now(), false)
	if join(t, s, "a") != a || a.Stats().Entries != 3 {
		t.Error("it lost its shelf")
	}
	s.Leave(a)
	b := join(t, s, "b")
	if st := s.Stats(); st.Tenants != 1 || b == nil {
		t.Errorf("%+v", st)
	}
	s.Leave(b)
	s.Tick(time.Now().Add(2*idleMost), false)
	if st := s.Stats(); st.Tenants != 0 || st.Evicted != 3 {
		t.Errorf("%+v", st)
	}
}

// TestShort: a machine that is short of memory keeps nothing.
func TestShort(t *testing.T) {
	s := New(Options{Budget: 16 << 20})
	defer s.Close()
	a := join(t, s, "a")
	fill(a, 10)
	s.Tick(time.Now(), true)
	if st := s.Stats(); st.Bytes != 0 || a.Put(resultcache.Key{}, []byte("x")) {
		t.Errorf("%+v", st)
	}
	s.Tick(time.Now(), false)
	if fill(a, 10); s.Stats().Entries != 10 {
		t.Errorf("%+v", s.Stats())
	}
}

// TestNone: without a budget there are no shelves.
func TestNone(t *testing.T) {
	s := New(Options{Budget: least - 1})
	if x := join(t, s, "a"); x != nil {
		t.Error("a shelf")
	}
	s.Leave(nil)
	s.Tick(time.Now(), true)
	s.Close()
	if s.Stats() != (Stats{}) {
		t.Error(s.Stats())
	}
}
