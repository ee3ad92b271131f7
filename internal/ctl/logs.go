package ctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func (c *ctl) logsCommand() *cobra.Command {
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use:   "logs HOST",
		Short: "Show the log of a host's daemon",
		Long: "Shows the last lines of the log of the daemon on HOST, by the port that jobs are sent to. The daemon keeps about\n" +
			"256 KiB for that, wherever else its log goes. Its setting http.readers has to name this machine's certificate, or \"*\".",
		Example: "  rdistcc logs build7\n  rdistcc logs build7 -n 1000\n  rdistcc logs build7 -f",
		Args:    one("HOST"),
		RunE: func(_ *cobra.Command, args []string) error {
			if lines < 0 {
				return failf(reason.ExitArguments, "--lines: %d is no number of lines", lines)
			}
			return c.logs(args[0], lines, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is logged from now on, until interrupted")
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "how many lines to begin with")
	return cmd
}

func (c *ctl) logs(name string, lines int, follow bool) error {
	d := &doctor{c: c}
	host, err := d.named(&findings{}, name)
	if err != nil {
		return err
	}
	path, _ := config.Locate(c.getenv)
	cfg, err := config.Load(path)
	if err != nil {
		return failf(reason.ExitArguments, "%v", err)
	}
	a := &cfg.Auth
	id, err := identity.New(identity.Client, identity.Settings{PSKFile: a.PSKFile, Cert: a.TLS.Cert, Key: a.TLS.Key, CA: a.TLS.CA})
	if err != nil {
		return failf(reason.ExitArguments, "%v", err)
	}
	dev, err := iwarp.Open(iwarp.Config{Dial: id.Dial})
	if err != nil {
		return err
	}
	defer dev.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.Limits.ConnectTimeout)
		defer cancel()
		return streams.Dial(ctx, dev, host.Addr(), streams.Options{Service: streams.HTTP, Key: id.Key()})
	}}}
	query := url.Values{"lines": {strconv.Itoa(lines)}, "follow": {strconv.FormatBool(follow)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host.Addr()+"/log?"+query.Encode(), nil)
	if err != nil {
		return failf(reason.ExitArguments, "%s: %v", host.Addr(), err)
	}
	resp, err := web.Do(req)
	if err != nil {
		return c.noLog(host.Addr(), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		line, _ := bufio.NewReader(resp.Body).ReadString('\n') // what there is of it
		code := reason.ExitProtocol
		if resp.StatusCode == http.StatusForbidden {
			code = reason.ExitDenied
		}
		return failf(code, "%s: %s", host.Addr(), strings.TrimSpace(line))
	}
	if _, err = io.Copy(c.out, resp.Body); err != nil && ctx.Err() == nil {
		return failf(reason.ExitConnect, "%s: the log ends: %v", host.Addr(), err)
	}
	return nil
}

// noLog returns the error for a host that has not answered.
func (c *ctl) noLog(addr string, err error) error {
	code := reason.ExitConnect
	var no *streams.Rejected
	if errors.As(err, &no) && no.Cause == job.CauseDenied {
		code = reason.ExitDenied
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return failf(code, "%s: %v", addr, fmt.Errorf("%w; rdistcc doctor %s tells more", err, addr))
}
