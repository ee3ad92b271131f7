package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/tcpaddr"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/distcc"
)

// distccSide is what serves clients of distcc; its zero value serves none.
type distccSide struct {
	listen []net.Listener
	inside *distcc.Inside
	server *distcc.Server
}

// checkDistcc refuses to serve clients of distcc where the settings do not say clearly enough that they may send jobs: their
// protocol has no proof, so an address is all that is known of them.
func checkDistcc(c *config.Config, mode identity.Mode) error {
	x := &c.Distcc
	if len(x.Listen) == 0 {
		return nil
	}
	if c.Daemon.Provider != "soft" {
		return usageError{fmt.Errorf("distcc.listen: clients of distcc are served with --provider soft only, not %s", c.Daemon.Provider)}
	}
	for _, addr := range x.Listen {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return usageError{fmt.Errorf("serve clients of distcc on %s: %w", addr, err)}
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && len(x.Allow) == 0 {
			return usageError{fmt.Errorf("serve clients of distcc on %s: they prove nothing, so anyone who can reach it could run compilers here; say which networks may (--distcc-allow 10.0.0.0/8, or distcc.allow), or listen on 127.0.0.1", addr)}
		}
	}
	if mode != identity.Open && !x.WithoutProof {
		return usageError{fmt.Errorf("serve clients of distcc on %s: they prove nothing, and this daemon's other clients have to (%v); accept that with \"distcc: {without-proof: true}\" in the configuration, or leave out distcc.listen", strings.Join(x.Listen, ", "), mode)}
	}
	return nil
}

// openDistcc listens for clients of distcc, if the settings say so.
func (d *daemon) openDistcc() error {
	for _, addr := range d.cfg.Distcc.Listen {
		l, err := net.Listen(tcpaddr.Network(addr), addr)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("serve clients of distcc on %s: %w; stop the distccd that uses it, or choose another port with --distcc", addr, syscall.EADDRINUSE)
		}
		if err != nil {
			d.distcc.close()
			return err
		}
		d.distcc.listen = append(d.distcc.listen, l)
	}
	return nil
}

// serveDistcc begins to serve clients of distcc, which the worker takes for clients of its own.
func (d *daemon) serveDistcc(r prometheus.Registerer) error {
	x := &d.distcc
	if len(x.listen) == 0 {
		return nil
	}
	metrics, err := distcc.NewMetrics(r)
	if err != nil {
		return err
	}
	if x.inside, err = distcc.NewInside(); err != nil {
		return err
	}
	// A start-up is over in a moment, and all clients of one address may begin one at the same time.
	l, err := d.dev.Listen(context.Background(), "", &iwarp.ListenOptions{Listener: x.inside, MaxPending: distcc.MaxConns, MaxPendingPerHost: distcc.MaxConns})
	if err != nil {
		return err
	}
	d.w.ServeOnBehalf(l, "distcc")
	x.server = distcc.New(distcc.Options{
		Log: d.log.Logger, Metrics: metrics, Allow: d.cfg.Distcc.Networks(), Inside: x.inside,
		Toolchains: d.w.Offered, Dirs: func() []string { return d.w.Settings().Dirs }, Trees: d.w.Trees(), Headers: d.w.OwnHeaders,
		Env:    locale(os.Environ()),
		Denied: func(remote net.Addr, detail string) { d.id.Failed(remote, distcc.CauseNetwork, detail) },
		Source: int(d.cfg.Buffers.Source), Memory: max(int64(d.cfg.Buffers.Large), 2*int64(d.cfg.Buffers.Source)),
	})
	for _, l := range x.listen {
		who := "this machine only"
		if len(d.cfg.Distcc.Allow) > 0 {
			who = strings.Join(d.cfg.Distcc.Allow, ", ") + " and this machine"
		}
		d.log.Warn("serving clients of distcc, WHICH PROVE NOTHING AND ENCRYPT NOTHING: whoever can send from an allowed address can compile here, and who is on the path can read and change everything", "addr", l.Addr().String(), "allowed", who)
		x.server.Serve(l)
	}
	return nil
}

// locale returns the variables among env that choose the language of messages: as with distccd, that is the daemon's.
func locale(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, value, _ := strings.Cut(e, "=")
		return !compile.IsLocale(name) || !compile.FitsEnvironment(name, value)
	})
}

// drain takes no more clients.
func (x *distccSide) drain() {
	if x.server != nil {
		x.server.Drain()
	}
}

// close ends what is left.
func (x *distccSide) close() {
	if x.server != nil {
		x.server.Close()
	}
	for _, l := range x.listen {
		_ = l.Close() // it may be closed already
	}
	if x.inside != nil {
		_ = x.inside.Close()
		_ = x.inside.End()
	}
}
