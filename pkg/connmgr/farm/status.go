package farm

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Snapshot is the state of a farm at one moment.
type Snapshot struct {
	Hosts     []report.HostStatus // by address
	Drained   []string            // addresses of hosts drained by hand, sorted
	Waiting   int                 // jobs that wait for a credit
	Preparing int                 // jobs that wrappers are making
	Here      int                 // jobs that were placed on this machine
}

// Snapshot returns the state of all hosts, including those in named that no job has asked for yet.
func (f *Farm) Snapshot(named []scheduler.Host) Snapshot {
	s := Snapshot{Hosts: []report.HostStatus{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Waiting, s.Here = len(f.queue.waiting), f.here.jobs
	for _, p := range f.demand.preparing {
		s.Preparing += p.jobs
	}
	known := f.knownLocked()
	for _, h := range f.hosts {
		s.Hosts = append(s.Hosts, h.statusLocked(known))
	}
	for i := range named {
		if addr := named[i].Addr; f.hosts[addr] == nil {
			s.Hosts = append(s.Hosts, f.unusedLocked(addr))
		}
	}
	slices.SortFunc(s.Hosts, func(a, b report.HostStatus) int { return cmp.Compare(a.Addr, b.Addr) })
	for addr := range f.drains.on {
		s.Drained = append(s.Drained, addr)
	}
	slices.Sort(s.Drained)
	return s
}

// Status returns the state of the hosts of a list, in its order.
func (f *Farm) Status(list []scheduler.Host) []report.HostStatus {
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

// Places counts the places on the hosts of a list. A host that gets no jobs counts none (HostStatus.Usable).
func (f *Farm) Places(list []scheduler.Host) (p report.Places) {
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
		if h == nil || (h.state == Connecting || h.state == Starting) && known[e.Addr].Why == "" {
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

// Totals returns the totals of each host's jobs, by address.
func (f *Farm) Totals() (list []report.HostStats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		list = append(list, report.HostStats{Host: h.Addr, OK: h.jobs.ok, Failed: h.jobs.failed, BytesOut: h.jobs.out.Load(), BytesIn: h.jobs.in.Load()})
	}
	slices.SortFunc(list, func(a, b report.HostStats) int { return cmp.Compare(a.Host, b.Host) })
	return list
}

// Held returns what each host holds.
func (f *Farm) Held() (records []*holdings.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		if r := h.Holds.Record(h.Addr); r != nil {
			records = append(records, r)
		}
	}
	return records
}

// unusedLocked returns the state of a host that no job has asked for yet.
func (f *Farm) unusedLocked(addr string) report.HostStatus {
	return report.HostStatus{Addr: addr, State: report.StateUnused, Drained: f.drains.on[addr]}
}

// knownLocked returns what the scheduler knows about the hosts, by address.
func (f *Farm) knownLocked() map[string]scheduler.Status {
	list := f.sched.Snapshot(time.Now())
	known := make(map[string]scheduler.Status, len(list))
	for _, s := range list {
		known[s.Addr] = s
	}
	return known
}

// statusLocked returns h's state. known is what knownLocked returns.
func (h *Host) statusLocked(known map[string]scheduler.Status) report.HostStatus {
	s := report.HostStatus{Addr: h.Addr, State: h.state.String(),
		OK: h.jobs.ok, Failed: h.jobs.failed, Out: h.jobs.out.Load(), In: h.jobs.in.Load(), Drained: h.f.drains.on[h.Addr]}
	k := known[h.Addr]
	s.RTTUS, s.Rate, s.Speed = k.Link.RTT.Microseconds(), k.Link.Rate, k.Speed
	s.OnTrial, s.PauseMS, s.DoubtMS, s.Doubt = k.HalfOpen, k.Retry.Milliseconds(), k.Quarantine.Milliseconds(), k.Doubt
	if h.state == Up {
		s.Depth = h.f.sched.Depth(h.Addr)
	}
	if h.lastErr != nil {
		s.Error = h.lastErr.Error()
	}
	s.HeldFiles, s.HeldBytes = h.Holds.Stats()
	if l := h.link; l != nil {
		view, can := l.View(), l.Welcome()
		s.Links, s.Credits, s.Running, s.Load = len(h.links), h.unspentLocked(), h.runningLocked(), &view.Load
		s.LoadFrom, s.LoadAgeMS, s.Pressure = view.From, time.Since(view.At).Milliseconds(), view.Pressure
		measures := sandbox.Set(can.Sandbox)
		s.Sandbox, s.Measures, s.Version = measures.Level().String(), measures.Names(), can.Program
		ids, _ := l.Toolchains()
		s.Jobs, s.Tools, s.Tree, s.Demand = int(can.Jobs), len(ids), can.Tree, l.Said()
		s.Identifying, s.Group = l.Identifying(), l.Group()
		s.Results, s.ResultsKnown = l.Results()
		lacks, common := h.lacksLocked()
		s.Compilers, s.Lacks, s.Foreign, s.Refused = l.Compilers(), lacks, !common, h.refused
	}
	return s
}
