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

	windows sync.Mutex // guards mr.windows and mr.over of every region
}

type stagShard struct {
	mu      sync.RWMutex
	m       map[uint32]*mr // by index; nil value: taken, and names nothing
	resting []uint32       // a ring once it has quarantine entries
	oldest  int            // in resting
}

func (t *stagTable) init() {
	for i := range t.shards {
		t.shards[i].m = make(map[uint32]*mr)
	}
}

func index(s STag) uint32 { return uint32(s >> keyBits) }

func (t *stagTable) shard(i uint32) *stagShard { return &t.shards[i%stagShards] }

// lookup finds what s names, or named last, or nil: one step however many regions
// there are.
func (t *stagTable) lookup(s STag) *mr {
	sh := t.shard(index(s))
	sh.mu.RLock()
	m := sh.m[index(s)]
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
		if _, taken := sh.m[index(s)]; taken {
			sh.mu.Unlock()
			continue
		}
		if m != nil {
			m.stag = s
		}
		sh.m[index(s)] = m
		sh.mu.Unlock()
		return s
	}
}

// set makes m what its index, which its owner holds, names.
func (t *stagTable) set(m *mr) {
	sh := t.shard(index(m.stag))
	sh.mu.Lock()
	sh.m[index(m.stag)] = m
	sh.mu.Unlock()
}

// remove lets the index of s rest. It returns false if m is not, or no longer,
// what the index names.
func (t *stagTable) remove(s STag, m *mr) bool {
	i := index(s)
	sh := t.shard(i)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if now, taken := sh.m[i]; !taken || now != m {
		return false
	}
	sh.m[i] = nil
	if len(sh.resting) < quarantine {
		sh.resting = append(sh.resting, i)
		return true
	}
	delete(sh.m, sh.resting[sh.oldest])
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
		all := sh.m
		sh.m = make(map[uint32]*mr)
		sh.mu.Unlock()
		for _, m := range all {
			if m != nil {
				m.remote.close()
				m.local.close()
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
