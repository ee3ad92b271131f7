package connmgr

import (
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Demand returns how many places the manager could use at the moment.
func (m *Manager) Demand() report.Demand {
	s := m.farm.Snapshot(nil)
	d := report.Demand{Queued: s.Waiting + s.Preparing, Here: m.underway.CountWanting()}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		d.Running += h.Running
		if h.State == "up" && h.Usable() {
			d.Hosts++
			d.Places += h.Jobs
		}
	}
	d.Wanted = d.Running + d.Queued + d.Here
	return d
}

// scarce reports whether more hosts would have kept a command from running locally for this reason.
func scarce(why string) bool {
	switch why {
	case reason.LocalShare, reason.NoHosts, reason.HostLost, reason.Full, reason.Memory, reason.Draining:
		return true
	}
	return false
}
