package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Outcomes of a check.
const (
	doctorOK   = "ok"
	doctorWarn = "warn"
	doctorFail = "FAIL"
)

// finding is the outcome of one check.
type finding struct {
	Host   string `json:"host,omitempty"` // empty: about this machine
	Check  string `json:"check"`
	Status string `json:"status"`
	Text   string `json:"text"`             // one line
	Remedy string `json:"remedy,omitempty"` // what to do, one line
}

// findings holds the outcomes for one host, or for this machine, in the order of the checks.
type findings struct {
	host string
	all  []finding
}

func (f *findings) add(status, check, text, remedy string) {
	f.all = append(f.all, finding{f.host, check, status, text, remedy})
}

func (f *findings) ok(check, format string, args ...any) {
	f.add(doctorOK, check, fmt.Sprintf(format, args...), "")
}

func (f *findings) warn(check, text, remedy string) { f.add(doctorWarn, check, text, remedy) }
func (f *findings) fail(check, text, remedy string) { f.add(doctorFail, check, text, remedy) }

// doctor is one run of the checks.
type doctor struct {
	c       *ctl
	cfg     *config.Config
	id      *identity.Identity // nil: its files cannot be used, which is a finding
	timeout time.Duration      // of each step with a host
	tools   []localTool        // compilers here
	broken  bool               // the configuration cannot be used
}

// doctorHosts is how many hosts are checked at a time.
const doctorHosts = 8

func (c *ctl) doctorCommand() *cobra.Command {
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "doctor [HOST]",
		Short: "Check this machine and the hosts, and tell what to fix",
		Long: "Checks everything that a compile started in this shell depends on: the connection manager and its directory, the\n" +
			"configuration, the compilers and links. Then it checks each host of the list, or only HOST: name resolution,\n" +
			"connection, identity, what protects the wire, version and clock, which of the local compilers it has, its places, how well it confines\n" +
			"compiles, and whether a small compile there produces the same object as here. It connects by itself, so no\n" +
			"connection manager is needed. It prints a line for each check, with a remedy where something is wrong.\n" +
			"The exit status is 0 unless a check says FAIL.",
		Example: "  rdistcc doctor\n  rdistcc doctor build7\n  rdistcc doctor --json | jq '.[] | select(.status != \"ok\")'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return failf(reason.ExitArguments, "--timeout: %v is no time to wait", timeout)
			}
			return c.doctor(args, timeout, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "time limit for each step with a host (default limits.connect-timeout)")
	return cmd
}

func (c *ctl) doctor(args []string, timeout time.Duration, asJSON bool) error {
	d := &doctor{c: c, timeout: timeout}
	here := &findings{}
	d.settings(here)
	if d.timeout == 0 {
		d.timeout = d.cfg.Limits.ConnectTimeout
	}
	var hosts []hostlist.Host
	if len(args) > 0 {
		h, err := d.named(here, args[0])
		if err != nil {
			return err
		}
		hosts = []hostlist.Host{h}
		d.compilers(&findings{}) // the outcome appears below, where it matters
		here.all = slices.DeleteFunc(here.all, func(f finding) bool { return f.Status == doctorOK })
	} else {
		d.compilers(here)
		d.machine(here)
		d.stores(here)
		d.cluster(here)
		hosts = d.hosts(here)
	}
	all := [][]finding{here.all}
	each := make([]findings, len(hosts))
	var wg sync.WaitGroup
	turn := make(chan struct{}, doctorHosts)
	for i, h := range hosts {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			each[i].host = h.Addr()
			d.host(&each[i], h)
		})
	}
	wg.Wait()
	for i := range each {
		all = append(all, each[i].all)
	}
	return c.report(all, asJSON)
}

// report prints the findings. It returns an error if a check failed.
func (c *ctl) report(all [][]finding, asJSON bool) error {
	flat := []finding{}
	failed := 0
	var b bytes.Buffer
	for _, some := range all {
		for i, f := range some {
			if i == 0 {
				if b.Len() > 0 {
					b.WriteByte('\n')
				}
				if f.Host == "" {
					b.WriteString("this machine\n")
				} else {
					fmt.Fprintf(&b, "%s\n", f.Host)
				}
			}
			fmt.Fprintf(&b, "  %-4s  %-11s %s\n", f.Status, f.Check, f.Text)
			if f.Remedy != "" {
				fmt.Fprintf(&b, "        %-11s -> %s\n", "", f.Remedy)
			}
			if f.Status == doctorFail {
				failed++
			}
			flat = append(flat, f)
		}
	}
	var err error
	if asJSON {
		err = c.marshal(flat)
	} else {
		err = c.print(b.Bytes())
	}
	if err == nil && failed > 0 {
		err = failf(reason.ExitGeneral, "%s failed", figure.Count(failed, "check"))
	}
	return err
}

// named returns the host that the command line names: one of the list, with its port, or any other.
func (d *doctor) named(f *findings, text string) (hostlist.Host, error) {
	list, _, err := d.c.list()
	if err != nil && !d.broken {
		f.fail("hosts", err.Error(), listRemedy)
	}
	for _, h := range list.Hosts {
		if h.Name == text || h.Addr() == text {
			return h, nil
		}
	}
	list, err = hostlist.ParseEntries([]string{text})
	if err != nil || len(list.Hosts) != 1 {
		return hostlist.Host{}, failf(reason.ExitArguments, "%q is no host: name it as the host list would, say build7 or build7:7632", text)
	}
	return list.Hosts[0], nil
}

const listRemedy = "correct the host list: docs/usage.md has its form"

// hosts returns the hosts of the list; for names that stand for several, those that the manager has found.
func (d *doctor) hosts(f *findings) []hostlist.Host {
	list, where, err := d.c.list()
	if err != nil && d.broken {
		return nil // for the same reason
	}
	if err != nil {
		f.fail("hosts", err.Error(), listRemedy)
		return nil
	}
	var hosts []hostlist.Host
	have := make(map[string]bool)
	add := func(h hostlist.Host) {
		if !h.Down && !have[h.Addr()] {
			have[h.Addr()] = true
			hosts = append(hosts, h)
		}
	}
	for _, h := range list.Hosts {
		add(h)
	}
	if len(list.Sources) > 0 {
		var found []report.HostStatus
		if _, err := d.c.ask(&found, "hosts"); err != nil {
			f.warn("hosts", "the list has names that stand for several hosts, which only a connection manager looks up", "compile something, then ask again; or name a host")
		}
		for _, s := range found {
			if l, err := hostlist.ParseEntries([]string{s.Addr}); err == nil && len(l.Hosts) == 1 && s.State != "source" {
				add(l.Hosts[0])
			}
		}
	}
	switch {
	case len(hosts) > 0:
		f.ok("hosts", "%s of %s", figure.Count(len(hosts), "host"), where)
	case len(list.Sources) == 0:
		f.warn("hosts", "none: everything is compiled here", "set RDISTCC_HOSTS, or write the hosts into ~/.config/rdistcc/hosts")
	default:
		f.warn("hosts", "none was found so far", "rdistcc hosts shows what the list's names stand for")
	}
	return hosts
}

// settings reads the configuration, and the identity that it names.
func (d *doctor) settings(f *findings) {
	path, _ := config.Locate(d.c.getenv)
	cfg, err := config.Load(path)
	switch st, serr := os.Stat(path); {
	case err != nil:
		f.fail("config", err.Error(), "correct the file; deploy/config.yaml of rdistcc shows every setting")
	case serr != nil:
		f.ok("config", "none: defaults")
	case st.Mode().Perm()&0o022 != 0:
		f.fail("config", fmt.Sprintf("%s can be written by others (mode %04o): they decide where sources go", path, st.Mode().Perm()), "chmod go-w "+path)
	default:
		f.ok("config", "%s", path)
	}
	if d.cfg = cfg; err != nil {
		d.broken, d.cfg = true, config.Default()
	}
	a := &d.cfg.Auth
	id, err := identity.New(identity.Client, identity.Settings{PSKFile: a.PSKFile, Cert: a.TLS.Cert, Key: a.TLS.Key, CA: a.TLS.CA})
	if err != nil {
		f.fail("identity", err.Error(), "without it no host is asked")
		return
	}
	d.id = id
	switch id.Mode() {
	case identity.PSK:
		f.ok("identity", "pre-shared key, %s", a.PSKFile)
	case identity.TLS:
		d.expiry(f, "certificate "+a.TLS.Cert, id.Expires(), time.Now())
	case identity.Open:
		f.ok("identity", "none: for hosts that want none")
	}
}

// expiryWarn is how long before its end a certificate should be renewed.
const expiryWarn = 14 * 24 * time.Hour

// expiry checks the end of a certificate.
func (d *doctor) expiry(f *findings, what string, end, now time.Time) {
	left := end.Sub(now)
	text := fmt.Sprintf("%s, valid until %s, %s left", what, end.Format("2006-01-02"), figure.Count(int(left/(24*time.Hour)), "day"))
	switch {
	case left <= 0:
		f.fail("identity", fmt.Sprintf("%s has expired on %s", what, end.Format("2006-01-02")), "rdistcc certs makes a new one")
	case left < expiryWarn:
		f.warn("identity", text, "rdistcc certs makes a new one")
	default:
		f.ok("identity", "%s", text)
	}
}

// managerLine reports whether a manager runs, and whether it has this version.
func (d *doctor) managerLine(f *findings) {
	var s report.Status
	var no *exitError
	_, err := d.c.ask(&s, "status")
	switch {
	case errors.Is(err, errNoManager):
		f.ok("manager", "none runs: the first compile starts one")
	case errors.As(err, &no) && no.code == reason.ExitDenied:
		f.fail("manager", err.Error(), "set RDISTCC_DIR to a directory of your own that no one else can write to")
	case err != nil:
		f.fail("manager", err.Error(), "rdistcc stop, or end the process that serves the socket; the next compile starts another one")
	case s.Version != d.c.version:
		f.warn("manager", fmt.Sprintf("process %d is of version %s, this is %s", s.PID, s.Version, d.c.version), "rdistcc stop: the next compile starts this version")
	case len(s.SettingNotes()) > 0:
		remedy := "rdistcc stop: the next compile starts one with the new settings"
		if s.ListError != "" || s.Config.Error != "" {
			remedy = "correct the file: the connection manager takes it within seconds"
		}
		f.warn("manager", fmt.Sprintf("process %d: %s", s.PID, strings.Join(s.SettingNotes(), "; ")), remedy)
	default:
		f.ok("manager", "%s, process %d, up %s", s.Version, s.PID, figure.Age(time.Since(s.Since)))
		if note := s.SlotNote(); note != "" {
			f.warn("places", note, "raise buffers.slots in the configuration of this machine")
		}
		if seen := &s.Known.Searches; seen.Here > 0 {
			f.warn("searches", searchesText(seen), "docs/usage.md says what that means (Compilers that search in ways of their own); please report it, with the name and `CC --version`")
		}
		d.twiceLine(f)
	}
}

// fewTwice is how many of the commands that the manager remembers may have run on a host and then here
// without a remark: a source that quotes an escape sequence, a compile that fails.
const fewTwice = 4

// twiceLine reports what was compiled on a host and then here again, if that was more than a few.
func (d *doctor) twiceLine(f *findings) {
	var s report.Stats
	if _, err := d.c.ask(&s, "stats"); err != nil || len(s.Again) == 0 {
		return
	}
	n := 0
	for _, t := range s.Again {
		n += t.Jobs
	}
	if n <= fewTwice {
		return
	}
	remedy := "docs/troubleshooting.md says what that means; please report it, with what `rdistcc why " + s.Again[0].Source + "` prints"
	if s.Again[0].Reason == "diagnostics" {
		remedy = "the compiler had something to say: `diagnostics: fast` in config.yaml takes a host's words as they are, a pipe (2>&1 | cat) is no terminal"
	}
	f.warn("twice", fmt.Sprintf("%s of the last %d ran on a host and then here again%s", figure.Count(n, "command"), s.Remembered, twiceReasons(s.Again)), remedy)
}
