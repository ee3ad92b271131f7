package attempt

import (
	"slices"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
)

// Lacked makes the job bring, next time, the contents that a's host says it lacks. If the host does not say
// which, it brings everything.
func (a *Attempt) Lacked() {
	if a.Known != nil {
		ids, own, noList := lost(a.Known.Sets(), a.Out.lacked)
		if noList && a.abridged { // it could not complete the list
			a.Host.Holds.Differs()
		}
		a.Host.Holds.Dropped(a.Out.lacked)
		a.Host.Holds.Forget(ids, own)
	}
	a.Metrics.Lacked()
	a.Farm.Retry(a.grant.Req, a.Host)
}

// lost returns which contents of a job's sets must be sent again if its host lacks those in lacked, or all if lacked is
// empty. The host was only assumed to have those in own. noList is set if it lacks a list, and so has not looked for that
// list's files or base yet; most of those are used by other jobs too, and probably still there.
func lost(sets []*inputs.Set, lacked []unit.ContentID) (ids []unit.ContentID, own map[unit.ContentID]bool, noList bool) {
	var lists []unit.ContentID
	for _, s := range sets {
		lists = append(lists, holdings.ListsOf(s)...)
	}
	noList = slices.ContainsFunc(lists, func(id unit.ContentID) bool { return slices.Contains(lacked, id) })
	all := len(lacked) == 0
	if ids = lacked; all || noList {
		ids = lists
	}
	own = make(map[unit.ContentID]bool)
	for _, s := range sets {
		for _, f := range s.Files {
			if f.System && !noList {
				own[f.ID] = true
			}
			if all {
				ids = append(ids, f.ID)
			}
		}
	}
	return ids, own, noList
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
