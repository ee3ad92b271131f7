package connmgr

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/sandbox"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// snapshot is the state of a farm at one moment.
type snapshot struct {
	hosts     []report.HostStatus // by address
	drained   []string            // by hand, by address
	waiting   int                 // jobs that wait for a credit
	preparing int                 // jobs that wrappers are making
	here      int                 // jobs that were placed on this machine
}

// snapshot returns the state of all hosts, and of those that are named and that no job has
// asked for yet.
func (f *farm) snapshot(named []scheduler.Host) snapshot {
	s := snapshot{hosts: []report.HostStatus{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.waiting, s.here = len(f.queue.waiting), f.here.jobs
	for _, p := range f.demand.preparing {
		s.preparing += p.jobs
	}
	known := f.knownLocked()
	for _, h := range f.hosts {
		s.hosts = append(s.hosts, h.statusLocked(known))
	}
	for i := range named {
		if addr := named[i].Addr; f.hosts[addr] == nil {
			s.hosts = append(s.hosts, f.unusedLocked(addr))
		}
	}
	slices.SortFunc(s.hosts, func(a, b report.HostStatus) int { return cmp.Compare(a.Addr, b.Addr) })
	for addr := range f.drains.on {
		s.drained = append(s.drained, addr)
	}
	slices.Sort(s.drained)
	return s
}

// status returns the state of the hosts of a list, in its order.
func (f *farm) status(list []scheduler.Host) []report.HostStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []report.HostStatus{}
	known := f.knownLocked()
	for i := range list {
		if h := f.hosts[list[i].Addr]; h != nil {
			out = append(out, h.statusLocked(known))
		} else {
			out = append(out, f.unusedLocked(list[i].Addr))
		}
	}
	return out
}

// places counts those of a list's hosts. One that gets no jobs gives none
// (HostStatus.Usable).
func (f *farm) places(list []scheduler.Host) (p report.Places) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.knownLocked()
	var up []scheduler.Host
	for i := range list {
		e := &list[i]
		h := f.hosts[e.Addr]
		if f.drains.on[e.Addr] {
			continue
		}
		if h == nil || (h.state == hostConnecting || h.state == hostStarting) && known[e.Addr].Why == "" {
			if e.Slots > 0 {
				p.Guess += e.Slots
			} else {
				p.Guess += report.GuessedPlaces
			}
			continue
		}
		if s := h.statusLocked(known); s.Usable() {
			up = append(up, *e)
		}
	}
	p.Hosts = f.sched.Live(up)
	return p
}

// totals returns what came of all hosts' jobs, by address.
func (f *farm) totals() (list []report.HostStats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		list = append(list, report.HostStats{Host: h.addr, OK: h.jobs.ok, Failed: h.jobs.failed, BytesOut: h.jobs.out, BytesIn: h.jobs.in})
	}
	slices.SortFunc(list, func(a, b report.HostStats) int { return cmp.Compare(a.Host, b.Host) })
	return list
}

// unusedLocked is the state of a host that no job has asked for yet.
func (f *farm) unusedLocked(addr string) report.HostStatus {
	return report.HostStatus{Addr: addr, State: report.StateUnused, Drained: f.drains.on[addr]}
}

// knownLocked is what the scheduler knows of the hosts, by address.
func (f *farm) knownLocked() map[string]scheduler.Status {
	list := f.sched.Snapshot(time.Now())
	known := make(map[string]scheduler.Status, len(list))
	for _, s := range list {
		known[s.Addr] = s
	}
	return known
}

// statusLocked is h's state; known is knownLocked's.
func (h *host) statusLocked(known map[string]scheduler.Status) report.HostStatus {
	s := report.HostStatus{Addr: h.addr, State: h.state.String(),
		OK: h.jobs.ok, Failed: h.jobs.failed, Out: h.jobs.out, In: h.jobs.in, Drained: h.f.drains.on[h.addr]}
	k := known[h.addr]
	s.RTTUS, s.Rate, s.Speed = k.Link.RTT.Microseconds(), k.Link.Rate, k.Speed
	s.OnTrial, s.PauseMS, s.DoubtMS, s.Doubt = k.HalfOpen, k.Retry.Milliseconds(), k.Quarantine.Milliseconds(), k.Doubt
	if h.state == hostUp {
		s.Depth = h.f.sched.Depth(h.addr)
	}
	if h.lastErr != nil {
		s.Error = h.lastErr.Error()
	}
	s.HeldFiles, s.HeldBytes = h.holds.Stats()
	if l := h.link; l != nil {
		view, can := l.View(), l.Welcome()
		s.Links, s.Credits, s.Running, s.Load = len(h.links), h.unspentLocked(), h.runningLocked(), &view.Load
		s.LoadFrom, s.LoadAgeMS, s.Pressure = view.From, time.Since(view.At).Milliseconds(), view.Pressure
		measures := sandbox.Set(can.Sandbox)
		s.Sandbox, s.Measures = measures.Level().String(), measures.Names()
		ids, _ := l.Toolchains()
		s.Jobs, s.Tools, s.Tree, s.Demand = int(can.Jobs), len(ids), can.Tree, l.Said()
		s.Identifying = l.Identifying()
		lacks, common := h.lacksLocked()
		s.Compilers, s.Lacks, s.Foreign, s.Refused = l.Compilers(), lacks, !common, h.refused
	}
	return s
}
