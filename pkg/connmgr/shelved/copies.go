package shelved

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Copies has results kept by more hosts than the one that has compiled them. A nil *Copies does nothing.
type Copies struct {
	farm  *farm.Farm
	hosts int
	room  *semaphore.Weighted // bytes of results under way
	count func(sent bool)
}

// copyRoom is how many bytes of results may be under way to hosts. What exceeds it is not copied.
const copyRoom = 32 << 20

// NewCopies returns Copies that have results kept by so many hosts in all, or nil if that is the one that has compiled
// them. count is called for each copy that was to be made, with whether its host was asked for it.
func NewCopies(f *farm.Farm, hosts int, count func(sent bool)) *Copies {
	if hosts < 2 {
		return nil
	}
	return &Copies{farm: f, hosts: hosts, room: semaphore.NewWeighted(copyRoom), count: count}
}

// Make has entry, which host made has compiled and keeps, kept by further hosts of a list, in the background. They
// are chosen by its key (scheduler.Weight), so that equal results get to the same hosts, whichever manager has had
// them compiled.
func (c *Copies) Make(list []scheduler.Host, key resultcache.Key, entry []byte, made string) {
	c.make(list, key, entry, made, false)
}

// MakeAgain has entry, which no host has made, kept by hosts of a list, in the background, in place of another one of that
// key. It reports whether one will be asked.
func (c *Copies) MakeAgain(list []scheduler.Host, key resultcache.Key, entry []byte) (asked bool) {
	return c.make(list, key, entry, "", true)
}

func (c *Copies) make(list []scheduler.Host, key resultcache.Key, entry []byte, made string, again bool) (asked bool) {
	if c == nil {
		return false
	}
	now := time.Now()
	up, _ := c.farm.Shelves(now, list)
	for _, x := range ranked(up, key, made, c.hosts-1) {
		if !again && !x.TakesCopy(key) {
			continue // it has it
		}
		n := int64(len(entry))
		ok := c.room.TryAcquire(n)
		if ok {
			ok = x.Keep(now, link.Copy{Key: key, Entry: entry, Done: func(sent bool) {
				c.room.Release(n)
				c.count(sent)
			}})
			if !ok {
				c.room.Release(n)
			}
		}
		if !ok {
			c.count(false)
		}
		asked = asked || ok
	}
	return asked
}

// ranked returns the n hosts of up, without made, that come first for a key.
func ranked(up []farm.Shelf, key resultcache.Key, made string, n int) []farm.Shelf {
	up = slices.DeleteFunc(up, func(x farm.Shelf) bool { return x.Addr == made || !x.TakesCopies() })
	name := binary.LittleEndian.Uint64(key[:])
	slices.SortFunc(up, func(x, y farm.Shelf) int {
		return cmp.Compare(scheduler.Weight(name, y.Addr), scheduler.Weight(name, x.Addr))
	})
	return up[:min(n, len(up))]
}
