package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/pkg/config"
	"github.com/rdistcc/rdistcc/pkg/connmgr"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/hostlist"
)

// list is the host list that a compile typed here would use, and where it stands.
func (c *ctl) list() (list hostlist.List, where string, err error) {
	list, where, err = hostlist.FromEnv(c.lookup)
	if where == "" && err == nil {
		list, where, err = c.ownList()
	}
	if err != nil {
		return list, where, failf(ipc.ExitHostList, "%v", err)
	}
	return list, where, nil
}

// ownList is the list of a manager that is started without flags.
func (c *ctl) ownList() (hostlist.List, string, error) {
	path, _ := config.Locate(c.getenv)
	cfg, err := config.Load(path)
	if err != nil {
		return hostlist.List{}, path, err
	}
	if len(cfg.Hosts) > 0 {
		list, err := hostlist.ParseEntries(cfg.Hosts)
		return list, path, err
	}
	return hostlist.FromFiles(hostlist.Files(c.getenv("RDISTCC_DIR"), c.getenv), readFile)
}

const noHosts = "no hosts configured: set RDISTCC_HOSTS, or write them into ~/.config/rdistcc/hosts; all jobs are compiled here\n"

func (c *ctl) hostsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "hosts",
		Short: "Show the hosts of the list that is in force here, and their state",
		Long: "Shows the hosts that a compile started in this shell would use: of RDISTCC_HOSTS or DISTCC_HOSTS\n" +
			"where one is set, else of the connection manager's own list; and how the manager is connected to them.",
		Example: "  rdistcc hosts\n  RDISTCC_HOSTS='build7/8 build8' rdistcc hosts --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var hosts []connmgr.HostStatus
			data, err := c.ask(&hosts, "hosts")
			if errors.Is(err, errNoManager) {
				return c.hostsWithoutManager(asJSON)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return c.printJSON(data)
			}
			if len(hosts) == 0 {
				return c.print([]byte(noHosts))
			}
			return c.print(hostLines(hosts))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// hostsWithoutManager shows what is known without one: the list.
func (c *ctl) hostsWithoutManager(asJSON bool) error {
	list, where, err := c.list()
	if err != nil {
		return err
	}
	hosts := []connmgr.HostStatus{}
	for _, h := range list.Hosts {
		if !h.Down {
			hosts = append(hosts, connmgr.HostStatus{Addr: h.Addr(), State: "unused", Jobs: h.Slots})
		}
	}
	if asJSON {
		return c.marshal(hosts)
	}
	if len(hosts) == 0 {
		return c.print([]byte(noHosts))
	}
	head := fmt.Sprintf("no connection manager runs: the first compile starts one; hosts of %s\n\n", where)
	return c.print(append([]byte(head), hostLines(hosts)...))
}

func (c *ctl) showHostsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "show-hosts",
		Hidden: true, // said as --show-hosts
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, _, err := c.list()
			if err != nil {
				return err
			}
			var b strings.Builder
			if list.Share > 0 {
				fmt.Fprintf(&b, "localhost/%d\n", list.Share)
			}
			for _, h := range list.Hosts {
				fmt.Fprintln(&b, h.Text)
			}
			return c.print([]byte(b.String()))
		},
	}
}

// guessedSlots counts for a host that nobody has asked yet how many jobs it
// takes: distcc's number.
const guessedSlots = 4

func (c *ctl) slotsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "j",
		Hidden: true, // said as -j
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			n, err := c.slots()
			if err != nil {
				return err
			}
			return c.print(fmt.Appendln(nil, n))
		},
	}
}

// slots is the number for make -j: places at the hosts that are connected, as
// many as the list allows, and the local share. A host that was not connected yet
// counts by the list. Where that leaves nothing it is the cores.
func (c *ctl) slots() (int, error) {
	list, _, err := c.list()
	if err != nil {
		return 0, err
	}
	allowed := make(map[string]int)
	for _, h := range list.Hosts {
		allowed[h.Addr()] = h.Slots
	}
	var hosts []connmgr.HostStatus
	_, err = c.ask(&hosts, "hosts")
	n := list.Share
	switch {
	case errors.Is(err, errNoManager):
		n = list.Slots(guessedSlots)
	case err != nil:
		return 0, err
	}
	for _, h := range hosts {
		slots := allowed[h.Addr]
		switch h.State {
		case "up":
			if slots == 0 || h.Jobs < slots {
				slots = h.Jobs
			}
		case "unused", "idle", "connecting":
			if slots == 0 {
				slots = guessedSlots
			}
		default: // draining, down
			slots = 0
		}
		n += slots
	}
	if n == 0 {
		n = c.cores
	}
	return n, nil
}
