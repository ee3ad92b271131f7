package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/config"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/telemetry"
	"github.com/rdistcc/rdistcc/pkg/worker"
)

// closeTime bounds what is left to do at the end: a scrape.
const closeTime = time.Second

// drainGrace bounds the wait for managers to give their credits back, or for the jobs
// that they have sent on them to come.
const drainGrace = 10 * time.Second

// daemon is a running rdistccd.
type daemon struct {
	load   func() (*config.Config, error)
	cfg    *config.Config
	log    *telemetry.Log
	notify telemetry.Notifier
	dev    iwarp.Device
	w      *worker.Server
	listen []iwarp.Listener
	quiet  func() // ends the announcements; nil = there are none
}

// serve runs the daemon until a signal ends it. What can fail for a wrong setting
// comes first, before anything is looked for or made.
func serve(load func() (*config.Config, error)) (err error) {
	d := &daemon{load: load, notify: telemetry.NewNotifier(os.Getenv("NOTIFY_SOCKET"))}
	if d.cfg, err = load(); err != nil {
		return err
	}
	if err := checkListen(d.cfg); err != nil {
		return err
	}
	sockets, err := telemetry.Sockets(os.Getenv, os.Getpid())
	if err != nil {
		return err
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET"} {
		_ = os.Unsetenv(name) // not for the compilers that are asked what they are
	}
	if d.log, err = telemetry.OpenLog(d.cfg.Log.File, d.cfg.Log.Level); err != nil {
		return err
	}
	defer d.log.Close()
	if d.dev, err = openDevice(d.cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.dev.Close()) }()
	if err := d.open(sockets); err != nil {
		return err
	}
	if file := d.cfg.Daemon.PIDFile; file != "" {
		if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			return fmt.Errorf("write pid file: %w", err)
		}
		defer os.Remove(file)
	}
	if err := become(d.cfg.Daemon.User, d.log.Logger); err != nil {
		return err
	}
	// No core dumps of compilers in the work directory.
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	return d.work()
}

// checkListen refuses to be open to the network for everybody.
func checkListen(c *config.Config) error {
	if len(c.Daemon.Allow) > 0 {
		return nil
	}
	for _, addr := range c.Daemon.Listen {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return usageError{fmt.Errorf("listen on %s: %w", addr, err)}
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return usageError{fmt.Errorf("listen on %s: anybody who reaches it could run compilers here; add --allow NETWORK (say 10.0.0.0/8), or listen on 127.0.0.1:%s", addr, port)}
		}
	}
	return nil
}

// open makes the listeners: of the sockets that systemd gave, or of the settings.
func (d *daemon) open(sockets []telemetry.Socket) error {
	for _, s := range sockets {
		l, err := net.FileListener(s.File)
		s.File.Close()
		if err != nil {
			return fmt.Errorf("socket from systemd: %w", err)
		}
		if err := d.listenOn(l.Addr().String(), l); err != nil {
			return err
		}
	}
	if len(sockets) > 0 {
		return nil
	}
	for _, addr := range d.cfg.Daemon.Listen {
		if err := d.listenOn(addr, nil); err != nil {
			return err
		}
	}
	return nil
}

func (d *daemon) listenOn(addr string, given net.Listener) error {
	l, err := d.dev.Listen(context.Background(), addr, &iwarp.ListenOptions{Listener: given})
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("listen on %s: %w; stop what uses it, or choose another port with --listen", addr, syscall.EADDRINUSE)
		}
		return fmt.Errorf("listen on %s: %w", addr, err)
	}
	d.listen = append(d.listen, l)
	if ap, ok := l.Addr().(*net.TCPAddr); !ok || !ap.IP.IsLoopback() {
		d.log.Warn("listening beyond this machine without encryption: only for networks whose every member may run compilers here", "addr", l.Addr().String(), "allow", d.cfg.Daemon.Allow)
	}
	return nil
}

// compilersFile is where it is remembered which compilers there are, as a look at
// all of them takes seconds: in the directory that systemd gives us, else in the state
// directory, else in the user's cache. Empty if there is none.
func compilersFile(getenv func(string) string) string {
	dir, _, _ := strings.Cut(getenv("CACHE_DIRECTORY"), ":")
	if dir == "" {
		dir = getenv("RDISTCC_DIR")
	}
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(base, "rdistccd")
	}
	if os.MkdirAll(dir, 0o700) != nil {
		return ""
	}
	return filepath.Join(dir, "rdistccd.compilers")
}

// work starts the worker and serves until the signals say otherwise.
func (d *daemon) work() (err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	c := d.cfg
	jobs := c.Daemon.Jobs
	if jobs == 0 {
		jobs = runtime.NumCPU()
	}
	base := c.Daemon.WorkDir
	if base == "" {
		base = worker.DefaultBase(os.Getenv("TMPDIR"))
	}
	slot, prefault := slotSize(c)
	metrics := worker.NewMetrics()
	d.w, err = worker.New(context.Background(), worker.Options{
		Device: d.dev, Log: d.log.Logger, Metrics: metrics, Jobs: jobs, Clients: c.Limits.Clients,
		Slot: slot, Prefault: prefault, WorkBase: base, Compilers: compilersFile(os.Getenv),
		Source: int64(c.Buffers.Source), Result: int64(c.Buffers.Result), Large: int64(c.Buffers.Large),
		Heartbeat: c.Limits.Heartbeat, Silence: c.Limits.Silence, Grace: drainGrace, Tree: treeMode[c.Daemon.Tree],
		Memory: int64(c.Limits.Memory), DiskFloor: int64(c.Limits.DiskFloor), Settings: settings(c),
	})
	if err != nil {
		return err
	}
	defer d.w.Close()
	registry := telemetry.NewRegistry()
	registry.MustRegister(telemetry.NewIWARPCollector(d.dev.Stats))
	if err := metrics.Register(registry, d.w); err != nil {
		return err
	}
	if c.HTTP.Daemon != "" {
		web, err := telemetry.Serve(telemetry.ServerOptions{
			Addr: c.HTTP.Daemon, Registry: registry, Ready: d.w.Ready, Page: d.page, Pprof: c.HTTP.Pprof, Log: d.log.Logger,
		})
		if err != nil {
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("serve metrics on %s: %w; choose another port with --http, or none with --http \"\"", c.HTTP.Daemon, syscall.EADDRINUSE)
			}
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeTime)
			defer cancel()
			_ = web.Close(ctx) // a scrape that takes longer is cut off
		}()
	}
	announcer, err := d.announce()
	if err != nil {
		return err
	}
	if announcer != nil {
		defer announcer.Close()
		d.quiet = announcer.Close
	}
	for _, l := range d.listen {
		d.w.Serve(l)
		d.log.Info("listening", "addr", l.Addr().String(), "jobs", jobs, "version", version, "config", c.Path())
	}
	d.say(d.notify.Ready("serving"))
	return d.run(signals)
}

// treeMode is what the setting daemon.tree stands for.
var treeMode = map[string]worker.TreeMode{"auto": worker.TreeAuto, "off": worker.TreeOff, "require": worker.TreeRequire}

// settings are those that a reload changes.
func settings(c *config.Config) worker.Settings {
	return worker.Settings{Allow: c.Networks(), Nice: c.Daemon.Nice, JobTimeout: c.Daemon.JobTimeout, Dirs: c.Toolchains.Dirs}
}

// run waits for signals, drains, and returns when all is done.
func (d *daemon) run(signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var drained chan error // while draining
	for {
		select {
		case <-drained:
			return nil
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				d.reload()
			case drained != nil:
				d.log.Warn("ending at once: what runs is lost", "signal", s.String())
				cancel()
				<-drained
				return nil
			default:
				d.log.Info("draining: what runs is finished", "signal", s.String())
				d.say(d.notify.Stopping("finishing what runs"))
				if d.quiet != nil {
					d.quiet()
				}
				drained = make(chan error, 1)
				go func() { drained <- d.w.Drain(ctx) }()
			}
		}
	}
}

// say logs what went wrong in telling systemd: nothing depends on it.
func (d *daemon) say(err error) {
	if err != nil {
		d.log.Warn("notify systemd", "err", err)
	}
}

// reload reads the settings again. What is fixed at the start stays, and is named.
func (d *daemon) reload() {
	d.say(d.notify.Reloading())
	defer func() { d.say(d.notify.Ready("serving")) }()
	if err := d.log.Reopen(); err != nil {
		d.log.Error("reload", "err", err)
	}
	c, err := d.load()
	if err == nil {
		err = checkListen(c)
	}
	if err != nil {
		d.log.Error("reload: settings stay as they are", "err", err)
		return
	}
	if err := d.log.SetLevel(c.Log.Level); err != nil {
		d.log.Error("reload", "err", err)
	}
	for _, f := range fixed(d.cfg, c) {
		d.log.Warn("reload: takes a restart", "setting", f)
	}
	d.w.Apply(settings(c))
	if err := d.w.Rescan(context.Background()); err != nil {
		d.log.Error("reload", "err", err)
	}
	d.log.Info("settings are in force", "config", c.Path())
}

// fixed names the settings that differ and cannot change while the daemon runs.
func fixed(a, b *config.Config) []string {
	var names []string
	for _, s := range []struct {
		name string
		same bool
	}{
		{"daemon.listen", slices.Equal(a.Daemon.Listen, b.Daemon.Listen)},
		{"discovery.mdns", a.Discovery.MDNS == b.Discovery.MDNS},
		{"discovery.interfaces", slices.Equal(a.Discovery.Interfaces, b.Discovery.Interfaces)},
		{"daemon.provider", a.Daemon.Provider == b.Daemon.Provider},
		{"daemon.jobs", a.Daemon.Jobs == b.Daemon.Jobs},
		{"daemon.user", a.Daemon.User == b.Daemon.User},
		{"daemon.work-dir", a.Daemon.WorkDir == b.Daemon.WorkDir},
		{"daemon.pid-file", a.Daemon.PIDFile == b.Daemon.PIDFile},
		{"daemon.tree", a.Daemon.Tree == b.Daemon.Tree},
		{"http.daemon", a.HTTP.Daemon == b.HTTP.Daemon},
		{"buffers", a.Buffers == b.Buffers},
		{"limits", a.Limits == b.Limits},
		{"log.file", a.Log.File == b.Log.File},
	} {
		if !s.same {
			names = append(names, s.name)
		}
	}
	return names
}
