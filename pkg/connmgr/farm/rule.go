package farm

import (
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// ruleOf returns a line for the user about why the scheduler made the decision d about j: which rule made it
// take the first of list and not another one that looks as good. list is that of Consider.
func ruleOf(list []scheduler.Considered, d *scheduler.Decision, j *scheduler.Job) string {
	placed := d.Verdict == scheduler.Run || d.Verdict == scheduler.Local && d.Share
	if !placed || len(list) == 0 {
		return "" // d explains itself
	}
	chosen, others := list[0], list[1:]
	free := func(x scheduler.Considered) bool { return x.Finish > 0 && x.Why == "" }
	if d.Share {
		switch {
		case len(j.Hosts) == 0:
			return "the list has no other host"
		case j.Local && slices.ContainsFunc(others, free):
			return fmt.Sprintf("it would be done here in less than %.0f %% of the time, and more than %v sooner", 100*plainPart, plainTime)
		case j.Local:
			return "no host has a place now, and here it would be done sooner than by waiting for one"
		}
		return "no host has a place now, and the host list lets this machine do a part (localhost/N)"
	}
	for _, x := range others {
		if x.Finish == 0 || x.Finish >= chosen.Finish {
			continue
		}
		switch {
		case x.Host == scheduler.LocalHost && !j.Cost.Known:
			return "a host that has a place comes before this machine: nothing is known yet of what such a compile takes"
		case x.Host == scheduler.LocalHost:
			return fmt.Sprintf("a host that has a place comes before this machine, unless it would be done here in less than %.0f %% of the time and more than %v sooner",
				100*plainPart, plainTime)
		case x.Why == "":
			return "hosts that are about as fast take turns, and one that was not heard of for long gets a job to show how it is"
		}
		return "the sooner one has no place now, and to wait for one would not pay"
	}
	rivals := slices.DeleteFunc(slices.Clone(others), func(x scheduler.Considered) bool { return x.Finish == 0 })
	if len(rivals) == 0 {
		return "no other could take it"
	}
	return "it is expected to be done there first"
}
