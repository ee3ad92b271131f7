package ctl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func (c *ctl) reloadCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make the connection manager read its configuration again",
		Long: "Makes the connection manager read its configuration, its host list and its certificates or key again, as SIGHUP\n" +
			"does. It also does so on its own, within two seconds of an edit. An invalid configuration changes nothing: the\n" +
			"message says what is wrong, and the exit status is 101. Settings that need a restart are listed; run rdistcc stop,\n" +
			"and the next compile starts a manager with them.",
		Example: "  rdistcc reload",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var r report.Reloaded
			data, err := c.ask(&r, "reload")
			if errors.Is(err, errNoManager) {
				return c.reloadWithoutManager()
			}
			if err != nil {
				return err
			}
			if asJSON {
				if err := c.printJSON(data); err != nil {
					return err
				}
			} else if r.Error == "" {
				if err := c.print([]byte(reloadedText(&r))); err != nil {
					return err
				}
			}
			switch {
			case r.Error != "":
				return failf(reason.ExitArguments, "%s; the settings before stay in force", r.Error)
			case r.ListKept:
				return failf(reason.ExitHostList, "%s; the list before stays in force", r.ListError)
			case r.ListError != "":
				return failf(reason.ExitHostList, "%s", r.ListError)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// reloadWithoutManager only checks whether a manager could start.
func (c *ctl) reloadWithoutManager() error {
	path, _ := config.Locate(c.getenv)
	if _, err := config.Load(path); err != nil {
		return failf(reason.ExitArguments, "%v", err)
	}
	return c.print([]byte("no connection manager runs: the first compile starts one with the settings as they are\n"))
}

// reloadedText describes what a reload has changed.
func reloadedText(r *report.Reloaded) string {
	var b strings.Builder
	from := "no configuration file: the defaults"
	if r.File != "" {
		from = r.File
	}
	switch {
	case len(r.Changed) > 0:
		fmt.Fprintf(&b, "%s: in force now: %s\n", from, strings.Join(r.Changed, ", "))
	case len(r.Restart) > 0:
		fmt.Fprintf(&b, "%s: nothing of what can change while the connection manager runs\n", from)
	default:
		fmt.Fprintf(&b, "%s: nothing has changed\n", from)
	}
	if len(r.Restart) > 0 {
		fmt.Fprintf(&b, "a restart (rdistcc stop) is needed for: %s\n", strings.Join(r.Restart, ", "))
	}
	return b.String()
}
