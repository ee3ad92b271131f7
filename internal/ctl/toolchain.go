package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func (c *ctl) toolchainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "toolchain",
		Short: "Show which hosts have the compilers used here, and send them",
		Long: "Shows which hosts have the compilers that commands use here (list), says what a host is sent of one (pack), and sends one\n" +
			"to a host now (send). Hosts that lack a compiler are sent it anyway when a command uses it.",
		Example:   "  rdistcc toolchain list\n  rdistcc toolchain send build7 gcc-12",
		ValidArgs: []string{"list", "pack", "send"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return failf(reason.ExitArguments, "toolchain needs one of list, pack and send, as in: rdistcc toolchain list")
			}
			return failf(reason.ExitArguments, "toolchain: no %q; there are list, pack and send", args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(c.toolchainListCommand(), c.toolchainPackCommand(), c.toolchainSendCommand())
	return cmd
}

func (c *ctl) toolchainListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the compilers used here, and which hosts have them",
		Long: "Shows the compilers that commands have used since the connection manager started, and for each host of the list\n" +
			"whether it has the compiler: installed, received from here, or being sent; or why it cannot be sent there. SIZE is\n" +
			"what a host without any other compiler is sent, before compression.",
		Example: "  rdistcc toolchain list\n  rdistcc toolchain list --json | jq '.[].hosts[] | select(.state == \"lacking\")'",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var list []report.Toolchain
			data, err := c.ask(&list, "toolchains")
			if errors.Is(err, errNoManager) {
				return c.noManager()
			}
			if err != nil {
				return err
			}
			if asJSON {
				return c.printJSON(data)
			}
			return c.print(toolchainLines(list))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// toolchainLines returns a line for each compiler and host.
func toolchainLines(list []report.Toolchain) []byte {
	if len(list) == 0 {
		return []byte("no compiler has been used since the connection manager started\n")
	}
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "COMPILER\tPATH\tSIZE\tHOST\tSTATE")
		for i := range list {
			t := &list[i]
			head := fmt.Sprintf("%s\t%s\t%s", t.Compiler, t.Path, sizeOf(t))
			for j := range t.Hosts {
				fmt.Fprintf(w, "%s\t%s\t%s\n", head, t.Hosts[j].Host, &t.Hosts[j])
				head = "\t\t"
			}
			if len(t.Hosts) == 0 {
				fmt.Fprintf(w, "%s\t-\tno hosts are configured\n", head)
			}
		}
	})
}

func sizeOf(t *report.Toolchain) string {
	if t.Bytes == 0 {
		return "-"
	}
	return figure.Bytes(t.Bytes)
}

func (c *ctl) toolchainSendCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "send HOST [COMPILER]",
		Short: "Send a compiler to a host now",
		Long: "Makes the connection manager send COMPILER, or all compilers that commands have used, to HOST now, and waits until it is\n" +
			"there. A host that refused one is asked again. Nothing is sent to a host that has the compiler. If this is\n" +
			"interrupted, the manager goes on.",
		Example: "  rdistcc toolchain send build7\n  rdistcc toolchain send build7 clang-19",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return failf(reason.ExitArguments, "send needs a HOST and takes at most one COMPILER, as in: rdistcc toolchain send build7 gcc-12")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return c.send(args, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON at the end")
	return cmd
}

// Times of `toolchain send`.
const (
	sendLook  = 100 * time.Millisecond // between two looks at how far it is
	sendReach = 10 * time.Second       // how long the host may take to be connected
	sendStale = 2 * time.Second        // how long an error of the last connection stands although another attempt was asked for
)

// send sends compilers to a host, and waits for that.
func (c *ctl) send(args []string, asJSON bool) error {
	words := append([]string{"send"}, args...)
	if len(args) == 2 {
		path, err := c.compilerPath(args[1])
		if err != nil {
			return err
		}
		words[2] = path
	}
	var asked []report.Toolchain
	_, err := c.ask(&asked, words...)
	if errors.Is(err, errNoManager) {
		return c.noManager()
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer c.clearLine()
	at := figure.Count(len(asked), "compiler")
	for began := time.Now(); ; {
		late := time.Since(began)
		pending, err := c.pending(asked, late)
		if err != nil {
			return err
		}
		if pending == nil {
			break
		}
		if c.terminal && !asJSON {
			if err := c.print(fmt.Appendf(nil, "\r\x1b[K%s: %s at %s", pending.Compiler, &pending.Hosts[0], pending.Hosts[0].Host)); err != nil {
				return err
			}
		}
		select {
		case <-time.After(sendLook):
		case <-ctx.Done():
			return failf(reason.ExitGeneral, "interrupted; the connection manager goes on with %s", at)
		}
		if asked, err = c.again(asked); err != nil {
			return err
		}
	}
	if asJSON {
		return c.marshal(asked)
	}
	c.clearLine()
	return c.print(sentLines(asked))
}

// clearLine removes what shows the progress.
func (c *ctl) clearLine() {
	if c.terminal {
		fmt.Fprint(c.out, "\r\x1b[K")
	}
}

// pending returns a compiler that is not there yet, or nil. The error is that it will not be. late is since when that is waited for.
func (c *ctl) pending(list []report.Toolchain, late time.Duration) (pending *report.Toolchain, err error) {
	for i := range list {
		t := &list[i]
		if len(t.Hosts) == 0 {
			return nil, failf(reason.ExitHostList, "%s: the host is no longer on the list", t.Compiler)
		}
		switch h := &t.Hosts[0]; {
		case h.State == report.ToolchainUnknown && late < sendStale, h.State == report.ToolchainSending, h.State == report.ToolchainWaiting:
			pending = t
		case h.State == report.ToolchainUnknown && (late > sendReach || h.Down):
			return nil, failf(reason.ExitConnect, "%s: %s; rdistcc doctor %s tells more", h.Host, h.Error, h.Host)
		case h.State == report.ToolchainUnknown:
			pending = t
		case h.State == report.ToolchainLacking && h.Again:
			return nil, failf(reason.ExitConnect, "%s: %s is not there yet: %s; the connection manager tries again", h.Host, t.Compiler, h.Error)
		case h.State == report.ToolchainLacking:
			return nil, failf(reason.ExitNoCompiler, "%s: %s cannot be sent: %s", h.Host, t.Compiler, h.Error)
		}
	}
	return pending, nil
}

// again returns what is known now of compilers at a host.
func (c *ctl) again(asked []report.Toolchain) ([]report.Toolchain, error) {
	var all []report.Toolchain
	if _, err := c.ask(&all, "toolchains", asked[0].Hosts[0].Host); err != nil {
		if errors.Is(err, errNoManager) {
			return nil, failf(reason.ExitGeneral, "the connection manager has ended before the compiler was sent")
		}
		return nil, err
	}
	now := []report.Toolchain{}
	for _, t := range all {
		for i := range asked {
			if asked[i].ID == t.ID {
				now = append(now, t)
			}
		}
	}
	if len(now) < len(asked) {
		return nil, failf(reason.ExitGeneral, "the connection manager has forgotten the compiler: it was started anew, or many others were used; send it again")
	}
	return now, nil
}

// sentLines says that a host has compilers.
func sentLines(list []report.Toolchain) []byte {
	var b []byte
	for i := range list {
		t, h := &list[i], &list[i].Hosts[0]
		if h.State == report.ToolchainInstalled {
			b = fmt.Appendf(b, "%s has %s installed\n", h.Host, t.Compiler)
			continue
		}
		b = fmt.Appendf(b, "%s has %s (%s)\n", h.Host, t.Compiler, sizeOf(t))
	}
	return b
}

// compilerPath returns the absolute path of a compiler that the command line names.
func (c *ctl) compilerPath(name string) (string, error) {
	if strings.ContainsRune(name, '/') {
		path, err := filepath.Abs(name)
		if err != nil {
			return "", failf(reason.ExitArguments, "%v", err)
		}
		return path, nil
	}
	if path := (&doctor{c: c}).lookPath(name); path != "" {
		return path, nil
	}
	return "", failf(reason.ExitArguments, "no compiler %s on PATH", name)
}
