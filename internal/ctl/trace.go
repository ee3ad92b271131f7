package ctl

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/spans"
	"github.com/rdistcc/rdistcc/internal/spans/otlp"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// otlpHeaders is the variable with headers for requests to a collector, such as a key.
const otlpHeaders = "OTEL_EXPORTER_OTLP_HEADERS"

func (c *ctl) traceCommand() *cobra.Command {
	var chrome bool
	var file, collector string
	cmd := &cobra.Command{
		Use:   "trace [BUILD]",
		Short: "Write what ran where, and when, in a past build",
		Long: "Writes the commands of a build that ran under `rdistcc build`, by default the last one, with the phases of each: in\n" +
			"Chrome's trace event format, which https://ui.perfetto.dev opens, to standard output or a file; or, with --otlp, to\n" +
			"a collector by OTLP over HTTP. Then OTEL_EXPORTER_OTLP_HEADERS has headers for it, such as a key.",
		Example: "  rdistcc trace -o build.json\n  rdistcc trace 12 --chrome | gzip > build.json.gz\n  rdistcc trace 12 --otlp http://localhost:4318",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if collector != "" && (chrome || file != "") {
				return failf(reason.ExitArguments, "--otlp sends a trace, and --chrome or --output writes one: give one of them")
			}
			b, jobs, err := c.traced(args)
			if err != nil {
				return err
			}
			if collector != "" {
				return c.sendTrace(b, jobs, collector)
			}
			return c.writeTrace(b, jobs, file)
		},
	}
	cmd.Flags().BoolVar(&chrome, "chrome", false, "write Chrome's trace event format (the default)")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE`")
	cmd.Flags().StringVar(&collector, "otlp", "", "send it to the collector at `URL`")
	return cmd
}

// traced returns the build that the words name, by default the last one, and its commands.
func (c *ctl) traced(args []string) (*builds.Build, []report.JobRecord, error) {
	b, jobs, err := c.recorded(args)
	if err == nil && len(jobs) == 0 {
		err = noCommands(b)
	}
	return b, jobs, err
}

func noCommands(b *builds.Build) error {
	return failf(reason.ExitGeneral, "build %d has no commands that came to rdistcc", b.ID)
}

// recorded returns the build that args name, or the last one, with the records of its commands.
func (c *ctl) recorded(args []string) (b *builds.Build, jobs []report.JobRecord, err error) {
	s := c.buildStore()
	if len(args) > 0 {
		if b, err = c.findBuild(args[0]); err != nil {
			return nil, nil, err
		}
	} else {
		list, err := s.List()
		if err != nil {
			return nil, nil, failf(reason.ExitIO, "%v", err)
		}
		if len(list) == 0 {
			return nil, nil, failf(reason.ExitGeneral, "no builds are kept yet: rdistcc build -- make -j32 runs one")
		}
		b = &list[0]
	}
	if err := s.Jobs(b.ID, func(r *report.JobRecord) error { jobs = append(jobs, *r); return nil }); err != nil {
		return nil, nil, failf(reason.ExitIO, "%v", err)
	}
	return b, jobs, nil
}

// spansOf returns a build for its trace. One that runs, or was killed, ends with the last command that is known.
func spansOf(b *builds.Build, jobs []report.JobRecord) spans.Build {
	s := spans.Build{Name: shortCommand(b.Command), Began: b.Began, Ended: b.Ended}
	for i := range jobs {
		if b.Ended.IsZero() && jobs[i].Ended.After(s.Ended) {
			s.Ended = jobs[i].Ended
		}
	}
	return s
}

// writeTrace writes a trace to a file, or to standard output without one.
func (c *ctl) writeTrace(b *builds.Build, jobs []report.JobRecord, file string) error {
	s := spansOf(b, jobs)
	if file == "" {
		if err := spans.WriteChrome(c.out, &s, jobs); err != nil {
			return failf(reason.ExitIO, "standard output: %v", err)
		}
		return nil
	}
	write := func(w io.Writer) error { return spans.WriteChrome(w, &s, jobs) }
	if err := writeBy(file, write); err != nil {
		return failf(reason.ExitIO, "%v", err)
	}
	return c.print(fmt.Appendf(nil, "%s has %s of build %d; https://ui.perfetto.dev opens it\n", file, figure.Count(len(jobs), "command"), b.ID))
}

// writeBy makes a file of what write writes. If that fails, there is none, unless it is a device or the like.
func writeBy(file string, write func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // it has the user's commands
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		if st, serr := os.Lstat(file); serr == nil && st.Mode().IsRegular() {
			_ = os.Remove(file) // what is there of it is of no use
		}
	}
	return err
}

// sendTrace sends a trace to a collector.
func (c *ctl) sendTrace(b *builds.Build, jobs []report.JobRecord, collector string) error {
	if _, err := otlp.Endpoint(collector); err != nil {
		return failf(reason.ExitArguments, "--otlp: %v", err)
	}
	headers, err := otlp.Headers(c.getenv(otlpHeaders))
	if err != nil {
		return failf(reason.ExitArguments, "%s: %v", otlpHeaders, err)
	}
	machine, err := os.Hostname()
	if err != nil {
		machine = "unknown"
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	x := &otlp.Exporter{URL: collector, Header: headers, Pause: time.Second}
	n, err := x.Send(ctx, &otlp.Trace{Build: spansOf(b, jobs), ID: b.ID, Exit: b.Exit, Machine: machine, Version: c.version}, jobs)
	if err != nil {
		return failf(reason.ExitConnect, "%v", err)
	}
	return c.print(fmt.Appendf(nil, "%s of build %d sent\n", figure.Count(n, "span"), b.ID))
}
