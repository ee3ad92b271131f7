package attempt

import (
	"slices"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
)

// Lacked makes the job bring, next time, the contents that a's host says it lacks. If the host does not say
// which, or has dropped the job's list, it brings everything.
func (a *Attempt) Lacked() {
	if a.Known != nil {
		ids, lists := a.Out.lacked, []unit.ContentID(nil)
		for _, s := range a.Known.Sets() {
			lists = append(lists, holdings.ListsOf(s)...)
		}
		noList := slices.ContainsFunc(lists, func(id unit.ContentID) bool { return slices.Contains(ids, id) })
		if noList && a.abridged { // it could not complete the list, and has not said yet which files it lacks
			a.Host.Holds.Differs()
		}
		own := make(map[unit.ContentID]bool)
		all := len(ids) == 0 || noList && !a.abridged
		if all {
			ids = lists
		}
		for _, s := range a.Known.Sets() {
			for _, f := range s.Files {
				if f.System && !noList {
					own[f.ID] = true
				}
				if all {
					ids = append(ids, f.ID)
				}
			}
		}
		a.Host.Holds.Forget(ids, own)
	}
	a.Metrics.Lacked()
	a.Farm.Retry(a.grant.Req, a.Host)
}

// lackedOf returns the contents that a host lacks according to its answer, or nil if it does not say. mem has
// the answer's content.
func lackedOf(r *job.Result, mem []byte) (ids []unit.ContentID) {
	const size = uint64(len(unit.ContentID{}))
	n := r.Stdout.Len
	if r.Stdout.Off != 0 || n == 0 || n%size != 0 || n > uint64(len(mem)) || digest.Sum(mem[:n]) != r.Digest {
		return nil
	}
	for mem = mem[:n]; len(mem) > 0; mem = mem[size:] {
		ids = append(ids, unit.ContentID(mem[:size]))
	}
	return ids
}
