package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/buildpage"
	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/gain"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func (c *ctl) buildsCommand() *cobra.Command {
	var asJSON, served bool
	var page string
	cmd := &cobra.Command{
		Use:   "builds [BUILD [BUILD]]",
		Short: "Show past builds that ran under rdistcc build",
		Long: "Lists the builds that ran under `rdistcc build`, the newest first: how long each took, how many commands it had,\n" +
			"which part of them ran on hosts or came from the cache, and how much longer it would have taken without the farm.\n" +
			"With the number of a build, it shows what was shown at its end; with two, why the later one took longer or less: what\n" +
			"has changed for which commands. With --report, it writes a page on a build, or the last one, as one HTML file: what ran\n" +
			"where and when, why the rest ran here, what headers cost; of two, the page of the later one says in what they differ.\n" +
			"The last 50 builds are kept.",
		Example: "  rdistcc builds\n  rdistcc builds 12\n  rdistcc builds 11 12\n  rdistcc builds 11 12 --report build.html\n  rdistcc builds --json | jq '.[0].gain.alone_ns'",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("report") && asJSON:
				return failf(reason.ExitArguments, "--json prints a build, and --report writes a page on it: give one of them")
			case cmd.Flags().Changed("report"):
				return c.writePage(args, page)
			case len(args) == 0:
				return c.listBuilds(asJSON)
			case served:
				return c.servePage(args)
			case len(args) == 2:
				return c.compareBuilds(args, asJSON)
			}
			b, err := c.findBuild(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return c.marshal(b)
			}
			return c.print(buildText(b, time.Now()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&page, "report", "", "write a page on the build to `FILE`")
	cmd.Flags().BoolVar(&served, "served", false, "print the page that the manager serves")
	if err := cmd.Flags().MarkHidden("served"); err != nil {
		panic(err) // there is no such flag
	}
	return cmd
}

// servePage prints the page on a build for the manager, which has it made by a process of its own: it takes time and memory that compiles
// should have.
func (c *ctl) servePage(words []string) error {
	p, _, err := c.page(words)
	if err != nil {
		return err
	}
	if p.Others, err = c.buildStore().List(); err != nil {
		return failf(reason.ExitIO, "%v", err)
	}
	var out bytes.Buffer
	if err := buildpage.WriteServed(&out, p); err != nil {
		return failf(reason.ExitIO, "%v", err)
	}
	return c.print(out.Bytes())
}

// page returns the page on a build, without any on the last one, and why it says nothing of headers. Of two builds, it is the page of the
// later one, which compares them.
func (c *ctl) page(words []string) (p *buildpage.Page, noHeaders, err error) {
	p = new(buildpage.Page)
	if len(words) == 2 {
		if p.Compared, err = c.comparison(words); err != nil {
			return nil, nil, err
		}
		words = []string{strconv.Itoa(p.Compared.Builds[1].ID)}
	}
	if p.Build, p.Jobs, err = c.recorded(words); err != nil {
		return nil, nil, err
	}
	p.Costs, _, noHeaders = c.costs([]string{strconv.Itoa(p.Build.ID)}, 0)
	return p, noHeaders, nil
}

// writePage writes the page on builds to a file.
func (c *ctl) writePage(words []string, file string) error {
	if file == "" {
		return failf(reason.ExitArguments, "--report needs the name of a file")
	}
	p, noHeaders, err := c.page(words)
	if err != nil {
		return err
	}
	if len(p.Jobs) == 0 {
		return noCommands(p.Build)
	}
	if noHeaders != nil {
		fmt.Fprintf(c.err, "rdistcc: the page says nothing of headers: %v\n", noHeaders)
	}
	if err := writeBy(file, func(w io.Writer) error { return buildpage.Write(w, p) }); err != nil {
		return failf(reason.ExitIO, "%v", err)
	}
	with := ""
	if p.Compared != nil {
		with = fmt.Sprintf(", compared with build %d", p.Compared.Builds[0].ID)
	}
	return c.print(fmt.Appendf(nil, "%s shows build %d%s: any browser opens it\n", file, p.Build.ID, with))
}

// findBuild returns the build with a number, as it was typed.
func (c *ctl) findBuild(number string) (*builds.Build, error) {
	id, err := strconv.Atoi(number)
	if err != nil || id < 1 {
		return nil, failf(reason.ExitArguments, "%s is no number of a build; rdistcc builds lists them", number)
	}
	b, err := c.buildStore().Find(id)
	if errors.Is(err, builds.ErrUnknown) {
		return nil, failf(reason.ExitGeneral, "no build %d is kept; rdistcc builds lists those that are", id)
	}
	if err != nil {
		return nil, failf(reason.ExitIO, "%v", err)
	}
	return b, nil
}

func (c *ctl) listBuilds(asJSON bool) error {
	list, err := c.buildStore().List()
	if err != nil {
		return failf(reason.ExitIO, "%v", err)
	}
	switch {
	case asJSON:
		return c.marshal(append([]builds.Build{}, list...))
	case len(list) == 0:
		return c.print([]byte("no builds are kept yet: rdistcc build -- make -j32 runs one\n"))
	}
	return c.print(buildLines(list, time.Now()))
}

// buildLines formats one line for each build.
func buildLines(list []builds.Build, now time.Time) []byte {
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "BUILD\tAGO\tTOOK\tSAVED\tCOMMANDS\tON HOSTS\tCACHED\tEXIT\tCOMMAND")
		for i := range list {
			b := &list[i]
			took, saved, exit := "-", "-", strconv.Itoa(b.Exit)
			switch {
			case b.Running:
				exit = "runs"
			case b.Ended.IsZero():
				exit = "killed"
			default:
				took = figure.Digits(b.Wall())
				if b.Gain.Jobs > 0 {
					saved = signed(b.Saved())
				}
			}
			share := func(place string) string {
				if b.Gain.Jobs == 0 {
					return "-"
				}
				return figure.Percent(uint64(b.Gain.Of(place)), uint64(b.Gain.Jobs))
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", b.ID, figure.Age(now.Sub(b.Began)), took, saved, b.Gain.Jobs,
				share(report.PlaceRemote), share(report.PlaceCached), exit, shortCommand(b.Command))
		}
	})
}

func signed(d time.Duration) string {
	if d < 0 {
		return "-" + figure.Digits(-d)
	}
	return figure.Digits(d)
}

// shortCommand returns a command as one line that fits a table.
func shortCommand(words []string) string {
	const most = 60
	line := []rune(plain(strings.Join(words, " ")))
	if len(line) > most {
		line = append(line[:most-3], []rune("...")...)
	}
	return string(line)
}

// plain returns text without what could be a sequence for the terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

// tell prints what a build that has ended has gained.
func (c *ctl) tell(log *builds.Log, follow *follower) {
	var b bytes.Buffer
	if log.Build.Gain.Jobs == 0 && follow.err != nil && !errors.Is(follow.err, errNoManager) {
		fmt.Fprintf(&b, "rdistcc: what ran where is not known: %s\n", plain(follow.err.Error()))
	} else {
		b.Write(buildText(&log.Build, time.Now()))
	}
	if log.Err() != nil {
		fmt.Fprintf(&b, "rdistcc: this build is not kept: %v\n", log.Err())
	}
	_, _ = c.err.Write(b.Bytes()) // if nobody reads it, the build has still succeeded
}

// buildText formats a build for people.
func buildText(b *builds.Build, now time.Time) []byte {
	var out bytes.Buffer
	name := "build"
	if b.ID > 0 {
		name = fmt.Sprintf("build %d", b.ID)
	}
	end := fmt.Sprintf("exit status %d", b.Exit)
	switch {
	case b.Running:
		end = "it runs since " + figure.Age(now.Sub(b.Began))
	case b.Ended.IsZero():
		end = "it was killed before its figures were written"
	}
	fmt.Fprintf(&out, "rdistcc: %s: %s: %s\n", name, shortCommand(b.Command), end)
	if b.Ended.IsZero() {
		return out.Bytes()
	}
	if b.Gain.Jobs == 0 {
		fmt.Fprintf(&out, "  it took %s; no command of it came to rdistcc. Does it use rdistcc, as by CC=\"rdistcc gcc\", and pass RDISTCC_BUILD on? See docs/build-systems.md\n", figure.Digits(b.Wall()))
		return out.Bytes()
	}
	out.Write(indent(figureLines(b)))
	out.Write(indent(append([]byte("\n"), placeLines(&b.Gain)...)))
	if len(b.Gain.Links) > 0 {
		out.Write(indent(append([]byte("\n"), linkLines(b.Gain.Links)...)))
	}
	n := 0
	for _, r := range b.Gain.Reasons {
		n += r.Jobs
	}
	if n > 0 {
		fmt.Fprintf(&out, "\n  why %s ran here, the costliest reason first\n", figure.Count(n, "command"))
		out.Write(indent(indent(reasonLines(b.Gain.Reasons))))
	}
	return out.Bytes()
}

// figureLines has a build's figures, one on each line.
func figureLines(b *builds.Build) []byte {
	g := &b.Gain
	return table(func(w io.Writer) {
		line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
		line("took", "%s", figure.Digits(b.Wall()))
		what := fmt.Sprintf("%.1f times as long", float64(g.Alone)/float64(max(b.Wall(), 1)))
		if g.Alone < b.Wall() {
			what = "the farm has cost " + figure.Digits(b.Wall()-g.Alone)
		}
		line("without the farm", "about %s on %s: %s", figure.Digits(g.Alone), figure.Count(b.Cores, "processor"), what)
		line("commands", "%d: %d on hosts, %d from the cache, %d here%s", g.Jobs, g.Of(report.PlaceRemote), g.Of(report.PlaceCached), g.Of(report.PlaceLocal), failedText(g))
		if g.Asked > 0 {
			line("cache", "%d of %d that it was asked for (%s)", g.Of(report.PlaceCached), g.Asked, figure.Percent(uint64(g.Of(report.PlaceCached)), uint64(g.Asked)))
		}
		line("bytes", "%s sent, %s received", figure.Bytes(g.BytesOut), figure.Bytes(g.BytesIn))
		if b.Lost > 0 {
			line("not counted", "up to %s that the manager had forgotten", figure.Count(int(b.Lost), "command"))
		}
	})
}

func failedText(g *gain.Sum) string {
	text := ""
	if g.Failed > 0 {
		text += fmt.Sprintf("; %d failed", g.Failed)
	}
	if g.Twice > 0 {
		text += fmt.Sprintf("; %d compiled on a host and then here again", g.Twice)
	}
	return text
}

// maxPlaces is how many hosts a summary names, maxLinks how many links, and maxReasons how many reasons.
const (
	maxPlaces  = 20
	maxLinks   = 10
	maxReasons = 5
)

// placeLines says where the commands of a build ran.
func placeLines(g *gain.Sum) []byte {
	text := table(func(w io.Writer) {
		fmt.Fprintln(w, "WHERE\tCOMMANDS\tSHARE\tFAILED\tWORTH")
		for _, p := range g.Places[:min(len(g.Places), maxPlaces)] {
			where := p.Name
			switch p.Place {
			case report.PlaceLocal:
				where = "here"
			case report.PlaceCached:
				where = "cache (" + p.Name + ")"
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\n", where, p.Jobs, figure.Percent(uint64(p.Jobs), uint64(g.Jobs)), p.Failed, figure.Digits(p.Work))
		}
	})
	if n := len(g.Places) - maxPlaces; n > 0 {
		text = fmt.Appendf(text, "and %d more\n", n)
	}
	return text
}

// linkLines says where links with LTO had their parts compiled.
func linkLines(list []gain.Link) []byte {
	text := table(func(w io.Writer) {
		fmt.Fprintln(w, "LINK WITH LTO\tPARTS\tON HOSTS\tCACHED\tHERE")
		for _, l := range list[:min(len(list), maxLinks)] {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", plain(l.Link), l.Parts, l.Remote, l.Cached, l.Parts-l.Remote-l.Cached)
		}
	})
	if n := len(list) - maxLinks; n > 0 {
		text = fmt.Appendf(text, "and %d more\n", n)
	}
	return text
}

// reasonLines says why commands of a build ran here.
func reasonLines(list []gain.Reason) []byte {
	text := table(func(w io.Writer) {
		for _, r := range list[:min(len(list), maxReasons)] {
			what := reason.Explain(r.Reason)
			if r.File != "" {
				what += " (" + r.File + ")"
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", plain(r.Reason), r.Jobs, figure.Digits(r.Took), plain(what))
			if remedy := reason.Remedy(r.Reason); remedy != "" {
				fmt.Fprintf(w, "\t\t\t%s\n", remedy)
			}
		}
	})
	if n := len(list) - maxReasons; n > 0 {
		text = fmt.Appendf(text, "and %s more\n", figure.Count(n, "reason"))
	}
	return text
}

// indent indents each line that has something in it.
func indent(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if len(line) > 1 {
			out = append(out, "  "...)
		}
		out = append(out, line...)
	}
	return out
}
