package store

import (
	"crypto/sha256"
	"hash/maphash"
)

// Common contents belong to no tenant: they come from files that this machine has itself and that any user
// may read. They are the exception to the rule that tenants share nothing: all tenants use one copy in memory.
// That reveals nothing about other tenants, as what is common does not depend on them: the caller of
// AddCommon decides without regard to what tenants have or name, and nothing that tenants do drops a common
// content, or changes the order in which others are dropped.

// AddCommon keeps the content b and returns it pinned, for as long as it is to be common. It only takes
// room that is free, none that tenants use now. It returns nil if there is not enough.
func (s *Store) AddCommon(b []byte) *Content {
	if len(b) == 0 {
		return nil
	}
	t, size := s.common, pages(len(b))*pageSize+overhead
	s.mu.Lock()
	if s.bytes+size > s.limit {
		s.mu.Unlock()
		return nil
	}
	mem, err := t.mem.allocate(len(b))
	if err != nil {
		s.mu.Unlock()
		return nil
	}
	t.bytes += size
	s.bytes += size
	s.mu.Unlock()
	copy(mem.bytes, b)
	return &Content{t: t, id: sha256.Sum256(b), n: len(b), mem: mem, sum: maphash.Bytes(s.seed, mem.bytes[:len(b)]), pins: 1, gone: true}
}

// Share gives the tenant a common content, and returns that pinned. It hardly counts towards the tenant's part. Share
// returns nil if the tenant cannot have it.
func (t *Tenant) Share(common *Content) *Content {
	if t == nil {
		return nil
	}
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if common.bad {
		return nil
	}
	if c := t.inMemoryLocked(common.id); c != nil {
		return c
	}
	c := t.contents[common.id]
	if c != nil && (c.loading != nil || c.n != common.n) || !t.roomLocked(overhead) {
		return nil
	}
	if c == nil { // otherwise it is on disk
		c = &Content{t: t, id: common.id, n: common.n, gone: s.tenants[t.name] != t}
	}
	common.pins++
	c.mem, c.sum, c.of = block{bytes: common.mem.bytes}, common.sum, common
	c.pins++
	t.bytes += overhead
	s.bytes += overhead
	if !c.gone {
		t.contents[c.id] = c
		c.recent = t.recent.PushFront(c)
	}
	return c
}
