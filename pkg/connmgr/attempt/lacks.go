package attempt

import (
	"slices"

	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/digest"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// Lacked has the job sent again to a's host, which has not all that it names, with what the host says
// that it lacks: with all where it does not say which, or has dropped the list of them.
func (a *Attempt) Lacked() {
	if a.Known != nil {
		ids, lists := a.Out.lacked, holdings.ListsOf(a.Known.Set)
		noList := slices.ContainsFunc(lists, func(id job.ContentID) bool { return slices.Contains(ids, id) })
		if noList && a.abridged { // what else it has, it has not said yet
			a.Host.Holds.Differs()
		}
		own := make(map[job.ContentID]bool)
		all := len(ids) == 0 || noList && !a.abridged
		if all {
			ids = lists
		}
		for _, f := range a.Known.Set.Files {
			if f.System && !noList {
				own[f.ID] = true
			}
			if all {
				ids = append(ids, f.ID)
			}
		}
		a.Host.Holds.Forget(ids, own)
	}
	a.Metrics.Lacked()
	a.Farm.Retry(a.grant.Req, a.Host)
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
