package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
)

// minUnits is how many translation units the demo promises.
const minUnits = 150

// report prints the table and returns an error if a promise was not kept; the promised size applies to all
// code bases together. noTree says why the hosts have no private trees, or is empty: without them, some
// commands are compiled here by rule.
func report(w io.Writer, f *farm.Farm, results []result, noTree string, whole bool) error {
	sum := result{name: "all", hosts: map[string]int{}, fallbacks: map[string]int{}}
	for _, r := range results {
		sum.add(r)
	}
	var hosts []string
	for _, d := range f.Daemons {
		hosts = append(hosts, d.Addr)
	}

	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\tjobs\t%s\tlocal\tMB sent\tMB back\tseconds\tjobs/s\twithout rdistcc\tobjects\t\n", strings.Join(hosts, "\t"))
	for _, r := range append(results, sum) {
		fmt.Fprintf(t, "%s\t%d\t", r.name, r.units)
		for _, h := range hosts {
			fmt.Fprintf(t, "%d\t", r.hosts[h])
		}
		verdict := "all equal"
		if len(r.differing) > 0 {
			verdict = fmt.Sprintf("%d DIFFER", len(r.differing))
		}
		fmt.Fprintf(t, "%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f s\t%s\t\n", r.localJobs(), float64(r.sent)/1e6, float64(r.got)/1e6,
			r.farm.Seconds(), float64(r.units)/r.farm.Seconds(), r.local.Seconds(), verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nBoth hosts are this machine and share its cores: the gain comes with other machines in RDISTCC_HOSTS.")

	if n := sum.localJobs(); n > 0 && noTree != "" && sum.byLevel() {
		fmt.Fprintf(w, "%d jobs were compiled here (%s), as these hosts can show compiles no private trees: %s\n", n, reasons(sum.fallbacks), noTree)
		sum.fallbacks = nil
	}

	switch {
	case sum.localJobs() > 0:
		return fmt.Errorf("%d jobs were compiled here: %s; %s", sum.localJobs(), reasons(sum.fallbacks), sum.sample)
	case len(sum.hosts) == 0:
		return errors.New("no job was compiled on a host")
	case len(sum.differing) > 0:
		return fmt.Errorf("objects that differ from the local compiler's: %s", strings.Join(sum.differing, " "))
	case whole && sum.units < minUnits:
		return fmt.Errorf("only %d translation units, want %d", sum.units, minUnits)
	}
	var shown []string
	for _, r := range results {
		if r.shown != "" {
			shown = append(shown, r.shown)
		}
	}
	fmt.Fprintf(w, "What was linked works: %s.\n", strings.Join(shown, "; "))
	return nil
}

func (r *result) add(o result) {
	r.units += o.units
	r.local += o.local
	r.farm += o.farm
	r.sent += o.sent
	r.got += o.got
	for h, n := range o.hosts {
		r.hosts[h] += n
	}
	for reason, n := range o.fallbacks {
		r.fallbacks[reason] += n
	}
	r.differing = append(r.differing, o.differing...)
	if r.sample == "" {
		r.sample = o.sample
	}
}

func (r *result) localJobs() (n int) {
	for _, k := range r.fallbacks {
		n += k
	}
	return n
}

// byLevel reports whether all jobs that were compiled here were so by the rules of the text form, which is
// what hosts without private trees get.
func (r *result) byLevel() bool {
	for why := range r.fallbacks {
		if why != reason.Diagnostics && !strings.HasPrefix(why, reason.NotReproducible) {
			return false
		}
	}
	return true
}

// lackOfTrees returns why one of the farm's hosts has no private trees, or "" if all have.
func lackOfTrees(ctx context.Context, f *farm.Farm) (string, error) {
	for _, d := range f.Daemons {
		text, err := d.Get(ctx, "/status.json")
		if err != nil {
			return "", err
		}
		var st struct {
			NoTree string `json:"no_tree"`
		}
		if err := json.Unmarshal(text, &st); err != nil {
			return "", fmt.Errorf("status of %s: %w", d.Name, err)
		}
		if st.NoTree != "" {
			return st.NoTree, nil
		}
	}
	return "", nil
}

func reasons(counts map[string]int) string {
	var words []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %d", reason, counts[reason]))
	}
	return strings.Join(words, ", ")
}
