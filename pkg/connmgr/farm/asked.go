package farm

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Speed returns how fast a host is with a toolchain, relative to the average of all hosts.
func (f *Farm) Speed(addr string, id unit.ToolchainID) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sched.Speed(addr, id)
}

// Takes reports whether a host takes jobs.
func (f *Farm) Takes(addr string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hosts[addr]
	return h != nil && h.state == Up
}

// Link returns the connection that represents a host, or nil.
func (f *Farm) Link(addr string) *link.Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.hosts[addr]; h != nil && h.link != nil {
		return h.link.Link
	}
	return nil
}

// Ledgers returns the ledgers of a list's connected hosts, by address.
func (f *Farm) Ledgers(list []scheduler.Host) map[string]*holdings.Ledger {
	there := make(map[string]*holdings.Ledger, len(list))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range list {
		if h := f.hosts[list[i].Addr]; h != nil && h.link != nil {
			there[h.Addr] = &h.Holds
		}
	}
	return there
}

// Shelf is a host that may keep results which clients of its tenant can read.
type Shelf struct {
	Addr string
	*link.Link
}

// Shelves returns those hosts of a list that are connected, and whose results are trusted. early reports that no host of the
// list has been connected yet, or that it is not known yet what one of them keeps.
func (f *Farm) Shelves(now time.Time, list []scheduler.Host) (up []Shelf, early bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	down := true
	for i := range list {
		h := f.hosts[list[i].Addr]
		if h == nil || h.link == nil {
			continue
		}
		down = false
		if !f.drains.on[h.Addr] && f.sched.Trusted(now, h.Addr) {
			up = append(up, Shelf{h.Addr, h.link.Link})
			early = early || h.link.ReadsShelf()
		}
	}
	return up, early || down
}

// Prospect is what can be expected of a job that is under way on a host for another manager, and of the same job if it
// were sent to a host now.
type Prospect struct {
	Length time.Duration // how long it runs on that host
	There  time.Duration // when it would be done there, behind all that is there already; 0: that is not known
	Free   bool          // some host has a place for it now
	Anew   time.Duration // when it would be done on the best one of these
}

// Prospect returns what can be expected of a job that is under way on that host.
func (f *Farm) Prospect(j *scheduler.Job, on string) (p Prospect) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	p.Length = f.sched.Length(now, on, j)
	for _, x := range f.sched.Consider(now, j, &scheduler.Decision{}) {
		if x.Host == on {
			p.There = x.Finish
		}
		if x.Finish > 0 && x.Why == "" && (!p.Free || x.Finish < p.Anew) {
			p.Anew, p.Free = x.Finish, true
		}
	}
	return p
}

// ForgetResult makes no host that is connected now be asked for what it keeps for key.
func (f *Farm) ForgetResult(key resultcache.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		if h.link != nil {
			h.link.Forget(key)
		}
	}
}

// Quarantine keeps all jobs away from a host until it is undrained by hand.
func (f *Farm) Quarantine(addr, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sched.Quarantine(time.Now(), addr, why)
	f.dispatchLocked()
}

// Identifying reports whether a host of a list is still identifying its compilers, so that it is not known
// yet what it lacks.
func (f *Farm) Identifying(list []scheduler.Host) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range list {
		if h := f.hosts[list[i].Addr]; h != nil && h.link != nil && h.link.Identifying() {
			return true
		}
	}
	return false
}

// Compilers returns the common names of the compilers that the hosts of a list have, and how many of the
// hosts are connected.
func (f *Farm) Compilers(list []scheduler.Host) (names []string, up int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range list {
		h := f.hosts[list[i].Addr]
		if h == nil || h.link == nil {
			continue
		}
		up++
		for _, n := range h.link.Compilers() {
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	return names, up
}

// maxUsed bounds how many compilers of this machine are remembered.
const maxUsed = 16

// Use remembers a compiler that a job has asked for. name is its common name.
func (f *Farm) Use(id unit.ToolchainID, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.used[id]; known {
		return
	}
	if f.used == nil || len(f.used) >= maxUsed {
		f.used = make(map[unit.ToolchainID]string)
	}
	f.used[id] = name
}

// lacksLocked returns the names of the used compilers that h lacks. common reports that h has another one of
// them, or that nothing is known.
func (h *Host) lacksLocked() (lacks []string, common bool) {
	if h.link == nil || len(h.f.used) == 0 {
		return nil, true
	}
	ids, _ := h.link.Toolchains()
	for id, name := range h.f.used {
		switch {
		case slices.Contains(ids, id), h.f.aliases.sent(id, h.link.Has):
			common = true
		case !slices.Contains(lacks, name):
			lacks = append(lacks, name)
		}
	}
	slices.Sort(lacks)
	return lacks, common
}
