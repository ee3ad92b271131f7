package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/discover"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/internal/tiers"
	"github.com/rdistcc/rdistcc/pkg/connmgr"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
)

// closeTime bounds the work left at the end: a scrape, a goodbye.
const closeTime = time.Second

// soon is how long before its expiry a certificate causes a warning at the start.
const soon = 14 * 24 * time.Hour

// daemon is a running connection manager.
type daemon struct {
	load       func() (*config.Config, error)
	configFile string // given with --config; empty: the default one
	log        *telemetry.Log
	notify     telemetry.Notifier
	hosts      *hostSource
	id         *identity.Identity
	m          *connmgr.Manager
	web        atomic.Pointer[telemetry.Server] // nil: there is none, or not any more

	replace   string // which managers this one may replace: replaceOlder, replaceAny; empty: none
	byWrapper bool   // a wrapper started it

	reloading sync.Mutex                  // one reload at a time
	cfg       *config.Config              // in force; guarded by reloading once the manager serves
	seen      configLook                  // of the file read last; guarded by reloading
	current   atomic.Pointer[configState] // for readers
}

// serve runs the connection manager until it is told to stop, or has been idle long enough.
func serve(load func() (*config.Config, error), file, replace string) (err error) {
	d := &daemon{load: load, configFile: file, replace: replace, notify: telemetry.NewNotifier(os.Getenv("NOTIFY_SOCKET")), byWrapper: os.Getenv("RDISTCC_READY_FD") != ""}
	d.seen = d.lookAtConfig()
	if d.cfg, err = load(); err != nil {
		return err
	}
	if err := closeUp(d.cfg); err != nil { // before any key is read
		return err
	}
	a := d.cfg.Auth
	if d.id, err = identity.New(identity.Client, identity.Settings{PSKFile: a.PSKFile, Cert: a.TLS.Cert, Key: a.TLS.Key, CA: a.TLS.CA}); err != nil {
		return usageError{err}
	}
	if d.log, err = telemetry.OpenLog(d.cfg.Log.File, d.cfg.Log.Level); err != nil {
		return err
	}
	d.id.SetLog(d.log.Logger)
	if to := d.id.Expires(); !to.IsZero() && time.Until(to) < soon {
		d.log.Warn("this side's certificate expires soon: no host will take jobs after that", "expires", to)
	}
	defer d.log.Close()
	sockets, err := telemetry.Sockets(os.Getenv, os.Getpid())
	if err != nil {
		return err
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET"} {
		_ = os.Unsetenv(name) // not for the compilers that the manager identifies
	}

	// The socket first: of several managers that start together only one gets past it.
	path := d.cfg.Manager.Socket
	if path == "" {
		path = ipc.SocketPath(os.Getenv)
	}
	var given *os.File
	if len(sockets) > 0 {
		given = sockets[0].File
	}
	listener, takeover, err := d.listen(path, given)
	if err != nil {
		return err
	}
	dev, err := d.openDevice()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer dev.Close()
	registry := telemetry.NewRegistry()
	registry.MustRegister(telemetry.NewIWARPCollector(dev.Stats), telemetry.NewExpiryCollector("rdistcc_cm", d.id.Expires),
		telemetry.NewBuildCollector("rdistcc", build.Version, build.Revision, job.Version))
	d.publish(nil, nil)
	d.hosts = newHostSource(d.cfg, os.Getenv, d.log.Logger)
	o := d.options(d.cfg)
	o.Cores = fewThreads()
	o.Key, o.Verify = d.id.Key, d.id.VerifyResult
	o.Device, o.Log, o.Registry, o.Version = dev, d.log.Logger, registry, build.Version
	o.Hosts, o.Home = d.hosts.get, os.Getenv("HOME")
	found := discover.New(discover.Options{
		Interval: d.cfg.Discovery.Interval, Timeout: d.cfg.Discovery.Timeout, Interfaces: d.cfg.Discovery.Interfaces, Log: d.log.Logger,
	})
	defer found.Close()
	o.Find = found.List
	o.Compilers = filepath.Join(ipc.StateDir(os.Getenv), "cm.compilers")
	state := cmp.Or(config.StateHome(os.Getenv), ipc.StateDir(os.Getenv))
	o.Holdings = filepath.Join(state, "held")
	o.History, o.Headers = filepath.Join(state, "history"), filepath.Join(state, "headers")
	o.Watched, o.Costs = filepath.Join(state, "watched"), filepath.Join(state, "costs")
	if o.Results, err = tiers.Open(d.cfg, os.Getenv, os.Environ()); err != nil {
		return errors.Join(err, listener.Close())
	}
	if o.Signing, err = tiers.Signing(d.cfg, d.id); err != nil {
		d.log.Warn("results are not taken from whoever a file was to name", "err", err)
	}
	o.Drains = filepath.Join(ipc.StateDir(os.Getenv), "cm.drained")
	o.Kept = report.KeptFile(path)
	o.AnyUser = listener.Group
	o.Replaced = func() { d.closeWeb() } // the successor needs its address
	o.Config = func() *report.Configuration { return &d.state().Configuration }
	o.Control = map[string]func() (any, error){
		"config": func() (any, error) { return d.state().settings, nil },
		"reload": func() (any, error) { return d.reload("asked by rdistcc reload"), nil },
	}
	if d.cfg.Toolchains.Send {
		o.SendToolchains = sendsToolchains(dev, d.id.Key)
	}
	if d.m, err = connmgr.New(o); err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, d.m.Close()) }()

	farm := newFarmPages(dev, d.id.Key, d.hostAddrs, d.cfg.HTTP.Pprof, d.log.Logger)
	more := map[string]http.HandlerFunc{"GET /demand": telemetry.JSON(func() any { return d.m.Demand() }), "GET /reasons": telemetry.ServePage(d.reasons)}
	maps.Copy(more, farm.handlers())
	maps.Copy(more, newBuildPages(filepath.Join(state, "builds"), d.page).handlers())
	defer d.closeWeb()
	web := func() error {
		if d.cfg.HTTP.Manager == "" {
			return nil
		}
		web, err := telemetry.Serve(telemetry.ServerOptions{
			Addr: d.cfg.HTTP.Manager, AnyPort: d.cfg.Origin("http.manager") == "default",
			Registry: registry, Ready: d.m.Ready, Page: d.page, Live: d.shows(), Status: func() any { return d.m.Status() }, Pprof: d.cfg.HTTP.Pprof, Log: d.log.Logger,
			More: more,
		})
		if err == nil {
			d.web.Store(web)
		}
		return err
	}
	if takeover == nil {
		if err := web(); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	d.log.Info("connection manager serves", "version", build.Version, "socket", path, "config", d.cfg.Path())
	return d.run(listener, func() error {
		if takeover == nil {
			return nil
		}
		switch err := takeover.Done(); {
		case errors.Is(err, socket.ErrInUse):
			d.m.StepBack(listener)
			return err
		case err != nil:
			d.log.Warn("the manager before this one ended early", "err", err)
		}
		if err := web(); err != nil { // no reason to leave the socket unserved
			d.log.Error("no status page and metrics", "err", err)
		}
		return nil
	})
}

// listen opens the socket, or takes it over from the manager that has it.
func (d *daemon) listen(path string, given *os.File) (l *socket.Listener, t *socket.Takeover, err error) {
	if d.replace != "" && given == nil {
		if t, err = socket.TakeOver(path, d.replace == replaceAny); err != nil {
			return nil, nil, err
		}
		if t != nil {
			return t.Listener, t, nil
		}
	}
	l, err = socket.Listen(path, given)
	return l, nil, err
}

// hostAddrs returns the addresses of all hosts that the manager knows.
func (d *daemon) hostAddrs() []string {
	var addrs []string
	for _, h := range d.m.Status().Hosts {
		addrs = append(addrs, h.Addr)
	}
	return addrs
}

// closeWeb ends the status page, if there is one.
func (d *daemon) closeWeb() {
	web := d.web.Swap(nil)
	if web == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = web.Close(ctx) // a scrape that takes longer is cut off
}

// fewThreads limits the manager to one core for Go code for every sixteen that the process
// may use, and returns the latter number. The manager works in bursts of some hundred
// microseconds, and a second thread mostly wakes up, looks for work and goes to sleep again:
// on two cores an empty compile costs 1.3 ms of the manager's CPU and 31 context switches with
// two threads, 1.0 ms and 13 with one.
func fewThreads() (cores int) {
	cores = runtime.GOMAXPROCS(0)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1 + cores/16)
	}
	return cores
}

// run serves until a signal, a request to stop or idleness, then drains. It calls begun once
// it serves; if that fails, run ends.
func (d *daemon) run(l *socket.Listener, begun func() error) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	served := make(chan error, 1)
	go func() { served <- d.m.Serve(context.Background(), l) }()
	if err := begun(); err != nil {
		return errors.Join(err, <-served, d.m.Drain(context.Background()))
	}
	d.tellReady()

	look := time.NewTicker(lookEvery)
	defer look.Stop()
	told := false          // a signal told it to stop
	var drained chan error // while draining
	for {
		select {
		case err := <-served:
			if err != nil {
				return err
			}
			d.say(d.notify.Stopping("finishing what runs"))
			d.log.Info("connection manager stops; what runs is finished")
			served, drained = nil, make(chan error, 1)
			go func() { drained <- d.m.Drain(context.Background()) }() // ends with Close at the latest
		case <-drained:
			return nil
		case <-look.C:
			d.follow()
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				d.reload("SIGHUP")
			case told || served == nil:
				d.log.Warn("connection manager stops at once", "signal", s)
				if served != nil {
					return <-served // it has been told to end
				}
				return nil
			default:
				told = true
				d.m.Stop()
			}
		}
	}
}

// tellReady tells the process that started the manager that it serves.
func (d *daemon) tellReady() {
	d.say(d.notify.Ready("serving"))
	d.say(tell([]byte{1}))
}

// maxLine bounds the line that the starting process is told, in bytes.
const maxLine = 1000

// tellFailed tells the process that started the manager why it does not serve: the exit status,
// a byte, and a line. It does nothing once the manager has served.
func tellFailed(code int, err error) {
	line := strings.Join(strings.Fields(err.Error()), " ")
	_ = tell(append([]byte{byte(code)}, line[:min(len(line), maxLine)]...)) // the log has it, too
}

// tell writes to the descriptor on which the starting process waits, if there is one, and closes it.
func tell(word []byte) error {
	text := os.Getenv("RDISTCC_READY_FD")
	if text == "" {
		return nil
	}
	_ = os.Unsetenv("RDISTCC_READY_FD")
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return fmt.Errorf("RDISTCC_READY_FD=%s is no descriptor", text)
	}
	f := os.NewFile(uintptr(fd), "ready")
	_, werr := f.Write(word)
	return errors.Join(werr, f.Close())
}

// say logs an error in notifying another program: nothing depends on that.
func (d *daemon) say(err error) {
	if err != nil {
		d.log.Warn("tell that the manager is ready", "err", err)
	}
}

// options returns the manager's options for the settings c.
func (d *daemon) options(c *config.Config) connmgr.Options {
	name, err := os.Hostname()
	if err != nil {
		name = fmt.Sprintf("uid %d", os.Getuid())
	}
	live, memory := d.live(c), machine.ReadMemory().Total
	eager := int64(c.Buffers.Eager)
	if eager == 0 {
		eager = -1
	}
	return connmgr.Options{
		Name:          name,
		Copies:        c.Cache.Replicas,
		NoBackFill:    !c.Cache.BackFill,
		Ahead:         int64(c.Cache.Ahead),
		BaseDir:       c.Cache.BaseDir,
		KeepHere:      map[string]connmgr.KeepHere{"auto": connmgr.KeepTold, "true": connmgr.KeepAll, "false": connmgr.KeepNone}[c.Cache.Here],
		Wait:          c.Waiting(),
		Slots:         c.Buffers.SlotsFor(memory),
		SlotSize:      int64(c.Buffers.Slot),
		SinkSize:      int64(c.Buffers.Sink),
		Source:        int64(c.Buffers.Source),
		Result:        int64(c.Buffers.Result),
		Large:         int64(c.Buffers.Large),
		Prefault:      int64(c.Buffers.Prefault),
		Eager:         eager,
		Carrier:       c.Manager.Carrier,
		Inputs:        c.Manager.InputsFor(memory),
		Preprocessors: live.Preprocessors,
		LocalJobs:     live.LocalJobs,
		LocalShare:    live.LocalShare,
		MaxWrappers:   c.Limits.Wrappers,
		NoFallback:    live.NoFallback,
		Plugins:       live.Plugins,
		Patience:      live.Patience,
		Fast:          live.Fast,
		Attempts:      live.Attempts,
		IOTimeout:     live.IOTimeout,
		DialTimeout:   c.Limits.ConnectTimeout,
		Heartbeat:     c.Limits.Heartbeat,
		HeartbeatDead: c.Limits.Silence,
		IdleExit:      live.IdleExit,
		LinksMin:      c.Links.Min,
		LinksMax:      c.Links.Max,
		LinksIdle:     c.Links.Idle,
		Backoff:       live.Backoff,
		BackoffMax:    live.BackoffMax,
		ConnectGrace:  live.ConnectGrace,
		Audit:         live.Audit,
	}
}

// idleExit returns after how long without work the manager ends. By default only a manager
// that a wrapper started does: nothing else would end it.
func idleExit(c *config.Config, byWrapper bool) time.Duration {
	if !byWrapper && c.Origin("manager.idle-exit") == "default" {
		return 0
	}
	return c.Manager.IdleExit
}
