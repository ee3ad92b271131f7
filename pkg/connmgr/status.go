package connmgr

import (
	"os"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Status returns the manager's current state.
func (m *Manager) Status() report.Status {
	own := m.o.Hosts()
	named := m.lists.Own().Sched
	s := report.Status{Version: m.o.Version, PID: os.Getpid(), Since: m.started, ListFrom: own.Where}
	if own.Err != nil {
		s.ListError = own.Err.Error()
	} else if own.Stale != nil {
		s.ListError, s.ListKept = own.Stale.Error(), true
	}
	if m.o.Config != nil {
		s.Config = m.o.Config()
	}
	free, _ := m.memory.Stats()
	s.Slots = report.SlotStatus{Max: free.Max, Free: free.Free, Leased: free.Total - free.Free}
	_, s.Waiting.Preprocess = m.turns.cpp.Load()
	_, s.Waiting.Local = m.turns.local.Load()

	known := m.known.Stats()
	s.Known = report.Known{Commands: known.Units, Files: known.Files, Bytes: 2 * known.Bytes, Most: 2 * known.Most, Dropped: known.Dropped,
		Directories: report.Directories{Watched: known.Watched, Most: known.MostWatched, Short: known.Short}}
	seen := m.known.Watched()
	s.Known.Searches = report.Searches{Watched: seen.Watched, Here: seen.Doubtful, Because: seen.Last, Unseen: seen.Unseen}
	s.Underway = m.underway.List(time.Now())
	s.Running = len(s.Underway)
	hosts := m.farm.Snapshot(named)
	s.Hosts, s.Drained, s.Waiting.Credit = hosts.Hosts, hosts.Drained, hosts.Waiting
	m.outfits(s.Hosts)
	m.account.tell(&s)
	if m.results != nil {
		s.Cache.Bytes, s.Cache.Unsigned = m.results.Sizes(), m.results.Unsigned()
	}
	return s
}

// Stats returns the totals of all commands so far.
func (m *Manager) Stats() report.Stats {
	s := m.account.stats()
	s.Version, s.Since = m.o.Version, m.started
	s.Hosts = append(s.Hosts, m.farm.Totals()...)
	if m.results != nil {
		s.Cache.Unsigned = m.results.Unsigned()
		for _, n := range m.results.Counts() {
			s.Cache.Tiers = append(s.Cache.Tiers, report.TierCounts{Name: n.Tier, Looks: n.Looks, Hits: n.Hits, Errors: n.Errors, Untrusted: n.Untrusted, Kept: n.Kept, Ahead: n.Ahead, AheadHits: n.AheadHits,
				Read: n.Read, Written: n.Written, TimeUS: uint64(n.Time.Microseconds()), SavedUS: uint64(n.SavedCPU.Microseconds())})
		}
	}
	return s
}

// EachEnded calls see for each command that ended after the first from ones, as far as the manager remembers them, in
// the order in which they ended, and returns what continues where it ends. see must be quick and must not keep the
// record.
func (m *Manager) EachEnded(from uint64, see func(*report.JobRecord)) (next uint64) {
	return m.account.eachEnded(from, see)
}

// Why returns the last jobs of a source or output file. names are its absolute name and what was typed.
func (m *Manager) Why(names []string) report.Why { return m.account.why(names, m.started) }
