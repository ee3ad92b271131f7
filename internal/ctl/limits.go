package ctl

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/gain"
	"github.com/rdistcc/rdistcc/internal/reason"
)

// share is a flag's value: a part of all, at most 1, as in "10%". Its zero value is not set.
type share struct {
	part float64
	text string // as it was given; empty: it was not
}

var _ pflag.Value = (*share)(nil)

// String returns the share as it was given.
func (s *share) String() string { return s.text }

// Type names the value in help.
func (s *share) Type() string { return "SHARE" }

// Set takes a share in per cent. The sign is required: whether 1 were all or a hundredth could only be guessed.
func (s *share) Set(text string) error {
	number, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n >= 0 && n <= 100) {
		return errors.New("give a share from 0% to 100%")
	}
	*s = share{n / 100, text}
	return nil
}

// exceeded reports whether part in of is more than the share allows. Of nothing, no part is too much.
func (s *share) exceeded(part, of int) bool {
	return s.text != "" && of > 0 && float64(part) > s.part*float64(of)
}

// limits are what a build must not exceed.
type limits struct{ local, misses share }

// set reports whether there are any.
func (l *limits) set() bool { return l.local.text != "" || l.misses.text != "" }

// mostJobs returns reasons in the order of how many commands each has, the most first.
func mostJobs(list []gain.Reason) []gain.Reason {
	return slices.SortedStableFunc(slices.Values(list), func(x, y gain.Reason) int { return cmp.Compare(y.Jobs, x.Jobs) })
}

// maxCauses is how many causes a line names.
const maxCauses = 3

// judge returns a line for each limit that a build has exceeded, with what has caused most of it.
func (l *limits) judge(g *gain.Sum) (lines []string) {
	if l.local.exceeded(g.CompilesHere, g.Compiles) {
		var why []string
		rest := g.CompilesHere
		for _, r := range mostJobs(g.Reasons) {
			if reason.Compiles(r.Reason) && len(why) < maxCauses {
				why = append(why, cause(r.Jobs, fmt.Sprintf("%s (%s)", r.Reason, reason.Explain(r.Reason))))
				rest -= r.Jobs
			}
		}
		lines = append(lines, overLine(g.CompilesHere, g.Compiles, "compiles ran here", "--max-local "+l.local.text, why, rest))
	}
	if missed := g.Asked - g.Hits; l.misses.exceeded(missed, g.Asked) {
		var why []string
		rest := missed
		for _, m := range g.Missed[:min(len(g.Missed), maxCauses)] {
			why = append(why, cause(m.Jobs, m.Why))
			rest -= m.Jobs
		}
		lines = append(lines, overLine(missed, g.Asked, "compiles that the cache was asked for were not in it", "--max-misses "+l.misses.text, why, rest))
	}
	return lines
}

func cause(jobs int, why string) string { return fmt.Sprintf("%d: %s", jobs, plain(why)) }

func overLine(part, of int, what, limit string, why []string, rest int) string {
	line := fmt.Sprintf("%d of %d %s (%s), more than %s", part, of, what, figure.Percent(uint64(part), uint64(of)), limit)
	if len(why) > 0 && rest > 0 {
		why = append(why, fmt.Sprintf("%d for other reasons", rest))
	}
	if len(why) > 0 {
		line += "; " + strings.Join(why, "; ")
	}
	return line
}
