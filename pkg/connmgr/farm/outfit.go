package farm

import (
	"cmp"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// aliases are the names by which hosts have toolchains of this machine that they were sent: own by parcel. There can be several of
// one toolchain, as a parcel has files that decide no object.
type aliases map[unit.ToolchainID]unit.ToolchainID

// maxAliases bounds the parcels that are remembered.
const maxAliases = 64

// Alias records the parcel under which hosts may have a toolchain of this machine.
func (f *Farm) Alias(parcel, own unit.ToolchainID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.aliases == nil || len(f.aliases) >= maxAliases {
		f.aliases = make(aliases)
	}
	f.aliases[parcel] = own
	for _, h := range f.hosts {
		h.toolchainsLocked()
	}
	f.dispatchLocked()
}

// Called returns the name by which the host of l has a toolchain of this machine.
func (f *Farm) Called(l *link.Link, own unit.ToolchainID) unit.ToolchainID {
	if l.Has(own) {
		return own
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for parcel, of := range f.aliases {
		if of == own && l.Has(parcel) {
			return parcel
		}
	}
	return own
}

// sent reports whether one with these toolchains has one of this machine as a parcel.
func (a aliases) sent(own unit.ToolchainID, has func(unit.ToolchainID) bool) bool {
	for parcel, of := range a {
		if of == own && has(parcel) {
			return true
		}
	}
	return false
}

// Lacking returns the addresses of the hosts that are up and have said that they do not have a toolchain.
func (f *Farm) Lacking(own unit.ToolchainID) (addrs []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for addr, h := range f.hosts {
		if h.state == Up && h.link != nil && takesCompilers(h.link.Welcome()) && !h.link.Identifying() && !h.link.Has(own) && !f.aliases.sent(own, h.link.Has) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// takesCompilers reports whether compilers that are sent to a host can run in its private trees. In those without namespaces a program
// has the name under which the host has it.
func takesCompilers(w *job.Welcome) bool { return w.Tree && !sandbox.Set(w.Sandbox).Has(sandbox.Names) }

// Coming records that done bytes of a toolchain have been sent to a host. Only a new maximum counts as progress.
func (f *Farm) Coming(addr string, own unit.ToolchainID, done uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sched.Coming(time.Now(), addr, own, done)
}

// Queued records that a toolchain waits to be sent to a host while transfers to other hosts make progress.
func (f *Farm) Queued(addr string, own unit.ToolchainID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sched.Queued(time.Now(), addr, own)
}

// Unsendable records that a toolchain cannot be sent to a host.
func (f *Farm) Unsendable(addr string, own unit.ToolchainID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sched.Unsendable(addr, own)
	f.dispatchLocked()
}

// Equipment is what is known of a toolchain of this machine at a host.
type Equipment struct {
	Addr      string
	Up        bool   // it is connected, and has said which compilers it has; otherwise nothing is known
	Note      string // if it is not
	Down      bool   // it could not be reached
	Installed bool
	Sent      bool // it has it because it was sent there
	Tree      bool // it shows private trees
	Takes     bool // other compilers than its own can run in them
}

// Equipped returns what is known of a toolchain at the hosts of a list, in its order.
func (f *Farm) Equipped(list []scheduler.Host, own unit.ToolchainID) (all []Equipment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.knownLocked()
	for i := range list {
		e := Equipment{Addr: list[i].Addr}
		switch h := f.hosts[e.Addr]; {
		case h == nil:
			e.Note = "no job has asked for it yet"
		case h.link == nil || h.state != Up || h.link.Identifying():
			s := h.statusLocked(known)
			e.Note, e.Down = cmp.Or(s.Note(), s.State), h.state == Down
		default:
			e.Up, e.Tree, e.Takes = true, h.link.Welcome().Tree, takesCompilers(h.link.Welcome())
			e.Installed, e.Sent = h.link.Has(own), f.aliases.sent(own, h.link.Has)
		}
		all = append(all, e)
	}
	return all
}
