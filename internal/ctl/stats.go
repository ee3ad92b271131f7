package ctl

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func (c *ctl) statsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show totals since the connection manager started",
		Long: "Shows where commands ran and why, how long each phase of remote compiles took, how accurate predictions were,\n" +
			"and how often work was done twice. Without a manager it shows what the last one recorded.",
		Example: "  rdistcc stats\n  rdistcc stats --json | jq '.phases[] | select(.phase == \"total\").p99_us'",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var s report.Stats
			data, err := c.ask(&s, "stats")
			if errors.Is(err, errNoManager) {
				return c.lastStats(asJSON)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return c.printJSON(data)
			}
			return c.print(statsText(&s, time.Now()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// lastStats shows what the last manager had counted, as none runs now.
func (c *ctl) lastStats(asJSON bool) error {
	k := c.kept()
	if err := c.noManager(); k == nil || exitCodeOf(err) != reason.ExitGeneral {
		return err
	}
	_, s := k.Last()
	if asJSON {
		return c.marshal(s)
	}
	return c.print(append([]byte(c.lastLine(s.NotRunning, s.Version, s.Since, time.Now())+"\n"), statsBody(s)...))
}

// statsText formats Stats for people.
func statsText(s *report.Stats, now time.Time) []byte {
	head := fmt.Sprintf("connection manager %s, up %s\n\n", cmp.Or(s.Version, "of unknown version"), figure.Age(now.Sub(s.Since)))
	return append([]byte(head), statsBody(s)...)
}

// statsBody formats Stats, without the first line.
func statsBody(s *report.Stats) []byte {
	var b bytes.Buffer
	if len(s.Jobs) == 0 {
		b.WriteString("no commands yet\n")
		return b.Bytes()
	}
	b.Write(jobLines(s.Jobs))
	fmt.Fprintf(&b, "\n%s, %s (%d first), %s here because of trouble, %s ended from outside\n",
		figure.Count(int(s.Retries), "retry"), figure.Count(int(s.Hedges), "second host"), s.HedgesWon, figure.Count(int(s.Troubles), "compile"), figure.Count(int(s.Gone), "command"))
	fmt.Fprintf(&b, "%s ran on a host and then here again%s\n", figure.Count(int(s.Twice), "compile"), twiceReasons(s.Again))
	fmt.Fprintf(&b, "%s of sources sent, %s of results received\n", figure.Bytes(s.BytesOut), figure.Bytes(s.BytesIn))
	if s.Cache.Asked > 0 {
		b.Write(cacheLine(&s.Cache))
	}
	if len(s.Audits) > 0 {
		var parts []string
		for _, result := range slices.Sorted(maps.Keys(s.Audits)) {
			parts = append(parts, fmt.Sprintf("%d %s", s.Audits[result], result))
		}
		fmt.Fprintf(&b, "audits by a second host: %s\n", strings.Join(parts, ", "))
	}
	p := &s.Prediction
	switch {
	case p.Count > 0:
		fmt.Fprintf(&b, "predicted times of %s: %s within a quarter, %s within a factor of two, half of all took more than %.2f times as long\n",
			figure.Count(int(p.Count), "compile"), figure.Percent(p.Near, p.Count), figure.Percent(p.Twice, p.Count), p.Median)
	case p.Unknown > 0:
		fmt.Fprintf(&b, "predicted times of none of %s: the first build of its kind\n", figure.Count(int(p.Unknown), "compile"))
	}
	if len(s.Phases) > 0 && s.Phases[len(s.Phases)-1].Count > 0 {
		b.WriteString("\n")
		b.Write(table(func(w io.Writer) {
			fmt.Fprintln(w, "PHASE\tP50\tP90\tP99\tMAX")
			for _, q := range s.Phases {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", q.Phase, figure.Micros(q.P50), figure.Micros(q.P90), figure.Micros(q.P99), figure.Micros(q.Max))
			}
		}))
	}
	if len(s.Hosts) > 0 {
		b.WriteString("\n")
		b.Write(table(func(w io.Writer) {
			fmt.Fprintln(w, "HOST\tDONE\tFAILED\tSENT\tRECEIVED")
			for _, h := range s.Hosts {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", h.Host, h.OK, h.Failed, figure.Bytes(h.BytesOut), figure.Bytes(h.BytesIn))
			}
		}))
	}
	return b.Bytes()
}

// twiceReasons lists the reasons why sources were compiled twice lately, with a file for each.
func twiceReasons(list []report.TwiceCount) string {
	var parts []string
	for _, t := range list {
		parts = append(parts, fmt.Sprintf("%s %d (%s)", t.Reason, t.Jobs, t.Source))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
