package ctl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/textfile"
	"github.com/rdistcc/rdistcc/internal/top"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// list returns the host list that a compile typed here would use, and where it comes from.
func (c *ctl) list() (list hostlist.List, where string, err error) {
	list, where, err = hostlist.FromEnv(c.lookup)
	if where == "" && err == nil {
		list, where, err = c.ownList()
	}
	var setting *config.Error
	switch {
	case errors.As(err, &setting):
		return list, where, &exitError{code: reason.ExitArguments, line: err.Error(), cause: err}
	case err != nil:
		return list, where, &exitError{code: reason.ExitHostList, line: err.Error(), cause: err}
	}
	return list, where, nil
}

// ownList returns the list of a manager that is started without flags.
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
	return hostlist.FromFiles(hostlist.Files(c.getenv("RDISTCC_DIR"), c.getenv), textfile.Optional(hostlist.MaxText))
}

// warnSettings reports errors in the configuration, or in the host list in a file, because of which a
// running manager cannot have taken it.
func (c *ctl) warnSettings() {
	if _, _, err := c.ownList(); err != nil {
		fmt.Fprintf(c.err, "rdistcc: %v; the connection manager goes on with what it had before\n", err)
	}
}

const noHosts = "no hosts configured: set RDISTCC_HOSTS, or write them into ~/.config/rdistcc/hosts; all jobs are compiled here\n"

func (c *ctl) hostsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "hosts",
		Short: "Show the hosts that compiles in this shell use, and their state",
		Long: "Shows the hosts that a compile started in this shell would use: those in RDISTCC_HOSTS or DISTCC_HOSTS if\n" +
			"set, otherwise the connection manager's own list. It also shows how the manager is connected to them.\n" +
			"JOBS is how many compiles the host runs at a time, RUNNING and CREDITS are this machine's share. RTT and RATE\n" +
			"belong to the connection. SPEED is the speed of one core relative to the average, as measured by compiles. SANDBOX\n" +
			"says how well the host confines compiles: off, partial, confined or full. VERSION is that of its daemon. HOLDS is\n" +
			"how many of this machine's files the host keeps, which jobs need not send again. NOTE says why a host gets no jobs.",
		Example: "  rdistcc hosts\n  RDISTCC_HOSTS='build7/8 build8' rdistcc hosts --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var hosts []report.HostStatus
			data, err := c.ask(&hosts, "hosts")
			if errors.Is(err, errNoManager) {
				return c.hostsWithoutManager(asJSON)
			}
			if err != nil {
				return err
			}
			c.warnSettings()
			if asJSON {
				return c.printJSON(data)
			}
			if len(hosts) == 0 {
				return c.print([]byte(noHosts))
			}
			top.Clean(&hosts)
			return c.print(append(hostTableLines(hosts), groupLines(hosts)...))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// hostsWithoutManager shows what is known without a manager: the list.
func (c *ctl) hostsWithoutManager(asJSON bool) error {
	list, where, err := c.list()
	if err != nil {
		return err
	}
	if path, _ := config.Locate(c.getenv); path != "" {
		if _, err := config.Load(path); err != nil {
			return c.noManager() // nor will the first compile start one
		}
	}
	hosts := []report.HostStatus{}
	for _, h := range list.Hosts {
		if !h.Down {
			hosts = append(hosts, report.HostStatus{Addr: h.Addr(), State: report.StateUnused, Jobs: h.Slots})
		}
	}
	for i := range list.Sources {
		if s := &list.Sources[i]; !s.Down {
			hosts = append(hosts, report.HostStatus{Addr: s.Text, State: "source"})
		}
	}
	if asJSON {
		return c.marshal(hosts)
	}
	if len(hosts) == 0 {
		return c.print([]byte(noHosts))
	}
	head := fmt.Sprintf("no connection manager runs: the first compile starts one; hosts of %s\n\n", where)
	return c.print(append([]byte(head), hostTableLines(hosts)...))
}

// hostTableLines returns what a job would find, one line for each host.
func hostTableLines(hosts []report.HostStatus) []byte {
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "HOST\tSTATE\tJOBS\tRUNNING\tCREDITS\tRTT\tRATE\tSPEED\tLOAD\tTREE\tSANDBOX\tVERSION\tHOLDS\tSENT\tRECEIVED\tNOTE")
		for i := range hosts {
			h := &hosts[i]
			jobs, rtt, rate, speed, load, tree := "-", "-", "-", "-", "-", "-"
			if h.Jobs > 0 {
				jobs = fmt.Sprint(h.Jobs)
				if tree = "no"; h.Tree {
					tree = "yes"
				}
			}
			if h.RTTUS > 0 {
				rtt = figure.Micros(uint64(h.RTTUS))
			}
			if h.Rate > 0 {
				rate = figure.Bytes(uint64(h.Rate)) + "/s"
			}
			if h.Speed > 0 {
				speed = fmt.Sprintf("%.2f", h.Speed)
			}
			if h.Load != nil {
				load = fmt.Sprintf("%.2f", float64(h.Load.LoadAvg)/100)
			}
			holds := "-"
			if h.HeldFiles > 0 {
				holds = fmt.Sprint(h.HeldFiles)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Addr, h.Word(), jobs, h.Running, h.Credits,
				rtt, rate, speed, load, tree, cmp.Or(h.Sandbox, "-"), cmp.Or(h.Version, "-"), holds, figure.Bytes(h.Out), figure.Bytes(h.In), h.Note())
		}
	})
}

func (c *ctl) showHostsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "show-hosts",
		Short:  "Print the host list, an entry a line as it is written (said as --show-hosts)",
		Hidden: true, // shown as --show-hosts
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, _, err := c.list()
			var bad *hostlist.Error
			if err != nil && !(errors.As(err, &bad) && bad.Distcc) {
				return err
			}
			if list.Randomize {
				rand.Shuffle(len(list.Words), func(i, j int) { list.Words[i], list.Words[j] = list.Words[j], list.Words[i] })
			}
			var b strings.Builder
			for _, w := range list.Words {
				fmt.Fprintln(&b, w)
			}
			if perr := c.print([]byte(b.String())); perr != nil {
				return perr
			}
			return err
		},
	}
}

func (c *ctl) slotsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "j",
		Short:  "Print a number for make -j: places at the hosts (said as -j)",
		Hidden: true, // shown as -j
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

// slots returns the number for make -j: places at the hosts that are up, jobs on the way to distant ones,
// and the local share, according to the manager. Without a manager it comes from the list. If the result is
// zero, it is the number of cores.
func (c *ctl) slots() (int, error) {
	var p report.Places
	_, err := c.ask(&p, "places")
	n := p.Hosts + p.Guess + p.Local
	if errors.Is(err, errNoManager) {
		list, _, lerr := c.list()
		n, err = list.Slots(report.GuessedPlaces), lerr
	}
	if err != nil {
		return 0, err
	}
	if n == 0 {
		n = c.cores
	}
	return n, nil
}
