package main

import (
	"slices"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// respell makes the plan one of a command without spec files (-specs=) that does the same: the driver itself says which
// programs it would run, with which words, for the command as it was typed and for the other one. If there is none, the reason
// says so. A host sees neither the files nor the words that name them, and runs what it would run for anybody.
//
// The driver is asked for each command, as it would read the files for each.
func (f *flow) respell(names []string) (why string) {
	stays := reason.NotReproducible + "specs"
	if !compile.SpecsAgain(names) {
		return stays
	}
	typed, ok := f.programs(f.plan.Whole())
	if !ok {
		return stays
	}
	plain, ok := f.programs(f.plan.Respelt(nil, nil, nil))
	if !ok {
		return stays
	}
	more, less, ok := typed.Beside(plain)
	if !ok {
		return stays
	}
	more = slices.DeleteFunc(more, func(w string) bool { return strings.HasPrefix(w, "-iplugindir=") }) // the driver says that itself
	loose := !f.plan.Recorded()
	tries := [][]string{f.plan.Respelt(less, nil, more), f.plan.Respelt(less, more, nil)}
	if len(more) == 0 {
		tries = tries[1:]
	}
	for _, words := range tries {
		plan := compile.ParseUnlisted(words, f.plan.Driver, syscall.Getenv)
		if why := f.findModules(&plan); why != "" {
			return why
		}
		if plan.Local && plan.Makes == nil {
			return plan.Reason
		}
		same := plain
		if len(more)+len(less) > 0 {
			if same, ok = f.programs(words); !ok {
				continue
			}
		}
		if typed.Like(same, loose) {
			f.plan, f.said = plan, same
			return ""
		}
	}
	return stays
}

// programs asks the driver what it would run for words, in the command's own environment.
func (f *flow) programs(words []string) (*driver.Answer, bool) {
	said := f.askIn(command{file: f.cc.file, argv: append([]string{f.cc.argv[0], "-###"}, words...)}, f.set.childEnv())
	a, err := driver.ReadAnswer(said)
	return a, err == nil
}
