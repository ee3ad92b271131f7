package store

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"
)

// TestCommon: what this machine has itself is in memory once, however many share it, and for as long as any
// tenant does.
func TestCommon(t *testing.T) {
	s, _ := open(t, Options{Memory: 1 << 20})
	id, b := content(40<<10, 1)
	common := s.AddCommon(b)
	if common == nil || common.ID() != id || !bytes.Equal(common.Bytes(), b) {
		t.Fatal("not kept")
	}
	one := s.Stats().Common
	x, y := s.Open("x"), s.Open("y")
	for _, tenant := range []*Tenant{x, y} {
		has(t, tenant, 40<<10, 1, false) // until it has named it
		c := tenant.Share(common)
		if c == nil || !bytes.Equal(c.Bytes(), b) || !c.Intact() {
			t.Fatal("not shared")
		}
		c.Unpin()
		has(t, tenant, 40<<10, 1, true)
		if again := tenant.Share(common); again != c {
			t.Error("shared twice")
		} else {
			again.Unpin()
		}
	}
	if st := s.Stats(); st.Common != one || st.Bytes != 2*overhead {
		t.Errorf("%+v: want %d bytes in common, and no others", st, one)
	}
	common.Unpin() // it is not common any more
	has(t, x, 40<<10, 1, true)
	x.Close()
	has(t, y, 40<<10, 1, true)
	y.Close()
	if st := s.Stats(); st.Common != 0 || st.Bytes != 0 {
		t.Errorf("%+v: nobody has it", st)
	}
}

// TestCommonTakesNoRoom: a common content only takes free room, is not dropped for a tenant's, and a tenant
// that drops what it shares can share it again.
func TestCommonTakesNoRoom(t *testing.T) {
	s, _ := open(t, Options{Memory: 256 << 10})
	x := s.Open("x")
	defer x.Close()
	_, b := content(100<<10, 1)
	common := s.AddCommon(b)
	if common == nil {
		t.Fatal("not kept")
	}
	c := x.Share(common)
	c.Unpin()
	put(t, x, 100<<10, 2)
	if _, b := content(100<<10, 3); s.AddCommon(b) != nil {
		t.Error("there is no room for a second one")
	}
	has(t, x, 100<<10, 2, true)
	has(t, x, 100<<10, 1, true)
	for i := range 3 {
		put(t, x, 100<<10, 10+i)
	}
	has(t, x, 100<<10, 1, false) // it was not used for longest
	if c = x.Share(common); c == nil || !c.Intact() {
		t.Fatal("it is common still")
	}
	c.Unpin()
	common.Unpin()
}

// TestCommonMemoryThatForgets: what has changed in memory is not shared any more.
func TestCommonMemoryThatForgets(t *testing.T) {
	s, _ := open(t, Options{Memory: 1 << 20})
	x, y := s.Open("x"), s.Open("y")
	defer x.Close()
	defer y.Close()
	_, b := content(5000, 1)
	common := s.AddCommon(b)
	c := x.Share(common)
	common.mem.bytes[77] ^= 4
	if c.Intact() {
		t.Error("a changed content is intact")
	}
	c.Unpin()
	has(t, x, 5000, 1, false)
	if x.Share(common) != nil || y.Share(common) != nil {
		t.Error("it is shared once more")
	}
	common.Unpin()
	if st := s.Stats(); st.Common != 0 || st.Bytes != 0 {
		t.Errorf("%+v: nobody has it", st)
	}
}

// TestCommonOnDisk: a tenant whose content is on disk still shares memory for it.
func TestCommonOnDisk(t *testing.T) {
	o := Options{Memory: 1 << 20, Disk: 1 << 20, Dir: filepath.Join(t.TempDir(), "s"), Keep: time.Hour}
	s, _ := open(t, o)
	x := s.Open("x")
	put(t, x, 5000, 1)
	s.flush(t)
	x.Close()
	s, _ = reopened(t, s, o)
	x = s.Open("x")
	defer x.Close()
	id, b := content(5000, 1)
	common := s.AddCommon(b)
	for range 2 {
		if c := x.Share(common); c == nil || c.ID() != id || !bytes.Equal(c.Bytes(), b) {
			t.Fatal("not shared")
		} else {
			c.Unpin()
		}
		if n := x.Pin(id); n == nil {
			t.Fatal("not there")
		} else {
			n.Unpin()
		}
		s.mu.Lock()
		s.yieldLocked(x.contents[id]) // back to disk alone
		s.mu.Unlock()
	}
	has(t, x, 5000, 1, true)
	common.Unpin()
}
