package ctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/top"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func (c *ctl) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show hosts, jobs and reasons of this user's connection manager",
		Long: "Shows what the connection manager is doing: its hosts and their state, how many jobs ran where and, for those\n" +
			"that ran locally, why. It also shows how the inputs of jobs were determined (scan, memo, list, text; see\n" +
			"docs/usage.md). Without a manager it shows what the last one recorded; if there is no record, the exit status\n" +
			"is 100.",
		Example: "  rdistcc status\n  rdistcc status --json | jq '.jobs[] | select(.place == \"local\")'\n  watch -n1 rdistcc status",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var s report.Status
			data, err := c.ask(&s, "status")
			if errors.Is(err, errNoManager) {
				return c.lastStatus(asJSON)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return c.printJSON(data)
			}
			top.Clean(&s)
			return c.print(statusText(&s, time.Now()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// lastStatus shows what the last manager knew, as none runs now.
func (c *ctl) lastStatus(asJSON bool) error {
	k := c.kept()
	if err := c.noManager(); k == nil || exitCodeOf(err) != reason.ExitGeneral {
		return err
	}
	s, _ := k.Last()
	if asJSON {
		return c.marshal(s)
	}
	top.Clean(s)
	return c.print(c.lastStatusText(s, time.Now()))
}

// lastStatusText formats the status of a manager that no longer runs.
func (c *ctl) lastStatusText(s *report.Status, now time.Time) []byte {
	return append([]byte(c.lastLine(s.NotRunning, s.Version, s.Since, now)), statusBody(s, now)...)
}

func (c *ctl) marshal(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return failf(reason.ExitGeneral, "%v", err)
	}
	return c.printJSON(data)
}

// statusText formats a status for people.
func statusText(s *report.Status, now time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "connection manager %s, process %d, up %s\n", cmp.Or(s.Version, "of unknown version"), s.PID, figure.Age(now.Sub(s.Since)))
	fmt.Fprintf(&b, "%s under way, %d of %d slots taken", figure.Count(s.Running, "command"), s.Slots.Leased, s.Slots.Max)
	if w := waitingText(s); w != "" {
		b.WriteString("; " + w)
	}
	b.WriteString("\n")
	if note := s.SlotNote(); note != "" {
		b.WriteString(note + "\n")
	}
	return append(b.Bytes(), statusBody(s, now)...)
}

// statusBody formats a status, without its first lines.
func statusBody(s *report.Status, now time.Time) []byte {
	var b bytes.Buffer
	if s.ListFrom != "" && (s.ListError == "" || s.ListKept) {
		fmt.Fprintf(&b, "host list of its own: %s\n", s.ListFrom)
	}
	for _, note := range s.SettingNotes() {
		b.WriteString(note + "\n")
	}
	b.WriteString("\n")
	if len(s.Underway) > 0 {
		b.Write(underwayLines(s.Underway))
		b.WriteString("\n")
	}
	switch {
	case len(s.Hosts) > 0:
		b.Write(hostLines(s.Hosts))
	case s.ListError != "" && !s.ListKept: // that says more
		b.WriteString("no hosts: all jobs are compiled here until the list is mended\n")
	default:
		b.WriteString(noHosts)
	}
	if off := offList(s); len(off) > 0 {
		fmt.Fprintf(&b, "drained by hand, on no list now: %s\n", strings.Join(off, ", "))
	}
	if len(s.Jobs) > 0 {
		b.WriteString("\n")
		b.Write(jobLines(s.Jobs))
	}
	if s.Cache.Asked > 0 {
		b.WriteString("\n")
		b.Write(cacheLine(&s.Cache))
		b.Write(unsignedLine(s.Cache.Unsigned))
	}
	b.Write(groupLines(s.Hosts))
	b.Write(inputLines(&s.Inputs))
	b.Write(knownLine(&s.Known))
	if len(s.Hosts) > 0 && s.NoHosts > 0 {
		fmt.Fprintf(&b, "\n%s found no hosts configured\n", figure.Count(int(s.NoHosts), "job"))
	}
	if lines := troubles(s.Recent, now); len(lines) > 0 {
		b.WriteString("\nlast troubles\n")
		for _, l := range lines {
			b.WriteString("  " + l + "\n")
		}
	}
	return b.Bytes()
}

// maxUnderway is how many running commands a status shows.
const maxUnderway = 20

// underwayLines lists what runs now, the oldest first.
func underwayLines(list []report.Underway) []byte {
	text := table(func(w io.Writer) {
		fmt.Fprintln(w, "NOW\tPHASE\tPLACE\tAGE")
		for i := range list[:min(len(list), maxUnderway)] {
			u := &list[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", u.Source, u.Phase, u.Place(), figure.Milliseconds(u.AgeMS))
		}
	})
	if n := len(list) - maxUnderway; n > 0 {
		text = fmt.Appendf(text, "and %d more\n", n)
	}
	return text
}

// offList returns the drained hosts that s does not show otherwise.
func offList(s *report.Status) (off []string) {
	for _, addr := range s.Drained {
		if !slices.ContainsFunc(s.Hosts, func(h report.HostStatus) bool { return h.Addr == addr }) {
			off = append(off, addr)
		}
	}
	return off
}

func waitingText(s *report.Status) string {
	var parts []string
	for _, w := range []struct {
		n    int
		for_ string
	}{{s.Waiting.Credit, "a host"}, {s.Waiting.Preprocess, "a preprocessor's turn"}, {s.Waiting.Local, "a local turn"}} {
		if w.n > 0 {
			parts = append(parts, fmt.Sprintf("%d wait for %s", w.n, w.for_))
		}
	}
	return strings.Join(parts, ", ")
}

// table aligns tab-separated lines in columns.
func table(write func(w io.Writer)) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	write(w)
	_ = w.Flush() // writing to a bytes.Buffer does not fail
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return []byte(strings.Join(lines, "\n"))
}

// groupLines says which hosts keep results for a group of clients; it is empty without such hosts.
func groupLines(hosts []report.HostStatus) (text []byte) {
	in := make(map[string][]string)
	for i := range hosts {
		if h := &hosts[i]; h.Group != "" {
			in[h.Group] = append(in[h.Group], h.Addr)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(in)) {
		text = fmt.Appendf(text, "results are shared with the clients of group %s on %s\n", group, strings.Join(in[group], ", "))
	}
	return text
}

func hostLines(hosts []report.HostStatus) []byte {
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "HOST\tSTATE\tRUNNING\tJOBS\tCREDITS\tDONE\tFAILED\tSENT\tRECEIVED\tLOAD\tSANDBOX\tSEEN\t")
		for i := range hosts {
			h := &hosts[i]
			jobs, load, seen := "-", "-", "-"
			if h.Jobs > 0 {
				jobs = fmt.Sprint(h.Jobs)
			}
			if h.Load != nil {
				load = fmt.Sprintf("%.2f", float64(h.Load.LoadAvg)/100)
				seen = fmt.Sprintf("%s ago, %s", figure.Milliseconds(h.LoadAgeMS), cmp.Or(h.LoadFrom, "unknown"))
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Addr, h.Word(), h.Running, jobs, h.Credits,
				h.OK, h.Failed, figure.Bytes(h.Out), figure.Bytes(h.In), load, cmp.Or(h.Sandbox, "-"), seen, h.Note())
		}
	})
}

// jobLines lists where jobs ran, remote ones first, then by frequency of the reason.
func jobLines(jobs []report.JobCount) []byte {
	jobs = slices.Clone(jobs)
	total := func(j report.JobCount) uint64 { return j.OK + j.Failed }
	slices.SortStableFunc(jobs, func(a, b report.JobCount) int {
		return cmp.Or(cmp.Compare(b.Place, a.Place), cmp.Compare(total(b), total(a)))
	})
	var all uint64
	for _, j := range jobs {
		all += total(j)
	}
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "PLACE\tHOST OR REASON\tJOBS\tSHARE\tFAILED")
		for _, j := range jobs {
			fmt.Fprintf(w, "%s\t%s\t%d\t%.0f%%\t%d\n", j.Place, cmp.Or(j.Host, j.Reason, "-"), total(j), 100*float64(total(j))/float64(max(all, 1)), j.Failed)
		}
	})
}

// inputLines says how the files read by jobs were found, and why the compiler here was asked; it is empty
// without such jobs.
func inputLines(c *report.InputCounts) []byte {
	var text []byte
	if all := c.All(); all > 0 {
		text = append([]byte("\n"), table(func(w io.Writer) {
			fmt.Fprintln(w, "INPUTS\tJOBS\tSHARE")
			for _, how := range report.InputWords {
				if n := c.Of(how); n > 0 {
					fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", how, n, figure.Percent(n, all), report.KnownBy[how])
				}
			}
		})...)
	}
	if len(c.Doubts) > 0 {
		text = fmt.Appendf(text, "why the compiler here was asked: %s\n", strings.Join(c.DoubtCounts(), ", "))
	}
	return text
}

// knownLine says how much the manager knows of what commands read, and in another line what it has seen of how compilers search; it is
// empty without any of that.
func knownLine(k *report.Known) (line []byte) {
	if seen := searchesText(&k.Searches); seen != "" {
		defer func() { line = fmt.Appendf(line, "searches: %s\n", seen) }()
	}
	if k.Commands == 0 {
		return nil
	}
	line = fmt.Appendf(nil, "known: what %s read, %s in %s of at most %s", figure.Count(k.Commands, "command"), figure.Count(k.Files, "file"), figure.Bytes(uint64(k.Bytes)), figure.Bytes(uint64(k.Most)))
	if k.Dropped > 0 {
		line = fmt.Appendf(line, "; %s dropped since for want of memory (manager.inputs)", figure.Count(int(k.Dropped), "command"))
	}
	line = append(line, '\n')
	if d := &k.Directories; d.Short && d.Most > 0 {
		line = fmt.Appendf(line, "directories: the kernel watches %d, as many as it may (a quarter of fs.inotify.max_user_watches); the others are looked at for each job\n", d.Watched)
	} else if d.Short {
		line = append(line, "directories: the kernel watches none (fs.inotify.max_user_instances, max_user_watches); they are looked at for each job\n"...)
	}
	return line
}

// searchesText says what was seen of compilers that were watched, or nothing if there were none.
func searchesText(s *report.Searches) string {
	const what = " of compiler, options and sources "
	switch {
	case s.Here > 0:
		return fmt.Sprintf("%d of %s%sstay here, because a compiler looks for %q", s.Here, figure.Count(s.Watched, "combination"), what, s.Because)
	case s.Watched > 0:
		return figure.Count(s.Watched, "combination") + what + "watched, none of which looks for files in a way of its own"
	case s.Unseen:
		return "compilers cannot be watched on this system"
	}
	return ""
}

// maxTroubles is how many lines of trouble a status shows.
const maxTroubles = 5

// troubles returns the newest jobs that had to run here because of trouble.
func troubles(recent []report.JobRecord, now time.Time) []string {
	var out []string
	for i := range recent {
		r := &recent[i]
		if !r.Trouble || len(out) == maxTroubles {
			continue
		}
		out = append(out, fmt.Sprintf("%s ago  %s  %s  %s", figure.Age(now.Sub(r.Began)), r.Source, r.Reason, r.Detail))
	}
	return out
}
