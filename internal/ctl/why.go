package ctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func (c *ctl) whyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why [FILE]",
		Short: "Show where a file was last compiled, and why",
		Long: "Finds the last commands with a source or output file of this name, newest first: where each ran and why, which\n" +
			"hosts were considered, which rule decided, and the predicted and actual times. Without FILE it lists the last\n" +
			"commands, one per line.",
		Example: "  rdistcc why src/x.c\n  rdistcc why build/x.o --json\n  rdistcc why",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return one("FILE")(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.lastCommands(asJSON)
			}
			if args[0] == "" {
				return failf(reason.ExitArguments, "name a file")
			}
			names := args
			if abs, err := filepath.Abs(args[0]); err == nil {
				names = []string{abs, args[0]}
			}
			var w report.Why
			data, err := c.ask(&w, append([]string{"why"}, names...)...)
			if k := c.kept(); errors.Is(err, errNoManager) && k != nil {
				w = k.OfFile(names)
				data, err = json.Marshal(&w)
			}
			if errors.Is(err, errNoManager) {
				return failf(reason.ExitGeneral, "nothing is known of %s: no connection manager runs. Compile it again; RDISTCC_REPORT=FILE has a line for each command", args[0])
			}
			if err != nil {
				return err
			}
			if asJSON {
				return c.printJSON(data)
			}
			if len(w.Jobs) == 0 {
				return failf(reason.ExitGeneral, "nothing is known of %s: %s since %s; none was of such a file. Compile it again, "+
					"as `RDISTCC_VERBOSE=2 rdistcc COMPILER ...` say: does the build use rdistcc for it?",
					args[0], figure.Count(w.Remembered, "command"), w.Since.Format(time.TimeOnly))
			}
			return c.print(whyText(&w, time.Now()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// shownCommands is how many commands why lists without a file.
const shownCommands = 20

// lastCommands lists the newest commands of the manager, or of the last one.
func (c *ctl) lastCommands(asJSON bool) error {
	var s report.Status
	if _, err := c.ask(&s, "status"); errors.Is(err, errNoManager) {
		k := c.kept()
		if k == nil {
			return c.noManager()
		}
		s = k.Status
	} else if err != nil {
		return err
	}
	jobs := s.Recent[:min(len(s.Recent), shownCommands)]
	switch {
	case asJSON:
		return c.marshal(append([]report.JobRecord{}, jobs...))
	case len(jobs) == 0:
		return c.print([]byte("no commands yet\n"))
	}
	return c.print(append(commandLines(jobs, time.Now()), "\nrdistcc why FILE says more of one of them\n"...))
}

// commandLines formats one line for each command.
func commandLines(jobs []report.JobRecord, now time.Time) []byte {
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "AGO\tFILE\tWHERE\tREASON\tEXIT\tTOOK")
		for i := range jobs {
			r := &jobs[i]
			where := r.Host
			switch r.Place() {
			case report.PlaceLocal:
				where = "here"
			case report.PlaceCached:
				where = "cache (" + r.Cached + ")"
			}
			file := cmp.Or(r.Source, r.Output, filepath.Base(r.Compiler))
			if r.Link != "" {
				file = filepath.Base(r.Link) + ": " + file
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", figure.Age(now.Sub(r.Began)), file, where, cmp.Or(r.Reason, "-"), r.Exit, figure.Micros(uint64(r.TotalUS)))
		}
	})
}

// whyText formats a Why for people.
func whyText(w *report.Why, now time.Time) []byte {
	var b bytes.Buffer
	for i := range w.Jobs {
		if i > 0 {
			b.WriteString("\n")
		}
		jobText(&b, &w.Jobs[i], w.Parts[w.Jobs[i].ID], now)
	}
	return b.Bytes()
}

func jobText(b *bytes.Buffer, r *report.JobRecord, parts map[string]int, now time.Time) {
	place := "ran on " + r.Host
	switch r.Place() {
	case report.PlaceLocal:
		place = "ran here"
	case report.PlaceCached:
		place = "came from the cache (" + r.Cached + ")"
		if r.Second {
			place += ", as what differs had not been read"
		}
	}
	fmt.Fprintf(b, "%s: %s, %s ago, exit status %d (job %d)\n", cmp.Or(r.Source, r.Output, r.Compiler), place, figure.Age(now.Sub(r.Began)), r.Exit, r.ID)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "  %-11s "+format+"\n", append([]any{name}, args...)...)
	}
	if r.Local {
		line("reason", "%s: %s", r.Reason, reason.Explain(r.Reason))
		if r.Detail != "" {
			line("", "%s", r.Detail)
		}
	}
	switch {
	case r.Cached != "" && r.Host == report.HereHost:
		line("result", "%s has compiled it itself %s before", cmp.Or(r.For, "a build host"), figure.Age(r.Began.Sub(r.Made)))
	case r.Cached != "":
		line("result", "%s has compiled it %s before, for %s", r.Host, figure.Age(r.Began.Sub(r.Made)), cmp.Or(r.For, "an unknown build host"))
	case r.Missed != "":
		line("cache", "%s", r.Missed)
	}
	if !r.Finished {
		line("end", "the command was ended from outside")
	}
	if r.Output != "" {
		line("output", "%s", r.Output)
	}
	if r.Link != "" {
		line("part of", "the link of %s", r.Link)
	}
	if n := parts[report.PlaceRemote] + parts[report.PlaceCached] + parts[report.PlaceLocal]; n > 0 {
		line("parts", "%d: %d on hosts, %d from the cache, %d here", n, parts[report.PlaceRemote], parts[report.PlaceCached], parts[report.PlaceLocal])
	}
	if r.Cwd != "" {
		line("directory", "%s", r.Cwd)
	}
	line("compiler", "%s", r.Compiler)
	if len(r.Considered) > 0 {
		for i, text := range strings.Split(strings.TrimSuffix(string(consideredLines(r)), "\n"), "\n") {
			name := ""
			if i == 0 {
				name = "considered"
			}
			line(name, "%s", text)
		}
	}
	if r.Rule != "" {
		line("rule", "%s", r.Rule)
	}
	if r.Attempts > 1 {
		line("attempts", "%d", r.Attempts)
	}
	if r.Hedged != "" {
		line("second host", "%s, as the first one was slow", r.Hedged)
	}
	if r.Cached != "" && r.CPUUS > 0 {
		line("saved", "%s of a processor", figure.Digits(time.Duration(r.CPUUS)*time.Microsecond))
	}
	took := time.Duration(r.CPUUS) * time.Microsecond
	switch {
	case r.Place() != report.PlaceRemote:
	case r.Expected > 0 && took > 0:
		line("predicted", "%s of a processor there; it took %s", figure.Digits(r.Expected), figure.Digits(took))
	case took > 0:
		line("predicted", "nothing: the first compile of its kind")
	}
	var phases []string
	for _, p := range []struct {
		name string
		us   uint32
	}{{"preprocess", r.PreprocessUS}, {"credit", r.CreditUS}, {"write", r.WriteUS}, {"queue", r.QueueUS},
		{"compile", r.CompileUS}, {"return", r.ReturnUS}, {"total", r.TotalUS}} {
		if p.us > 0 {
			phases = append(phases, p.name+" "+figure.Micros(uint64(p.us)))
		}
	}
	if len(phases) > 0 {
		line("phases", "%s", strings.Join(phases, ", "))
	}
	if r.Inputs != "" {
		line("inputs", "%s", inputsText(r))
	}
	if r.BytesOut+r.BytesIn > 0 {
		line("bytes", "%s sent%s, %s received", figure.Bytes(r.BytesOut), carrierText(r), figure.Bytes(r.BytesIn))
	}
}

// carrierText says how the source travelled.
func carrierText(r *report.JobRecord) string {
	if r.Carrier == "" {
		return ""
	}
	return " (" + r.Carrier + ")"
}

func consideredLines(r *report.JobRecord) []byte {
	return table(func(w io.Writer) {
		for _, h := range r.Considered {
			what := strings.TrimPrefix(h.Why, h.Host+" ")
			switch {
			case what == "":
				what = "would have been done after " + figure.Digits(h.Finish)
			case h.Finish > 0:
				what += ": would have been done after " + figure.Digits(h.Finish) + " on a free core"
			}
			if h.Host == r.Host && !r.Local {
				what += " (chosen)"
			}
			fmt.Fprintf(w, "%s\t%s\n", h.Host, what)
		}
	})
}

// inputsText says how the files read by a compile were found.
func inputsText(r *report.JobRecord) string {
	sent := ""
	if r.SentFiles > 0 && r.Inputs != "text" {
		sent = fmt.Sprintf("; %d of %s sent", r.SentFiles, figure.Count(int(r.Files), "file"))
	}
	how := report.KnownBy[r.Inputs]
	if r.Inputs == "list" && r.Doubt != "" {
		how += " (" + r.Doubt + ")"
	}
	return how + sent
}
