package connmgr

import (
	"slices"

	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/digest"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// lacked has a job whose host has not all that it names be sent to it again, with what the host says that it lacks: with
// all where it does not say which, or has dropped the list of them.
func (m *Manager) lacked(r *farm.Request, a *attempt) {
	if a.known != nil {
		ids, lists := a.out.lacked, holdings.ListsOf(a.known.Set)
		noList := slices.ContainsFunc(lists, func(id job.ContentID) bool { return slices.Contains(ids, id) })
		if noList && a.abridged { // what else it has, it has not said yet
			a.at.Holds.Differs()
		}
		own := make(map[job.ContentID]bool)
		all := len(ids) == 0 || noList && !a.abridged
		if all {
			ids = lists
		}
		for _, f := range a.known.Set.Files {
			if f.System && !noList {
				own[f.ID] = true
			}
			if all {
				ids = append(ids, f.ID)
			}
		}
		a.at.Holds.Forget(ids, own)
	}
	m.metrics.Lacked()
	m.farm.Retry(r, a.at)
}

// lackedOf reads which contents a host lacks from its answer, whose content lies in mem; nil: it does not say.
func lackedOf(r *job.Result, mem []byte) (ids []job.ContentID) {
	const size = uint64(len(job.ContentID{}))
	n := r.Stdout.Len
	if r.Stdout.Off != 0 || n == 0 || n%size != 0 || n > uint64(len(mem)) || digest.Sum(mem[:n]) != r.Digest {
		return nil
	}
	for mem = mem[:n]; len(mem) > 0; mem = mem[size:] {
		ids = append(ids, job.ContentID(mem[:size]))
	}
	return ids
}

// maxWeighed is how many hosts are asked content by content what they hold of a job. In a
// longer list a host counts as one that holds all of it or nothing.
const maxWeighed = 16

// heldOf is how many bytes of t each of the hosts is believed to hold; nil: nothing, or
// there is no choice.
func (m *Manager) heldOf(t *task, hosts []scheduler.Host) map[string]uint64 {
	if t.known == nil || len(hosts) < 2 {
		return nil
	}
	there := m.farm.Ledgers(hosts)
	held := make(map[string]uint64, len(there))
	for addr, h := range there {
		if n := h.Bytes(t.known.Set, len(hosts) <= maxWeighed); n > 0 {
			held[addr] = n
		}
	}
	return held
}
