package store

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"hash/maphash"
)

// Content is a pinned content: it stays in memory, unchanged, until Unpin.
type Content struct {
	t  *Tenant
	id ID
	n  int // bytes

	// guarded by Store.mu
	mem     block         // empty: it is only on disk
	sum     uint64        // of mem, against memory that loses bits
	pins    int           // mem stays while this is above 0
	gone    bool          // no longer the tenant's: mem is freed with the last pin
	of      *Content      // the common content, pinned, whose memory mem is; nil: it has its own
	bad     bool          // of a common one: its memory has changed by itself
	recent  *list.Element // in Tenant.recent; nil: not in memory
	stored  *list.Element // in Tenant.stored; nil: not on disk
	loading chan struct{} // closed once it was read from disk, or the attempt failed
}

// empty is the name of the empty content, which is always there.
var empty = sha256.Sum256(nil)

// Bytes returns the content. It must not be changed, and no part of it may be kept after Unpin.
func (c *Content) Bytes() []byte { return c.mem.bytes[:c.n] }

// ID returns its name.
func (c *Content) ID() ID { return c.id }

// Len returns its length in bytes.
func (c *Content) Len() int { return c.n }

// Intact reports whether memory still holds what was put there. A content that is not intact is never
// found again.
func (c *Content) Intact() bool {
	if c.n == 0 || maphash.Bytes(c.t.s.seed, c.Bytes()) == c.sum {
		return true
	}
	c.spoiled()
	return false
}

// spoiled drops a pinned content that has changed by itself.
func (c *Content) spoiled() {
	s := c.t.s
	s.o.Log.Error("a content in memory has changed by itself: this machine's memory may be bad", "bytes", c.n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.of != nil {
		c.of.bad = true // no other tenant may get it
	}
	if !c.gone {
		c.t.removeFileLocked(c) // it may already have been spoiled when it was written
		c.t.dropLocked(c)
	}
}

// Unpin releases a content.
func (c *Content) Unpin() {
	if c.n == 0 {
		return
	}
	s := c.t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	c.unpinLocked()
}

func (c *Content) unpinLocked() {
	if c.pins--; c.pins == 0 && c.gone {
		c.t.freeLocked(c)
	}
}

// freeLocked frees the content's memory.
func (t *Tenant) freeLocked(c *Content) {
	if c.mem.bytes == nil {
		return
	}
	n := c.mem.size() + overhead
	if c.of != nil {
		n = overhead
		c.of.unpinLocked()
		c.of = nil
	} else {
		t.mem.free(c.mem)
	}
	c.mem = block{}
	t.bytes -= n
	t.s.bytes -= n
}

// dropLocked removes a content from memory and disk.
func (t *Tenant) dropLocked(c *Content) {
	c.gone = true
	if t.contents[c.id] == c {
		delete(t.contents, c.id)
	}
	if c.recent != nil {
		t.recent.Remove(c.recent)
		c.recent = nil
	}
	if c.pins == 0 {
		t.freeLocked(c)
	}
}

// Put keeps a content and returns it pinned. Its error is ErrOther or ErrFull, and then nothing is
// kept.
func (t *Tenant) Put(id ID, b []byte) (*Content, error) {
	if t == nil { // the caller may use b all the same, so it must be what its name stands for
		if sha256.Sum256(b) != id {
			return nil, ErrOther
		}
		return nil, ErrFull
	}
	s := t.s
	s.mu.Lock()
	c := t.inMemoryLocked(id)
	s.mu.Unlock()
	if c != nil && bytes.Equal(c.Bytes(), b) { // faster than a sum
		return c, nil
	}
	right := sha256.Sum256(b) == id
	if c != nil {
		if right {
			c.spoiled()
		}
		c.Unpin()
	}
	switch {
	case !right:
		return nil, ErrOther
	case len(b) == 0:
		return &Content{t: t, id: id}, nil
	}
	return t.insert(id, b)
}

// PutOwn keeps a content whose name is not known yet, and returns it pinned, with its name. Its error is ErrFull.
func (t *Tenant) PutOwn(b []byte) (ID, *Content, error) {
	id := ID(sha256.Sum256(b))
	switch {
	case t == nil:
		return id, nil, ErrFull
	case len(b) == 0:
		return id, &Content{t: t, id: id}, nil
	}
	c, err := t.insert(id, b)
	return id, c, err
}

// inMemoryLocked pins a content that is in memory, or returns nil if it is not.
func (t *Tenant) inMemoryLocked(id ID) *Content {
	c := t.contents[id]
	if c == nil || c.recent == nil {
		return nil
	}
	c.pins++
	t.recent.MoveToFront(c.recent)
	if c.stored != nil {
		t.stored.MoveToFront(c.stored)
	}
	return c
}

// insert puts a content into memory whose sum has been verified.
func (t *Tenant) insert(id ID, b []byte) (*Content, error) {
	s := t.s
	s.mu.Lock()
	if c := t.inMemoryLocked(id); c != nil { // another connection was faster
		s.mu.Unlock()
		return c, nil
	}
	mem, ok := t.allocateLocked(len(b))
	s.mu.Unlock()
	if !ok {
		return nil, ErrFull
	}
	copy(mem.bytes, b) // without the lock: the pages still have to be allocated
	return t.settle(id, mem, len(b), nil), nil
}

// settle makes memory that was filled a pinned content of the tenant. of is the one that it was read for,
// or nil.
func (t *Tenant) settle(id ID, mem block, n int, of *Content) *Content {
	s := t.s
	sum := maphash.Bytes(s.seed, mem.bytes[:n])
	s.mu.Lock()
	defer s.mu.Unlock()
	c := t.contents[id]
	if c != nil && c.recent != nil { // meanwhile
		t.freeLocked(&Content{t: t, mem: mem})
		c.pins++
		return c
	}
	if c != nil && c.n != n { // its file has changed, and was not read yet
		t.removeFileLocked(c)
		t.dropLocked(c)
		c = nil
	}
	if c == nil {
		if c = of; c == nil {
			c = &Content{t: t, id: id, n: n, gone: s.tenants[t.name] != t}
		}
	}
	c.mem, c.sum = mem, sum
	c.pins++
	if c.gone {
		return c
	}
	t.contents[id] = c
	c.recent = t.recent.PushFront(c)
	if c.stored == nil && s.disk != nil {
		s.disk.write(c)
	}
	return c
}

// Pin returns the content with that name, or nil if it is not there.
func (t *Tenant) Pin(id ID) *Content {
	if t == nil {
		return nil
	}
	if id == empty {
		return &Content{t: t, id: id}
	}
	s := t.s
	s.mu.Lock()
	c := t.contents[id]
	if wait := t.looking; c == nil && wait != nil {
		s.mu.Unlock()
		<-wait
		s.mu.Lock()
		c = t.contents[id]
	}
	for c != nil && c.loading != nil {
		wait := c.loading
		s.mu.Unlock()
		<-wait
		s.mu.Lock()
		c = t.contents[id]
	}
	if c != nil && c.recent == nil {
		if c = t.loadLocked(c); c != nil { // pinned
			s.count.hits++
			s.mu.Unlock()
			return c
		}
	}
	defer s.mu.Unlock()
	if c == nil {
		s.count.lacks++
		return nil
	}
	s.count.hits++
	return t.inMemoryLocked(id)
}

// PinAll returns the contents with those names, in their order, with nil for each that is not there.
func (t *Tenant) PinAll(ids []ID) []*Content {
	all := make([]*Content, len(ids))
	if t == nil {
		return all
	}
	s := t.s
	s.mu.Lock()
	for i, id := range ids {
		if all[i] = t.inMemoryLocked(id); all[i] != nil {
			s.count.hits++
		}
	}
	s.mu.Unlock()
	for i, c := range all {
		if c == nil { // it may be on disk, or being read from there
			all[i] = t.Pin(ids[i])
		}
	}
	return all
}

// UnpinAll releases contents of one tenant.
func UnpinAll(all []*Content) {
	if len(all) == 0 {
		return
	}
	s := all[0].t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		if c.n > 0 {
			c.unpinLocked()
		}
	}
}

// allocateLocked returns memory for n bytes of the tenant's, after making room for it.
func (t *Tenant) allocateLocked(n int) (block, bool) {
	s := t.s
	size := pages(n)*pageSize + overhead
	if !t.roomLocked(size) {
		return block{}, false
	}
	b, err := t.mem.allocate(n)
	if err != nil {
		return block{}, false
	}
	t.bytes += size
	s.bytes += size
	return b, true
}

// roomLocked makes room for size bytes of the tenant's. It reports whether it could.
func (t *Tenant) roomLocked(size int64) bool {
	s := t.s
	part := tenantPart(s.limit)
	if size > part {
		return false
	}
	for t.bytes+size > part {
		c := t.oldestLocked()
		if c == nil {
			return false
		}
		s.yieldLocked(c)
	}
	for s.bytes+size > s.limit {
		if !s.evictLocked(t, size) {
			return false
		}
	}
	return true
}

// Fits reports whether the tenant can have n contents more, of that many bytes together, without another one being dropped.
func (t *Tenant) Fits(n int, bytes int64) bool {
	if t == nil {
		return false
	}
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	size := bytes + int64(n)*(pageSize+overhead)
	return t.bytes+size <= tenantPart(s.limit) && s.bytes+size <= s.limit
}

// evictLocked drops from memory the least recently used content of the tenant that has most of it. If t is to
// get size bytes more, these count as its own already, so that no tenant with less than t would have loses
// anything. It returns false if there is nothing to drop.
func (s *Store) evictLocked(t *Tenant, size int64) bool {
	var worst *Content
	most := int64(-1)
	for _, x := range s.tenants {
		has := x.bytes
		if x == t {
			has += size
		}
		if has <= most || t != nil && x != t && has <= t.bytes+size {
			continue
		}
		if c := x.oldestLocked(); c != nil {
			worst, most = c, has
		}
	}
	if worst == nil {
		return false
	}
	s.yieldLocked(worst)
	return true
}

// yieldLocked drops from memory a content that is not pinned.
func (s *Store) yieldLocked(c *Content) {
	t := c.t
	if c.stored == nil {
		s.count.evictions++
		t.dropLocked(c)
		return
	}
	t.recent.Remove(c.recent)
	c.recent = nil
	t.freeLocked(c)
}

// oldestLocked returns the least recently used content in memory that is not pinned.
func (t *Tenant) oldestLocked() *Content {
	for e := t.recent.Back(); e != nil; e = e.Prev() {
		if c := e.Value.(*Content); c.pins == 0 {
			return c
		}
	}
	return nil
}
