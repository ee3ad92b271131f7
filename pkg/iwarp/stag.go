package iwarp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
)

// An STag is an index of 24 bits and a key of 8 (RFC 5041 leaves that to the implementation;
// RDMA verbs do it this way). Both are random. An index belongs to one object at a time. A
// region of RegMR has it once, with one key; a region of AllocMR and a window keep theirs, and
// get another key with each registration or bind.

const (
	indexBits = 24
	keyBits   = 8
	// maxIndices bounds regions and windows together, so that at least half of all indices are
	// free to be drawn, and a guessed STag most likely names nothing.
	maxIndices = 1 << (indexBits - 1)
)

// quarantine is how many indices of one shard of the table rest before one can be reused, so
// that a peer's late use of an old STag does not meet a new region.
const quarantine = 4096

// stagShards spreads the table's locks. An index's low bits choose the shard.
const stagShards = 16

// stagTable maps STags to what they name.
type stagTable struct {
	shards  [stagShards]stagShard
	entropy entropy

	mrs, mws, bytes atomic.Int64 // in use
	closed          atomic.Bool  // no more entries are added
}

// stagShard is a hash table with linear probing. Indices are random, so they are their own hash,
// and a lookup takes one step however many there are.
type stagShard struct {
	mu      sync.RWMutex
	slots   []stagSlot // length a power of two, at most three quarters taken
	n       int        // taken
	resting []uint32   // a ring once it has quarantine entries
	oldest  int        // in resting
}

type stagSlot struct {
	index uint32 // 0: free
	m     *mr    // nil: the index is taken, and names nothing
}

// at returns the slot of index i, or the free one where it belongs.
func (sh *stagShard) at(i uint32) *stagSlot {
	mask := uint32(len(sh.slots) - 1)
	for k := i / stagShards & mask; ; k = (k + 1) & mask {
		if s := &sh.slots[k]; s.index == i || s.index == 0 {
			return s
		}
	}
}

// grow makes room for one more entry.
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

// free frees the slot of index i, and moves up the entries that it displaced.
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

// lookup returns what s names, or named last, or nil.
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

// add returns a new STag and, if m is not nil, makes it name m. It is random over the whole 32
// bits, so that it cannot be guessed from others (RFC 5040 §8.1.1), never 0, and its index is
// neither in use nor resting. Without m the index is taken and names nothing. add returns 0 when
// the table is closed.
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

// set makes m what its index names. The caller owns the index.
func (t *stagTable) set(m *mr) {
	sh := t.shard(index(m.stag))
	sh.mu.Lock()
	if slot := sh.at(index(m.stag)); slot.index != 0 {
		slot.m = m
	}
	sh.mu.Unlock()
}

// remove retires the index of s. It returns false if m is not, or no longer, what the index
// names.
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

// close ends all entries, as the device is being closed.
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

// reserve adds n to count, or fails if that exceeds limit; what is what is counted.
func reserve(count *atomic.Int64, n, limit int64, what string) error {
	if count.Add(n) > limit {
		count.Add(-n)
		return fmt.Errorf("%w: %d %s", ErrLimit, limit, what)
	}
	return nil
}

// entropy supplies random numbers from the kernel. They are fetched many at a time: a call takes
// longer than the rest of a registration.
type entropy struct {
	mu   sync.Mutex
	buf  [1024]byte
	left int // unused bytes at the end of buf
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

// keyring supplies the keys of one index: random ones, different from the last len(past).
type keyring struct {
	stag STag // its key is the last one given
	used [1 << keyBits / 64]uint64
	past [1 << (keyBits - 1)]uint8
	n    int // keys given
}

// next returns the next STag of the index.
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
