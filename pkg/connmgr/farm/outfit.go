package farm

import (
	"slices"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
)

// aliases are the names by which hosts have toolchains of this machine that they were sent.
type aliases struct {
	own    map[unit.ToolchainID]unit.ToolchainID // by parcel
	parcel map[unit.ToolchainID]unit.ToolchainID // by toolchain of this machine
}

// maxAliases bounds the parcels that are remembered.
const maxAliases = 64

// Alias says that hosts may have a toolchain of this machine as a parcel.
func (f *Farm) Alias(parcel, own unit.ToolchainID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.aliases.own == nil || len(f.aliases.own) >= maxAliases {
		f.aliases = aliases{own: make(map[unit.ToolchainID]unit.ToolchainID), parcel: make(map[unit.ToolchainID]unit.ToolchainID)}
	}
	f.aliases.own[parcel], f.aliases.parcel[own] = own, parcel
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
	if p, ok := f.aliases.parcel[own]; ok && l.Has(p) {
		return p
	}
	return own
}

// aliased reports whether a host with these toolchains has one of this machine as a parcel.
func (f *Farm) aliased(ids []unit.ToolchainID, own unit.ToolchainID) bool {
	p, ok := f.aliases.parcel[own]
	return ok && slices.Contains(ids, p)
}

// Lacking returns the addresses of the hosts that are up and have said that they do not have a toolchain.
func (f *Farm) Lacking(own unit.ToolchainID) (addrs []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.aliases.parcel[own]
	for addr, h := range f.hosts {
		if h.state == Up && h.link != nil && h.link.Welcome().Tree && !h.link.Identifying() && !h.link.Has(own) && !(ok && h.link.Has(p)) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
