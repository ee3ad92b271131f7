package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// mostLocal is the largest fraction of jobs that may be done here because of faults.
const mostLocal = 0.02

// manyStrikes is how often a store may be struck in one way without an effect.
const manyStrikes = 5

// trouble reports whether a job ran here because of a fault, not by rule: diagnostics are wanted here, and
// a share may be.
func (o *outcome) trouble() bool {
	return o.reason != "" && o.reason != diagnostics && o.reason != "local-share"
}

// sum adds up the figures of one or more seeds.
type sum struct {
	jobs, local, repeats, retried, wrong int
	cached                               int
	reasons                              map[string]int
	strikes, hits                        [numKinds]int
	slowest                              time.Duration
	stores                               effects
}

func (r *result) sum() sum {
	s := sum{reasons: make(map[string]int), jobs: len(r.jobs), wrong: len(r.wrong), stores: r.stores}
	for i := range r.jobs {
		o := &r.jobs[i]
		if o.trouble() {
			s.local++
			s.reasons[o.reason]++
		}
		if o.cached {
			s.cached++
		}
		s.repeats += o.repeats
		if o.attempts > 1 {
			s.retried++
		}
		s.slowest = max(s.slowest, o.took)
	}
	for _, st := range r.strikes {
		s.strikes[st.kind]++
		if st.hit {
			s.hits[st.kind]++
		}
	}
	return s
}

func (s *sum) add(o sum) {
	s.jobs += o.jobs
	s.local += o.local
	s.cached += o.cached
	s.repeats += o.repeats
	s.retried += o.retried
	s.wrong += o.wrong
	for reason, n := range o.reasons {
		s.reasons[reason] += n
	}
	for k := range numKinds {
		s.strikes[k] += o.strikes[k]
		s.hits[k] += o.hits[k]
	}
	s.slowest = max(s.slowest, o.slowest)
	s.stores.add(o.stores)
}

// report prints the figures of all seeds.
func report(w io.Writer, results []*result) {
	all := sum{reasons: make(map[string]int)}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "seed\tform\tjobs\tfaults\thits\tlocal\tother host\trepeated\tseconds\tslowest\tback\tat rest\twrong\t")
	for _, r := range results {
		s := r.sum()
		all.add(s)
		strikes, hits := 0, 0
		for k := range numKinds {
			strikes += s.strikes[k]
			hits += s.hits[k]
		}
		form := "text"
		if r.trees {
			form = "sources"
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%d\t%d (%.1f %%)\t%d\t%d\t%.1f\t%.1f s\t%.1f s\t%.1f s\t%d\t\n", r.plan.seed, form, s.jobs, strikes, hits,
			s.local, 100*float64(s.local)/float64(max(s.jobs, 1)), s.retried, s.repeats, r.took.Seconds(), s.slowest.Seconds(), r.back.Seconds(), r.settled.Seconds(), s.wrong)
	}
	_ = t.Flush() // w's errors are its owner's business
	fmt.Fprintf(w, "\nDone here because of a fault: %d of %d jobs (%.2f %%, at most %.0f %%): %s\n",
		all.local, all.jobs, 100*float64(all.local)/float64(max(all.jobs, 1)), 100*mostLocal, counts(all.reasons))
	for _, r := range results {
		for i := range r.jobs {
			if o := &r.jobs[i]; o.trouble() {
				fmt.Fprintf(w, "  seed %d, job %d after %.1f s: %s\n", r.plan.seed, o.job, o.to.Sub(r.began).Seconds(), o.said)
			}
		}
	}
	fmt.Fprintln(w, "\nFaults, and how many of each kind met a job:")
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for k := range numKinds {
		if all.strikes[k] == 0 {
			continue
		}
		note := ""
		if all.hits[k] == 0 {
			note = "never met a job: nothing was shown by it"
		}
		fmt.Fprintf(t, "  %v\t%d\t%d\t%s\n", k, all.strikes[k], all.hits[k], note)
	}
	_ = t.Flush() // likewise
	if e := &all.stores; e.struck {
		fmt.Fprintf(w, "\nWhat hosts keep: %.0f contents dropped to make room, %.0f not there that jobs named. %d jobs came back for that, and managers sent %.0f again.\n",
			e.evictions, e.lacks, e.lacking, e.sentAgain)
		fmt.Fprintf(w, "Of %d files that were spoilt daemons found out about %d while that was watched.\n", e.spoilt, e.met)
	}
	for _, r := range results {
		for _, why := range r.skipped {
			fmt.Fprintf(w, "seed %d without %s\n", r.plan.seed, why)
		}
		for _, what := range r.wrong {
			fmt.Fprintf(w, "seed %d: WRONG: %s\n", r.plan.seed, what)
		}
	}
}

func counts(m map[string]int) string {
	var words []string
	for _, word := range slices.Sorted(maps.Keys(m)) {
		words = append(words, fmt.Sprintf("%s %d", word, m[word]))
	}
	return strings.Join(words, ", ")
}

// verdict returns an error if any promise was not kept.
func verdict(results []*result) error {
	all := sum{reasons: make(map[string]int)}
	for _, r := range results {
		all.add(r.sum())
	}
	for k := range numKinds {
		if k.ofStore() && all.strikes[k] >= manyStrikes && all.hits[k] == 0 {
			return fmt.Errorf("%v: %d times, and never with an effect", k, all.strikes[k])
		}
	}
	switch {
	case all.wrong > 0:
		return fmt.Errorf("%d things went wrong", all.wrong)
	case float64(all.local) > mostLocal*float64(all.jobs):
		return fmt.Errorf("%d of %d jobs were done here because of faults, more than %.0f %%", all.local, all.jobs, 100*mostLocal)
	}
	return nil
}
