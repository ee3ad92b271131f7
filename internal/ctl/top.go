package ctl

import (
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/top"
	"github.com/rdistcc/rdistcc/internal/top/display"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func (c *ctl) topCommand() *cobra.Command {
	var every time.Duration
	var times int
	var plain bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch hosts, compiles and reasons on the terminal, and drain hosts",
		Long: "Shows the hosts, the commands that are running, and the reasons why commands ran on this machine, refreshed every\n" +
			"second. Keys sort, filter and drain hosts; ? explains them and the columns, q quits. When the output is a file, a\n" +
			"pipe or a terminal that obeys nothing (TERM=dumb), and with --plain or --times, it prints the output of\n" +
			"`rdistcc status` again and again instead, without escape codes.",
		Example: "  rdistcc top\n  rdistcc top --plain --every 5s --times 3",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case every < 100*time.Millisecond:
				return failf(reason.ExitArguments, "--every %v: at least 100ms", every)
			case times < 0:
				return failf(reason.ExitArguments, "--times %d is no number of times", times)
			}
			in, out, ok := c.screen()
			if !ok || plain || times > 0 {
				return c.topPlain(every, times)
			}
			if _, err := c.topStatus(); err != nil && !errors.Is(err, errNoManager) {
				return err // in a line, and not on a screen that waits for better days
			}
			o := display.Options{In: in, Out: out, Env: c.environ(), Every: every, Ask: c.topAnswer, Obey: c.obey}
			if err := display.Run(o); err != nil {
				return failf(reason.ExitIO, "terminal: %v; rdistcc top --plain needs less of it", err)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "refresh every `DUR`")
	cmd.Flags().IntVar(&times, "times", 0, "print `N` times and exit; 0 = until interrupted")
	cmd.Flags().BoolVar(&plain, "plain", false, "print text, one status after the other, on a terminal too")
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "interval" { // as watch calls it
			name = "every"
		}
		return pflag.NormalizedName(name)
	})
	return cmd
}

// screen returns the terminal on which to draw, if there is one that can do that.
func (c *ctl) screen() (in, out *os.File, ok bool) {
	in, fromFile := c.in.(*os.File)
	out, toFile := c.out.(*os.File)
	term := c.getenv("TERM")
	ok = fromFile && toFile && c.terminal && isTerminal(in) && term != "" && term != "dumb"
	return in, out, ok
}

// topPlain prints one status after the other.
func (c *ctl) topPlain(every time.Duration, times int) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(end)
	t := time.NewTicker(every)
	defer t.Stop()
	for n := 1; ; n++ {
		text := []byte("no connection manager runs; the first compile starts one\n")
		if s, err := c.topStatus(); err == nil {
			text = statusText(s, time.Now())
		} else if !errors.Is(err, errNoManager) {
			return err
		} else if k := c.kept(); k != nil {
			last, _ := k.Last()
			top.Clean(last)
			text = c.lastStatusText(last, time.Now())
		}
		if n > 1 {
			text = append([]byte("\n"), text...)
		}
		if err := c.print(text); err != nil {
			return err
		}
		if n == times {
			return nil
		}
		select {
		case <-t.C:
		case <-end:
			return nil
		}
	}
}

// topStatus asks the manager for its status, and cleans it for a terminal.
func (c *ctl) topStatus() (*report.Status, error) {
	var s report.Status
	if _, err := c.ask(&s, "status"); err != nil {
		return nil, err
	}
	top.Clean(&s)
	return &s, nil
}

// topAnswer is topStatus for the screen, which is told of trouble too.
func (c *ctl) topAnswer() top.Answer {
	s, err := c.topStatus()
	switch {
	case err == nil:
		return top.Answer{Status: s}
	case !errors.Is(err, errNoManager):
		return top.Answer{Trouble: err.Error()}
	}
	k := c.kept()
	if k == nil {
		return top.Answer{Trouble: c.noManager().Error()}
	}
	last, _ := k.Last()
	lines := strings.SplitN(c.lastLine(last.NotRunning, last.Version, last.Since, time.Now()), "\n", 3)
	return top.Answer{Status: last, Trouble: lines[0] + "; " + lines[1]}
}

// obey drains a host, or ends that.
func (c *ctl) obey(o top.Order) (string, error) {
	var d report.Drained
	_, err := c.ask(&d, o.Verb, o.Host)
	switch {
	case errors.Is(err, errNoManager):
		return "", c.noManager()
	case err != nil:
		return "", err
	}
	return drainText(&d), nil
}
