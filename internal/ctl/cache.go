package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/tiers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/disk"
)

func (c *ctl) cacheCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Show and maintain the cache of results",
		Long: "Shows what the cache of results has done (stats), and maintains the directory in which the managers of this user\n" +
			"keep results (clear, prune, verify). Builds may go on meanwhile.",
		Example:   "  rdistcc cache stats\n  rdistcc cache prune --older 720h",
		ValidArgs: []string{"stats", "clear", "prune", "verify"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return failf(reason.ExitArguments, "cache needs one of stats, clear, prune and verify, as in: rdistcc cache stats")
			}
			return failf(reason.ExitArguments, "cache: no %q; there are stats, clear, prune and verify", args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(c.cacheStatsCommand(), c.cacheClearCommand(), c.cachePruneCommand(), c.cacheVerifyCommand())
	return cmd
}

// results returns the directory of results, and its size by the settings.
func (c *ctl) results() (*disk.Store, config.Size, error) {
	path, _ := config.Locate(c.getenv)
	cfg, err := config.Load(path)
	if err != nil {
		return nil, 0, failf(reason.ExitArguments, "%v", err)
	}
	s, err := tiers.Disk(cfg, c.getenv)
	switch {
	case err != nil:
		return nil, 0, failf(reason.ExitArguments, "%v", err)
	case s == nil && (!cfg.Cache.Use || cfg.Cache.Size == 0):
		return nil, 0, failf(reason.ExitGeneral, "no results are kept here: cache.use is off or cache.size is 0 (%s)", cfg.Origin("cache.use"))
	case s == nil:
		return nil, 0, failf(reason.ExitGeneral, "no results are kept here: set HOME, XDG_CACHE_HOME or cache.dir")
	}
	return s, cfg.Cache.Size, nil
}

// cacheStats is what `rdistcc cache stats` tells.
type cacheStats struct {
	Dir     string `json:"dir"`
	Results int    `json:"results"`
	// Manifests is how many lists of results there are for the second step.
	Manifests int                 `json:"manifests"`
	Bytes     int64               `json:"bytes"`
	Limit     int64               `json:"limit"`
	Oldest    time.Time           `json:"oldest_use,omitzero"`
	Since     time.Time           `json:"since,omitzero"` // of the counts, which are the manager's or the last one's
	Counts    *report.CacheCounts `json:"counts,omitempty"`
}

func (c *ctl) cacheStatsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show how many results are kept, and how many compiles they saved",
		Long: "Counts the results in the directory of the manager's tier, and shows how often the manager has found one there or\n" +
			"in another tier since it started, and what that saved, with a line for each tier. Without a manager it shows what\n" +
			"the last one recorded.",
		Example: "  rdistcc cache stats\n  rdistcc cache stats --json | jq .counts.hits",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, limit, none := c.results()
			var x cacheStats
			if none == nil {
				u, err := s.Usage(context.Background())
				if err != nil {
					return failf(reason.ExitIO, "%v", err)
				}
				x = cacheStats{Dir: s.Dir(), Results: u.Files, Manifests: u.Manifests, Bytes: u.Bytes, Limit: int64(limit), Oldest: u.Oldest}
			}
			var stats report.Stats
			switch _, err := c.ask(&stats, "stats"); {
			case err == nil:
				x.Since, x.Counts = stats.Since, &stats.Cache
			case !errors.Is(err, errNoManager):
				return err
			default:
				if k := c.kept(); k != nil {
					x.Since, x.Counts = k.Stats.Since, &k.Stats.Cache
				}
			}
			switch {
			case none != nil && (x.Counts == nil || len(x.Counts.Tiers) == 0): // nor are there other tiers
				return none
			case asJSON:
				return c.marshal(x)
			}
			return c.print(x.text(time.Now()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (x *cacheStats) text(now time.Time) []byte {
	text := ""
	if x.Dir != "" {
		text = fmt.Sprintf("%s: %s, ", x.Dir, counted(&disk.Usage{Files: x.Results, Manifests: x.Manifests}))
		text += fmt.Sprintf("%s of %s", figure.Bytes(uint64(x.Bytes)), figure.Bytes(uint64(x.Limit)))
		if !x.Oldest.IsZero() {
			text += fmt.Sprintf("; the least recent use was %s ago", figure.Age(now.Sub(x.Oldest)))
		}
		text += "\n"
	}
	if x.Counts == nil {
		return []byte(text)
	}
	all := append([]byte(text+fmt.Sprintf("since %s: ", x.Since.Format(time.DateTime))), cacheLine(x.Counts)...)
	return append(append(all, tierLines(x.Counts.Tiers)...), notes(x.Counts)...)
}

// notes says what was fetched ahead, which results were not taken as nobody has signed them whose signature counts, and which tiers need no signature.
func notes(c *report.CacheCounts) (text []byte) {
	for _, t := range c.Tiers {
		if t.Ahead > 0 {
			text = fmt.Appendf(text, "%s: %s fetched before builds asked, %d of them used\n", t.Name, figure.Count(int(t.Ahead), "result"), t.AheadHits)
		}
		if t.Untrusted > 0 {
			text = fmt.Appendf(text, "%s: %s\n", t.Name, untrustedText(t.Untrusted))
		}
	}
	text = append(text, unsignedLine(c.Unsigned)...)
	if len(text) == 0 {
		return nil
	}
	return append([]byte("\n"), text...)
}

func untrustedText(n uint64) string {
	return fmt.Sprintf("%s had a result that nobody has signed whose signature counts: a miss", figure.Count(int(n), "look"))
}

// unsignedLine says which tiers need no signature, or nothing if there are none.
func unsignedLine(tiers []string) []byte {
	if len(tiers) == 0 {
		return nil
	}
	return fmt.Appendf(nil, "unsigned: %s; whoever can write there can give this machine wrong objects\n", strings.Join(tiers, ", "))
}

// tierLines says in a line what each tier has done.
func tierLines(tiers []report.TierCounts) []byte {
	if len(tiers) == 0 {
		return nil
	}
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "\nTIER\tLOOKS\tHITS\tERRORS\tREAD\tA LOOK TAKES\tKEPT\tWRITTEN\tSAVED")
		for _, t := range tiers {
			each := "-"
			if t.Looks > 0 {
				each = figure.Micros(t.TimeUS / t.Looks)
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%d\t%s\t%s\n", t.Name, t.Looks, t.Hits, t.Errors, figure.Bytes(t.Read), each, t.Kept, figure.Bytes(t.Written), figure.Micros(t.SavedUS))
		}
	})
}

// counted says how many results there are, and manifests if there are any.
func counted(u *disk.Usage) string {
	text := figure.Count(u.Files, "result")
	if u.Manifests > 0 {
		text += " and " + figure.Count(u.Manifests, "manifest")
	}
	return text
}

// cacheLine says in a line what the cache has done.
func cacheLine(c *report.CacheCounts) []byte {
	if c.Asked == 0 {
		return []byte("the cache was not asked\n")
	}
	text := fmt.Sprintf("%d of %s from the cache (%s)", c.AllHits(), figure.Count(int(c.Asked), "compile"), figure.Percent(c.AllHits(), c.Asked))
	sep := ": "
	tiers := resultcache.Tiers()
	for _, tier := range slices.Sorted(maps.Keys(c.Hits)) { // those of helpers have names of their own
		if !slices.Contains(tiers, tier) {
			tiers = append(tiers, tier)
		}
	}
	for _, tier := range tiers {
		if n := c.Hits[tier]; n > 0 {
			text += fmt.Sprintf("%s%s %d", sep, tier, n)
			sep = ", "
			if tier == resultcache.TierManager && c.Second > 0 {
				text += fmt.Sprintf(" (%d as what differs had not been read)", c.Second)
			}
		}
	}
	if d := c.SavedCPU(); d > 0 {
		text += fmt.Sprintf("; %s of compilers' time saved", figure.Digits(d))
	}
	return []byte(text + "\n")
}

func (c *ctl) cacheClearCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "clear",
		Short:   "Remove all results that are kept on this machine",
		Long:    "Removes all results from the directory of the manager's tier. Other tiers are not touched.",
		Example: "  rdistcc cache clear",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, _, err := c.results()
			if err != nil {
				return err
			}
			u, err := s.Clear(context.Background())
			return c.removed(s, u, err)
		},
	}
}

// removed says what was removed.
func (c *ctl) removed(s *disk.Store, u disk.Usage, err error) error {
	if err != nil {
		return failf(reason.ExitIO, "%s: after %s were removed: %v", s.Dir(), counted(&u), err)
	}
	return c.print(fmt.Appendf(nil, "%s: %s removed, %s\n", s.Dir(), counted(&u), figure.Bytes(uint64(u.Bytes))))
}

func (c *ctl) cachePruneCommand() *cobra.Command {
	var older time.Duration
	var size string
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove results that were not used for long",
		Long: "Removes the results that were used least recently from the directory of the manager's tier: until --size is left,\n" +
			"or all that were not used for --older.",
		Example: "  rdistcc cache prune --older 720h\n  rdistcc cache prune --size 1GiB",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bySize, byAge := cmd.Flags().Changed("size"), cmd.Flags().Changed("older")
			if !bySize && !byAge {
				return failf(reason.ExitArguments, "prune needs --older or --size, as in: rdistcc cache prune --older 720h")
			}
			if older < 0 {
				return failf(reason.ExitArguments, "--older %v: not negative", older)
			}
			s, _, err := c.results()
			if err != nil {
				return err
			}
			var all disk.Usage
			if byAge {
				if all, err = s.PruneOlder(context.Background(), time.Now().Add(-older)); err != nil {
					return c.removed(s, all, err)
				}
			}
			if bySize {
				n, err := config.ParseSize(size)
				if err != nil {
					return failf(reason.ExitArguments, "--size %s: %v", size, err)
				}
				u, err := s.Prune(context.Background(), int64(n))
				all.Files, all.Bytes = all.Files+u.Files, all.Bytes+u.Bytes
				if err != nil {
					return c.removed(s, all, err)
				}
			}
			return c.removed(s, all, nil)
		},
	}
	cmd.Flags().DurationVar(&older, "older", 0, "remove what was not used for `DUR`, such as 720h")
	cmd.Flags().StringVar(&size, "size", "", "leave at most `SIZE`, such as 1GiB")
	return cmd
}

func (c *ctl) cacheVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Read all results that are kept on this machine, and remove damaged ones",
		Long: "Reads all results in the directory of the manager's tier and removes those that are damaged. The exit status is 1\n" +
			"if there were any. (A manager checks each result when it uses it, whether or not verify was run.)",
		Example: "  rdistcc cache verify",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, _, err := c.results()
			if err != nil {
				return err
			}
			bad := 0
			u, err := s.Verify(context.Background(), func(name string, err error) {
				bad++
				fmt.Fprintf(c.err, "rdistcc: %s: removed: %v\n", name, err)
			})
			if err != nil {
				return failf(reason.ExitIO, "%s: after %s: %v", s.Dir(), counted(&u), err)
			}
			if bad > 0 {
				return failf(1, "%s: %d of %s were damaged, and are removed", s.Dir(), bad, counted(&u))
			}
			return c.print(fmt.Appendf(nil, "%s: %s, %s, all undamaged\n", s.Dir(), counted(&u), figure.Bytes(uint64(u.Bytes))))
		},
	}
}
