package ctl

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func (c *ctl) drainCommand() *cobra.Command {
	return c.drainOrNot("drain", "Send no new jobs from this machine to a host",
		"Keeps new jobs from this machine away from a host. Running jobs finish, and unused credits are returned.\n"+
			"This lasts until `rdistcc undrain`, even if the connection manager restarts. Jobs from other machines are\n"+
			"not affected: to take a host out of service for everyone, stop its rdistccd.")
}

func (c *ctl) undrainCommand() *cobra.Command {
	return c.drainOrNot("undrain", "Send jobs to a drained host again",
		"Undoes `rdistcc drain`. It also ends the quarantine of a host whose results were in doubt.")
}

func (c *ctl) drainOrNot(verb, short, long string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     verb + " HOST",
		Short:   short,
		Long:    long,
		Example: "  rdistcc " + verb + " build7\n  rdistcc " + verb + " '[2001:db8::7]:7632'",
		Args:    one("HOST"),
		RunE: func(_ *cobra.Command, args []string) error {
			var d report.Drained
			data, err := c.ask(&d, verb, args[0])
			if errors.Is(err, errNoManager) {
				return c.noManager()
			}
			if err != nil {
				return err
			}
			if asJSON {
				return c.printJSON(data)
			}
			return c.print([]byte(drainText(&d) + "\n"))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func drainText(d *report.Drained) string {
	switch {
	case d.Drained && d.Was:
		return d.Host + " was drained already"
	case d.Drained && d.Running > 0:
		return fmt.Sprintf("%s gets nothing new; %s of this machine will be finished there", d.Host, figure.Count(d.Running, "job"))
	case d.Drained:
		return d.Host + " gets nothing new; nothing of this machine runs there"
	case d.Was:
		return d.Host + " was not drained"
	}
	return d.Host + " gets jobs again"
}

// noManager returns the error of a command for which a manager must run.
func (c *ctl) noManager() error {
	path, _ := config.Locate(c.getenv)
	if _, err := config.Load(path); err != nil {
		return failf(reason.ExitArguments, "%v; no connection manager runs, and with this none starts", err)
	}
	return failf(reason.ExitGeneral, "no connection manager runs at %s; the first compile starts one", ipc.SocketPath(c.getenv))
}
