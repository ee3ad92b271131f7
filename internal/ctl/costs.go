package ctl

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/internal/costs/trial"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Defaults of rdistcc costs.
const (
	costsDays = 7
	costsTop  = 10
	maxTried  = 1000
)

func (c *ctl) costsCommand() *cobra.Command {
	var asJSON bool
	var days float64
	var top int
	var tryPCH, commands string
	cmd := &cobra.Command{
		Use:   "costs [BUILD]",
		Short: "Show what units and headers cost, and why the cache missed",
		Long: "Shows, of all compiles of the last days or of a build that ran under `rdistcc build`: the units that take most time and\n" +
			"memory; the headers that cost most over all units, by a model whose error is named; what an edit of a header costs;\n" +
			"what compiling headers once would save; and why the cache had no result. docs/costs.md explains the figures.\n" +
			"With --try-pch, it makes a precompiled header of the headers of a unit that should save it most, here and in a directory of\n" +
			"its own, and measures what that saves. Units are named as sources, whose commands are in a compile_commands.json, or one\n" +
			"command is given after --; otherwise they are the three that take most time.",
		Example: "  rdistcc costs\n  rdistcc costs 12 --top 30\n  rdistcc costs --days 1 --json | jq '.headers[0]'\n  rdistcc costs --try-pch src/a.cc\n  rdistcc costs --try-pch=5 -- g++ -O2 -c a.cc",
		RunE: func(cmd *cobra.Command, args []string) error {
			trying := cmd.Flags().Changed("try-pch")
			switch {
			case !trying && commands != "":
				return failf(reason.ExitArguments, "--commands is for --try-pch")
			case !trying && len(args) > 1:
				return failf(reason.ExitArguments, "costs takes one BUILD, as in: rdistcc costs 12")
			}
			if !(days > 0 && days < 10_000) || top < 1 {
				return failf(reason.ExitArguments, "--days and --top take numbers above 0")
			}
			if len(args) > 0 && cmd.Flags().Changed("days") {
				return failf(reason.ExitArguments, "a build has its own time: give BUILD or --days")
			}
			if trying {
				n, err := strconv.Atoi(tryPCH)
				if err != nil || n < 1 || n > maxTried {
					return failf(reason.ExitArguments, "--try-pch takes a number of headers from 1 to %d", maxTried)
				}
				t := tries{headers: n, commands: commands, units: args}
				if at := cmd.ArgsLenAtDash(); at > 0 || at == 0 && len(args) == 0 {
					return failf(reason.ExitArguments, "a command stands after --, and nothing before it, as in: rdistcc costs --try-pch -- g++ -O2 -c a.cc")
				} else if at == 0 {
					dir, err := os.Getwd()
					if err != nil {
						return failf(reason.ExitIO, "%v", err)
					}
					t.units, t.command = nil, &trial.Unit{Dir: dir, Words: args}
				}
				return c.tryPCH(t, days, asJSON)
			}
			r, of, err := c.costs(args, days)
			if err != nil {
				return err
			}
			if asJSON {
				return c.marshal(r)
			}
			if err := c.print(costsText(r, of, top)); err != nil {
				return err
			}
			for _, n := range r.Notes {
				fmt.Fprintf(c.err, "rdistcc: %s\n", plain(n))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with all units and headers")
	cmd.Flags().Float64Var(&days, "days", costsDays, "of the last `N` days")
	cmd.Flags().IntVar(&top, "top", costsTop, "show the first `N` of each kind")
	cmd.Flags().StringVar(&tryPCH, "try-pch", "", "measure what a precompiled header of at most `N` headers saves units")
	cmd.Flags().Lookup("try-pch").NoOptDefVal = tryHeaders
	cmd.Flags().StringVar(&commands, "commands", "", "with --try-pch: the `FILE` with units' commands (compile_commands.json)")
	return cmd
}

// costs returns what compiles cost: those of the build that the words name, otherwise those of the last days; and of what that is, in
// words.
func (c *ctl) costs(words []string, days float64) (r *costs.Report, of string, err error) {
	since := time.Now().Add(-time.Duration(days * 24 * float64(time.Hour)))
	want := func(x *journal.Compile) bool { return !x.Ended.Before(since) }
	var counts func(*journal.Compile) bool // nil: all of these
	of = "the last " + figure.Count(int(days), "day")
	if days != math.Trunc(days) {
		of = "the last " + figure.Age(time.Since(since))
	}
	if len(words) > 0 {
		b, err := c.findBuild(words[0])
		if err != nil {
			return nil, "", err
		}
		of = fmt.Sprintf("build %d", b.ID)
		if counts, err = c.ofBuild(b); err != nil {
			return nil, "", err
		}
		// Why the cache missed is known from what units had read before.
		since = b.Began.AddDate(0, 0, -costsDays)
		want = func(x *journal.Compile) bool { return x.Ended.Before(b.Began) && !x.Ended.Before(since) || counts(x) }
	}
	l, err := journal.Read(c.journal(), since, want)
	if err != nil {
		return nil, "", failf(reason.ExitIO, "what compiles cost: %v", err)
	}
	return costs.Of(l, counts), of, nil
}

// journal returns the directory in which the manager notes compiles, and has it write what it has not yet. Without a manager, it is the one of
// the last.
func (c *ctl) journal() string {
	var j report.Journal
	_, _ = c.ask(&j, "costs") // one that cannot answer has noted what it could
	return cmp.Or(j.Dir, filepath.Join(cmp.Or(config.StateHome(c.getenv), ipc.StateDir(c.getenv)), "costs"))
}

// ofBuild returns a function that says which compiles are of a build: those with a number that its commands had, while it ran.
func (c *ctl) ofBuild(b *builds.Build) (func(*journal.Compile) bool, error) {
	numbers := make(map[uint64]bool) // a manager that came later has others
	if err := c.buildStore().Jobs(b.ID, func(r *report.JobRecord) error { numbers[r.Build] = true; return nil }); err != nil {
		return nil, failf(reason.ExitIO, "%v", err)
	}
	began, ended := b.Began.Truncate(time.Millisecond), b.Ended
	if ended.IsZero() {
		ended = time.Now()
	}
	return func(x *journal.Compile) bool {
		return numbers[x.Build] && !x.Ended.Before(began) && !x.Ended.After(ended.Add(lastOnes))
	}, nil
}

// costsText formats a report for people, with the first top lines of each table.
func costsText(r *costs.Report, of string, top int) []byte {
	if r.Compiles == 0 {
		return fmt.Appendf(nil, "no compiles of %s are noted\n", of)
	}
	var out bytes.Buffer
	failed := ""
	if r.Failed > 0 {
		failed = fmt.Sprintf("; %d failed", r.Failed)
	}
	fmt.Fprintf(&out, "%s of %s in %s: %d on hosts, %d from the cache, %d here%s\n", figure.Count(r.Compiles, "compile"), figure.Count(len(r.Units), "unit"), of,
		r.OnHosts, r.Cached, r.Here, failed)
	fmt.Fprintf(&out, "They took %s of CPU time. All units, each compiled once, take %s", figure.Digits(r.Spent), figure.Digits(r.UnitsCPU))
	if rest := len(r.Units) - r.Known; rest > 0 {
		fmt.Fprintf(&out, "; of %d it is not known what they read", rest)
	}
	out.WriteString(".\n")
	dir, _ := os.Getwd() // without one, all names are absolute
	section := func(head, columns string, n int, row func(w io.Writer, i int)) {
		if n == 0 {
			return
		}
		fmt.Fprintf(&out, "\n%s\n", head)
		text := table(func(w io.Writer) {
			fmt.Fprintln(w, columns)
			for i := range min(n, top) {
				row(w, i)
			}
		})
		out.Write(indent(text))
		if n > top {
			fmt.Fprintf(&out, "  and %d more\n", n-top)
		}
	}
	unitRow := func(w io.Writer, u *costs.Unit) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", figure.Near(dir, u.Source), known(u.CPU > 0, figure.Digits(u.CPU)), shareOf(u.CPU, r.UnitsCPU),
			known(u.Memory > 0, figure.Bytes(u.Memory)), known(u.Files > 0, figure.Bytes(u.Text)), known(u.Files > 0, fmt.Sprint(u.Files)), u.Compiles)
	}
	const unitColumns = "UNIT\tCPU\tSHARE\tMEMORY\tTEXT\tFILES\tCOMPILES"
	section("Units that take most time", unitColumns, len(r.Units), func(w io.Writer, i int) { unitRow(w, &r.Units[i]) })
	byMemory := slices.DeleteFunc(slices.Clone(r.Units), func(u costs.Unit) bool { return u.Memory == 0 })
	slices.SortStableFunc(byMemory, func(x, y costs.Unit) int { return cmp.Compare(y.Memory, x.Memory) })
	section("Units that take most memory", unitColumns, len(byMemory), func(w io.Writer, i int) { unitRow(w, &byMemory[i]) })

	head := "Headers that cost most, over all units"
	if r.Fit.Error >= 0 {
		head += fmt.Sprintf("\n(estimated; off by less than %.0f%% for half of the units;\n in 19 of 20 cases, a header is off by no more than its ERROR)", math.Ceil(100*r.Fit.Error))
	} else {
		head += "\n(estimated by text: there are too few units for more)"
	}
	section(head, "HEADER\tCPU\tSHARE\tERROR\tTEXT\tUNITS", len(r.Headers), func(w io.Writer, i int) {
		h := &r.Headers[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", headerName(dir, h), figure.Digits(h.CPU), shareOf(h.CPU, r.KnownCPU),
			known(h.Error >= 0, "± "+figure.Digits(h.Error)), figure.Percent(h.Text, r.Text), h.Units)
	})
	once := r.Once(top)
	section("What headers would save that are compiled once, estimated", "HEADER\tSAVES\tSHARE\tUNITS", len(once.Headers), func(w io.Writer, i int) {
		h := &once.Headers[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", withMore(figure.Near(dir, h.Name), h.More), figure.Digits(h.Saves), shareOf(h.Saves, r.KnownCPU), h.Units)
	})
	if len(once.Headers) > 0 {
		fmt.Fprintf(&out, "  A module of the first would save %s; a precompiled header of %s: %s (%s).\n  rdistcc costs --try-pch measures that.\n",
			figure.Digits(once.Headers[0].Saves), thatMany(len(once.Headers)), figure.Digits(once.Saves), shareOf(once.Saves, r.KnownCPU))
	}
	edited := r.Edited()
	section("Headers whose edits cost most", "HEADER\tAN EDIT COSTS\tUNITS\tCHANGES", len(edited), func(w io.Writer, i int) {
		h := edited[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", headerName(dir, h), figure.Digits(h.Touch), h.Units, h.Changes)
	})
	if x := &r.Cache; x.Asked > 0 {
		missed := x.Asked - x.Hits
		head := fmt.Sprintf("The cache had %d of %s (%s)", x.Hits, figure.Count(x.Asked, "compile"), figure.Percent(uint64(x.Hits), uint64(x.Asked)))
		if x.Hits > 0 {
			head += fmt.Sprintf(", which saved %s of CPU time", figure.Digits(x.Saved))
		}
		if len(x.Missed) == 0 {
			fmt.Fprintf(&out, "\n%s.\n", head)
		}
		section(fmt.Sprintf("%s.\nWhy it missed %d", head, missed), "WHY\tCOMPILES\tCPU", len(x.Missed), func(w io.Writer, i int) {
			m := &x.Missed[i]
			fmt.Fprintf(w, "%s\t%d\t%s\n", m.Says(dir), m.Compiles, figure.Digits(m.CPU))
		})
	}
	return out.Bytes()
}

// headerName names a header, and says how many others are always read with it.
func headerName(dir string, h *costs.Header) string {
	return withMore(figure.Near(dir, h.Name()), len(h.Files)-1)
}

func withMore(name string, n int) string {
	if n > 0 {
		name += fmt.Sprintf(" (+%d)", n)
	}
	return name
}

// thatMany refers to n things that were listed.
func thatMany(n int) string {
	if n == 1 {
		return "it"
	}
	return fmt.Sprintf("these %d", n)
}

// known returns text, or a dash if what it says is not known.
func known(is bool, text string) string {
	if !is {
		return "-"
	}
	return text
}

// shareOf formats a part of a time.
func shareOf(part, of time.Duration) string {
	return figure.Percent(uint64(max(part, 0)), uint64(max(of, 0)))
}
