package comparison

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Causes for which a command does not take as long as in the earlier build.
const (
	New       = "new"        // the earlier build did not have it
	Gone      = "gone"       // the later build does not have it
	Missed    = "missed"     // the cache had its result then, and has not now
	Hit       = "hit"        // the cache has its result now, and had not then
	ToHere    = "to-here"    // it ran on a host then, and here now
	ToHost    = "to-host"    // the other way round
	OtherHost = "other-host" // it ran on another host; without its wait
	Waited    = "waited"     // its wait for a place or its turn, if it ran on hosts or here both times
	Ran       = "ran"        // the rest
)

// Cause is by how much more time the commands took that it applies to.
type Cause struct {
	Cause    string        `json:"cause"`
	Commands int           `json:"commands"`
	Time     time.Duration `json:"time_ns"`
}

// Label says what the cause is, for a table or the end of a sentence.
func (x *Cause) Label() string {
	switch x.Cause {
	case New:
		return "new commands"
	case Gone:
		return "commands that are gone"
	case Missed:
		return "no longer in the cache"
	case Hit:
		return "in the cache now"
	case ToHere:
		return "here, no longer on a host"
	case ToHost:
		return "on a host, no longer here"
	case OtherHost:
		return "speed on another host"
	case Waited:
		return "waits for a place or a turn"
	}
	return "speed in the same place"
}

// Command is what a command took in both builds. One that ran several times counts as one.
type Command struct {
	Name  string           `json:"name"` // of its source or output, as seen from the build's directory
	Took  [2]time.Duration `json:"took_ns"`
	Place [2]string        `json:"place"` // where it ran; empty: the build did not have it
	Cause string           `json:"cause"`
	// Why is why it ran here in the later build, or the cache had no result.
	Why string `json:"why,omitempty"`

	where  [2]string // as report.JobRecord.Place
	waited [2]time.Duration
}

// Longer returns by how much longer it took in the later build.
func (u *Command) Longer() time.Duration { return u.Took[1] - u.Took[0] }

// Says says what has changed for it.
func (u *Command) Says() string {
	switch {
	case u.Cause == New:
		return "new, " + u.Place[1]
	case u.Cause == Gone:
		return "gone"
	case u.Cause == Missed && u.Why != "" && u.where[1] == report.PlaceRemote:
		return "not in the cache: " + u.Why
	case u.Why != "" && u.where[1] == report.PlaceLocal && u.where[0] != report.PlaceLocal:
		return "here: " + u.Why
	case u.Cause == Waited:
		return fmt.Sprintf("waited %s, before %s", digits(u.waited[1]), digits(u.waited[0]))
	case u.Place[0] != u.Place[1]:
		return u.Place[1] + ", before " + u.Place[0]
	}
	if u.Longer() < 0 {
		return "faster, " + u.Place[1]
	}
	return "slower, " + u.Place[1]
}

// commands sets what the records of commands tell.
func (c *Comparison) commands(s *builds.Store) {
	byKey := make(map[string]*Command)
	missed := make(changes)
	for i := range c.Builds {
		b := &c.Builds[i]
		var ran []span
		err := s.Jobs(b.ID, func(r *report.JobRecord) error {
			u := commandOf(byKey, b, r)
			at, wait := c.count(i, r)
			ran = append(ran, at)
			u.Took[i] += at.took()
			u.waited[i] += wait
			u.where[i], u.Place[i] = r.Place(), figure.Printable(placeName(r.Place(), cmp.Or(r.Cached, r.Host)))
			if r.Asked && r.Missed != "" && (r.Cached == "" || r.Local) {
				missed.add(r.Missed, i, 1, time.Duration(r.CPUUS)*time.Microsecond)
			}
			if i == 1 {
				u.Why = figure.Printable(r.Missed)
				if r.Local {
					u.Why = figure.Printable(r.Reason)
				}
			}
			return nil
		})
		if err != nil || len(ran) < b.Gain.Jobs {
			why := fmt.Sprintf("of %s, the records of %d are left", figure.Count(b.Gain.Jobs, "command"), len(ran))
			if err != nil {
				why = figure.Printable(err.Error())
			}
			c.Notes = append(c.Notes, fmt.Sprintf("the commands of build %d are not compared: %s", b.ID, why))
			c.Partial = true
		}
		c.Idle[i] = idle(b, ran)
	}
	if c.Partial {
		c.Idle, c.Took, c.Waited, c.CPU = [2]time.Duration{}, [2]time.Duration{}, [2]time.Duration{}, [2]time.Duration{}
		return
	}
	c.Missed = missed.list()
	causes := make(map[string]*Cause)
	for _, u := range byKey {
		u.judge(func(cause string, by time.Duration) {
			if causes[cause] == nil {
				causes[cause] = &Cause{Cause: cause}
			}
			causes[cause].Commands++
			causes[cause].Time += by
		})
		if u.Longer() != 0 {
			c.Commands = append(c.Commands, *u)
		}
	}
	for _, x := range causes {
		c.Causes = append(c.Causes, *x)
	}
	slices.SortFunc(c.Causes, func(x, y Cause) int {
		return cmp.Or(cmp.Compare(y.Time.Abs(), x.Time.Abs()), cmp.Compare(x.Cause, y.Cause))
	})
	slices.SortFunc(c.Commands, func(x, y Command) int {
		by := cmp.Compare(y.Longer(), x.Longer())
		if c.Longer() < 0 {
			by = -by
		}
		return cmp.Or(by, cmp.Compare(x.Name, y.Name))
	})
}

// commandOf returns the command of a record, known by what it makes.
func commandOf(byKey map[string]*Command, b *builds.Build, r *report.JobRecord) *Command {
	name := within(b.Dir, r.Cwd, cmp.Or(r.Source, r.Output))
	key := name + "\x00" + within(b.Dir, r.Cwd, r.Output)
	u := byKey[key]
	if u == nil {
		u = &Command{Name: cmp.Or(figure.Printable(name), "commands without a source")}
		byKey[key] = u
	}
	return u
}

// within returns the name of a file as it is seen from a build's directory, so that builds of two checkouts can be compared.
func within(dir, cwd, name string) string {
	if name == "" || cwd == "" && !filepath.IsAbs(name) {
		return name
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	return figure.Near(dir, name)
}

// count adds a command to the figures of a build, and returns when it ran and how long it waited.
func (c *Comparison) count(i int, r *report.JobRecord) (at span, wait time.Duration) {
	b := &c.Builds[i]
	// What outlives the build, or seems to as the clock has jumped, counts as far as the build goes.
	at = span{r.Began, r.Ended}
	if at.from.Before(b.Began) {
		at.from = b.Began
	}
	if at.to.After(b.Ended) {
		at.to = b.Ended
	}
	switch r.Place() {
	case report.PlaceRemote: // of a hit, these are of its compile
		wait = time.Duration(r.CreditUS)*time.Microsecond + time.Duration(r.QueueUS)*time.Microsecond
	case report.PlaceLocal:
		wait = time.Duration(r.TurnUS) * time.Microsecond
	}
	wait = min(wait, at.took())
	c.Took[i] += at.took()
	c.Waited[i] += wait
	if r.Place() != report.PlaceCached {
		c.CPU[i] += time.Duration(r.CPUUS) * time.Microsecond
	}
	return at, wait
}

// span is when a command ran.
type span struct{ from, to time.Time }

func (s span) took() time.Duration { return max(s.to.Sub(s.from), 0) }

// idle returns how long none of the commands of a build ran.
func idle(b *builds.Build, ran []span) time.Duration {
	slices.SortFunc(ran, func(x, y span) int { return x.from.Compare(y.from) })
	free, until := b.Wall(), b.Began
	for _, s := range ran {
		if until.After(s.from) {
			s.from = until
		}
		if s.to.After(until) {
			until = s.to
		}
		free -= s.took()
	}
	return max(free, 0)
}

// judge sets the cause for which the command does not take as long, and gives note the parts of the difference.
func (u *Command) judge(note func(cause string, by time.Duration)) {
	was, is := u.where[0], u.where[1]
	switch {
	case was == "":
		u.Cause = New
	case is == "":
		u.Cause = Gone
	case was != is && was == report.PlaceCached:
		u.Cause = Missed
	case was != is && is == report.PlaceCached:
		u.Cause = Hit
	case was != is && is == report.PlaceLocal:
		u.Cause = ToHere
	case was != is:
		u.Cause = ToHost
	default:
		u.Cause = Ran
		if is == report.PlaceRemote && u.Place[0] != u.Place[1] {
			u.Cause = OtherHost
		}
		wait := u.waited[1] - u.waited[0]
		rest := u.Longer() - wait
		if wait != 0 {
			note(Waited, wait)
		}
		if rest != 0 {
			note(u.Cause, rest)
		}
		if wait.Abs() > rest.Abs() {
			u.Cause = Waited
		}
		return
	}
	note(u.Cause, u.Longer())
}
