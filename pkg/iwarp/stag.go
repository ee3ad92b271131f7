package iwarp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
)

// An STag is an index of 24 bits and a key of 8 (RFC 5041 leaves that to us; RDMA
// verbs do it so). Both are random. An index belongs to one object at a time: a
// region of RegMR has it once, with one key; a region of AllocMR and a window keep
// theirs, and have another key after each registration or bind.

const (
	indexBits = 24
	keyBits   = 8
	// maxIndices bounds regions and windows together, so that at least half of all
	// indices are free to be drawn and an STag that is guessed is most likely none.
	maxIndices = 1 << (indexBits - 1)
)

// quarantine is the number of indices of one shard of the table that rest before
// one can be given out again, so that a peer's late use of an old STag does not
// meet a new region.
const quarantine = 4096

// stagShards spreads the table's locks. An index's low bits choose the shard.
const stagShards = 16

// stagTable maps STags to what they name.
type stagTable struct {
	shards  [stagShards]stagShard
	entropy entropy

	mrs, mws, bytes atomic.Int64 // in use
	closed          atomic.Bool  // nothing is added any more
}

// stagShard is a hash table with linear probing: indices are random, so they are
// their own hash, and a lookup is one step however many there are.
type stagShard struct {
	mu      sync.RWMutex
	slots   []stagSlot // a power of two of them, at most three quarters taken
	n       int        // taken
	resting []uint32   // a ring once it has quarantine entries
	oldest  int        // in resting
}

type stagSlot struct {
	index uint32 // 0: free
	m     *mr    // nil: the index is taken, and names nothing
}

// at is the slot of index i, or the free one where it belongs.
func (sh *stagShard) at(i uint32) *stagSlot {
	mask := uint32(len(sh.slots) - 1)
	for k := i / stagShards & mask; ; k = (k + 1) & mask {
		if s := &sh.slots[k]; s.index == i || s.index == 0 {
			return s
		}
	}
}

// grow makes room for one more.
func (sh *stagShard) grow() {
	if sh.n++; sh.n <= len(sh.slots)/4*3 {
		return
	}
	old := sh.slots
	sh.slots = make([]stagSlot, max(16, 2*len(old)))
	for _, s := range old {
		if s.index != 0 {
			*sh.at(s.index) = s
		}
	}
}

// free makes the slot of index i free, and moves those up that it was in the way
// of.
func (sh *stagShard) free(i uint32) {
	mask := uint32(len(sh.slots) - 1)
	hole := i / stagShards & mask
	for sh.slots[hole].index != i {
		hole = (hole + 1) & mask
	}
	sh.n--
	for k := (hole + 1) & mask; sh.slots[k].index != 0; k = (k + 1) & mask {
		home := sh.slots[k].index / stagShards & mask
		if (k-home)&mask >= (k-hole)&mask { // its home is not between the two
			sh.slots[hole] = sh.slots[k]
			hole = k
		}
	}
	sh.slots[hole] = stagSlot{}
}

func (t *stagTable) init() {
	for i := range t.shards {
		t.shards[i].slots = make([]stagSlot, 16)
	}
}

func index(s STag) uint32 { return uint32(s >> keyBits) }

func (t *stagTable) shard(i uint32) *stagShard { return &t.shards[i%stagShards] }

// lookup finds what s names, or named last, or nil.
func (t *stagTable) lookup(s STag) *mr {
	i := index(s)
	if i == 0 {
		return nil
	}
	sh := t.shard(i)
	sh.mu.RLock()
	m := sh.at(i).m
	sh.mu.RUnlock()
	if m == nil || m.stag != s {
		return nil
	}
	return m
}

// add gives m, when it is not nil, an STag, and returns it: random over the whole
// 32 bits, so that it cannot be guessed from others (RFC 5040 §8.1.1), never 0, its
// index none that is in use or rests. Without m the index is taken and names
// nothing. It returns 0 when the table is closed.
func (t *stagTable) add(m *mr) STag {
	for {
		s := STag(t.entropy.uint32())
		if index(s) == 0 {
			continue // so that no key makes it 0
		}
		sh := t.shard(index(s))
		sh.mu.Lock()
		if t.closed.Load() {
			sh.mu.Unlock()
			return 0
		}
		if sh.at(index(s)).index != 0 {
			sh.mu.Unlock()
			continue
		}
		if m != nil {
			m.stag = s
		}
		sh.grow()
		*sh.at(index(s)) = stagSlot{index(s), m}
		sh.mu.Unlock()
		return s
	}
}

// set makes m what its index, which its owner holds, names.
func (t *stagTable) set(m *mr) {
	sh := t.shard(index(m.stag))
	sh.mu.Lock()
	if slot := sh.at(index(m.stag)); slot.index != 0 {
		slot.m = m
	}
	sh.mu.Unlock()
}

// remove lets the index of s rest. It returns false if m is not, or no longer,
// what the index names.
func (t *stagTable) remove(s STag, m *mr) bool {
	i := index(s)
	sh := t.shard(i)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slot := sh.at(i)
	if slot.index == 0 || slot.m != m {
		return false
	}
	slot.m = nil
	if len(sh.resting) < quarantine {
		sh.resting = append(sh.resting, i)
		return true
	}
	sh.free(sh.resting[sh.oldest])
	sh.resting[sh.oldest] = i
	sh.oldest = (sh.oldest + 1) % quarantine
	return true
}

// close ends all that there is: the device is being closed.
func (t *stagTable) close() {
	t.closed.Store(true)
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		all := sh.slots
		sh.slots, sh.n, sh.resting = make([]stagSlot, 16), 0, nil
		sh.mu.Unlock()
		for _, s := range all {
			if s.m != nil {
				s.m.remote.close()
				s.m.local.close()
			}
		}
	}
	t.mrs.Store(0)
	t.mws.Store(0)
	t.bytes.Store(0)
}

// reserve counts n more of what, of which limit are allowed.
func reserve(count *atomic.Int64, n, limit int64, what string) error {
	if count.Add(n) > limit {
		count.Add(-n)
		return fmt.Errorf("%w: %d %s", ErrLimit, limit, what)
	}
	return nil
}

// entropy hands out random numbers of the kernel's. They are fetched many at a
// time: a call takes longer than all else that a registration does.
type entropy struct {
	mu   sync.Mutex
	buf  [1024]byte
	left int // bytes at the end of buf that nobody has had
}

func (e *entropy) uint32() uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left == 0 {
		rand.Read(e.buf[:]) // never fails: the runtime ends the process instead
		e.left = len(e.buf)
	}
	p := e.buf[len(e.buf)-e.left:]
	e.left -= 4
	return binary.NativeEndian.Uint32(p)
}

// keyring gives the keys of one index: random ones, none of them one of the last
// len(past).
type keyring struct {
	stag STag // its key is the last one given
	used [1 << keyBits / 64]uint64
	past [1 << (keyBits - 1)]uint8
	n    int // keys given
}

// next is the next STag of the index.
func (k *keyring) next(e *entropy) STag {
	var key uint8
	for {
		key = uint8(e.uint32())
		if k.used[key/64]&(1<<(key%64)) == 0 {
			break
		}
	}
	slot := &k.past[k.n%len(k.past)]
	if k.n >= len(k.past) {
		k.used[*slot/64] &^= 1 << (*slot % 64)
	}
	*slot = key
	k.used[key/64] |= 1 << (key % 64)
	k.n++
	k.stag = k.stag&^(1<<keyBits-1) | STag(key)
	return k.stag
}
