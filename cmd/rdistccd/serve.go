package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/cgroup"
	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker"
	"github.com/rdistcc/rdistcc/pkg/worker/auditlog"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// closeTime bounds the work left at the end: a scrape.
const closeTime = time.Second

// drainGrace bounds the wait for managers to return their credits, or for jobs that they have
// already sent on those credits.
const drainGrace = 10 * time.Second

// daemon is a running rdistccd.
type daemon struct {
	load    func() (*config.Config, error)
	cfg     *config.Config
	log     *telemetry.Log
	notify  telemetry.Notifier
	id      *identity.Identity
	metrics *worker.Metrics
	dev     iwarp.Device
	w       *worker.Server
	audit   *auditlog.Log // nil: no audit log is kept
	streams *telemetry.Streams
	readers atomic.Pointer[[]string] // http.readers
	listen  []iwarp.Listener
	quiet   func() // ends the announcements; nil: there are none
	distcc  distccSide
}

// serve runs the daemon until a signal ends it. What can fail because of a wrong setting comes
// first, before anything is searched for or created.
func serve(load func() (*config.Config, error)) (err error) {
	d := &daemon{load: load, notify: telemetry.NewNotifier(os.Getenv("NOTIFY_SOCKET"))}
	if d.cfg, err = load(); err != nil {
		return err
	}
	if d.id, err = openIdentity(d.cfg); err != nil {
		return err
	}
	if err := checkListen(d.cfg, d.id.Mode()); err != nil {
		return err
	}
	if err := checkDistcc(d.cfg, d.id.Mode()); err != nil {
		return err
	}
	sockets, err := telemetry.Sockets(os.Getenv, os.Getpid())
	if err != nil {
		return err
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET"} {
		_ = os.Unsetenv(name) // not for the compilers that the daemon identifies
	}
	if d.log, err = telemetry.OpenLog(d.cfg.Log.File, d.cfg.Log.Level); err != nil {
		return err
	}
	defer d.log.Close()
	d.metrics = worker.NewMetrics()
	d.watchIdentity(d.metrics)
	if d.dev, err = openDevice(d.cfg, d.id, d.log.Logger); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.dev.Close()) }()
	if err := d.open(sockets); err != nil {
		return err
	}
	if err := d.openDistcc(); err != nil {
		return err
	}
	defer d.distcc.close()
	if file := d.cfg.Daemon.PIDFile; file != "" {
		if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			return fmt.Errorf("write pid file: %w", err)
		}
		if st, err := os.Lstat(file); err == nil && st.Mode().IsRegular() { // not a pipe, nor a link that somebody has put there
			defer os.Remove(file)
		}
	}
	if err := become(d.cfg.Daemon.User); err != nil {
		return err
	}
	if err := seclude(); err != nil {
		return err
	}
	return d.work()
}

// open makes the listeners, from systemd's sockets or from the settings.
func (d *daemon) open(sockets []telemetry.Socket) error {
	for _, s := range sockets {
		l, err := net.FileListener(s.File)
		s.File.Close()
		if err != nil {
			return fmt.Errorf("socket from systemd: %w", err)
		}
		if d.id.Mode() == identity.Open && !isLoopback(l.Addr()) {
			_ = l.Close() // it has not been used yet
			return usageError{exposed(l.Addr().String())}
		}
		if err := d.listenOn(l.Addr().String(), d.id.Wrap(l)); err != nil {
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
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			return fmt.Errorf("listen on %s: %w; this machine has other addresses: name one of them with --listen", addr, syscall.EADDRNOTAVAIL)
		}
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without the address
		}
		return fmt.Errorf("listen on %s: %w", addr, err)
	}
	d.listen = append(d.listen, l)
	if d.id.Mode() == identity.PSK && !isLoopback(l.Addr()) {
		d.log.Warn("listening beyond this machine with a shared key: anyone on the path can read and change what is sent; "+wireRemedy(d.cfg.Daemon.Provider), "addr", l.Addr().String())
	}
	return nil
}

// work starts the worker and serves until the signals say otherwise.
func (d *daemon) work() (err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	c := d.cfg
	jobs := c.Daemon.Jobs
	if jobs == 0 {
		if jobs = cgroup.Find("/proc").CPUs(runtime.NumCPU()); reaches(c) {
			jobs = clusterJobs
		}
	}
	base := c.Daemon.WorkDir
	if base == "" {
		base = workdir.DefaultBase(os.Getenv("TMPDIR"))
	}
	slot, prefault := slotSize(c)
	d.readers.Store(&c.HTTP.Readers)
	eager := int64(0)
	if slices.Contains(c.Daemon.Carriers, "eager") {
		eager = int64(c.Buffers.Eager)
	}
	metrics := d.metrics
	d.checkIdentity()
	// The pages are only served after the start, but an address that is taken ends it now.
	pages, err := listenHTTP(c.HTTP.Daemon)
	if err != nil {
		return err
	}
	if pages != nil {
		defer pages.Close()
	}
	if c.Log.Audit != "" {
		if d.audit, err = auditlog.Open(c.Log.Audit, d.log.Logger); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.audit.Close()) }()
	}
	starting, started := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	cluster, err := d.openCluster(starting)
	if err != nil {
		started()
		return err
	}
	if cluster != nil {
		defer func() { err = errors.Join(err, cluster.Close()) }()
	}
	// Compilers not yet known are identified while the daemon serves, and confinement is tested then as
	// well: connections are answered a moment after listen(2).
	d.w, err = worker.New(starting, worker.Options{
		Device: d.dev, Wait: c.Waiting(), Log: d.log.Logger, Audit: d.audit, Metrics: metrics, Jobs: jobs, Clients: c.Limits.Clients,
		Slot: slot, Slots: slotAccess[c.Daemon.SlotAccess], Prefault: prefault, WorkBase: base, Compilers: compilersFile(os.Getenv),
		Source: int64(c.Buffers.Source), Result: int64(c.Buffers.Result), Large: int64(c.Buffers.Large),
		Eager: eager, NoWrite: !slices.Contains(c.Daemon.Carriers, "write"), NoPull: !slices.Contains(c.Daemon.Carriers, "pull"),
		Heartbeat: c.Limits.Heartbeat, Silence: c.Limits.Silence, Grace: drainGrace, Tree: treeMode[c.Daemon.Tree],
		ClientRunning: c.Limits.ClientRunning, ClientQueued: c.Limits.ClientQueued, ClientBytes: int64(c.Limits.ClientBytes),
		Sandbox: sandboxMode[c.Sandbox], Users: compileUsers(c), JobMemory: int64(c.Limits.JobMemory), Processes: c.Limits.Processes,
		File: int64(c.Limits.File), Output: int64(c.Limits.Output), Cgroup: d.cgroup(),
		Memory: int64(c.Limits.Memory), DiskFloor: int64(c.Limits.DiskFloor), Settings: settings(c, d.id.Mode()),
		Store: storeOptions(c), NoStore: !c.Store.Use, Results: int64(c.Store.Results), ResultsDir: resultsDir(c), ResultsDisk: int64(c.Store.ResultsDisk),
		Groups: c.Groups(), Sign: d.id.SignResult, Learn: true,
		Accept: acceptMode[c.Toolchains.Accept], Received: receivedOptions(c),
		Key: d.id.Key, AuthFailed: d.id.Failed, AuthPassed: d.id.Passed, Program: build.Version, Stream: d.stream, Cluster: cluster,
	})
	if err == nil {
		defer d.w.Close()
	}
	told := context.Cause(starting)
	started()
	if told != nil { // any other error of New follows from the signal
		d.log.Info("ended before it served", "cause", told)
		return nil
	}
	if err != nil {
		return err
	}
	if err := d.checkConfined(); err != nil {
		return err
	}
	d.tellPod(os.Getenv)
	registry := telemetry.NewRegistry()
	shown := telemetry.ServerOptions{
		Listener: pages, Registry: registry, Ready: d.w.Ready, Note: d.note, Page: d.page, Live: d.shows(), Status: func() any { return d.w.Status() }, Pprof: c.HTTP.Pprof, Log: d.log.Logger,
		More: map[string]http.HandlerFunc{"GET /demand": telemetry.JSON(func() any { return d.w.Demand() })},
	}
	registry.MustRegister(telemetry.NewIWARPCollector(d.dev.Stats), telemetry.NewExpiryCollector("rdistccd", d.id.Expires),
		telemetry.NewBuildCollector("rdistccd", build.Version, build.Revision, job.Version))
	if err := metrics.Register(registry, d.w); err != nil {
		return err
	}
	if pages != nil {
		web, err := telemetry.Serve(shown)
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeTime)
			defer cancel()
			_ = web.Close(ctx) // a scrape that takes longer is cut off
		}()
	}
	d.streams = telemetry.NewStreams(shown, d.log, "http.readers of this host does not name you, so that you may not read this")
	defer d.streams.Close()
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
		d.log.Info("listening", "addr", l.Addr().String(), "jobs", jobs, "identity", d.id.Mode().String(), "version", build.Version, "config", c.Path())
	}
	if err := d.serveDistcc(registry); err != nil {
		return err
	}
	d.say(d.notify.Ready("serving"))
	return d.run(signals)
}

// stream serves the pages on a stream. A peer on this machine may read what it could read from the pages' own address.
func (d *daemon) stream(c net.Conn, peer worker.StreamPeer) {
	reader := telemetry.ReadMetrics
	readers := *d.readers.Load()
	switch {
	case slices.Contains(readers, "*"), peer.Name != "" && slices.Contains(readers, peer.Name):
		reader = telemetry.ReadAll
	case peer.Local && d.cfg.HTTP.Daemon != "":
		reader = telemetry.ReadPages
	}
	d.streams.Take(c, reader)
}

// note returns what /readyz adds to its answer.
func (d *daemon) note() string {
	if st := d.w.Status(); st.Identifying {
		return fmt.Sprintf("compilers are being identified, %d are known", st.Toolchains)
	}
	return ""
}

// listenHTTP listens on the address of the pages; it returns nil if there are to be none.
func listenHTTP(addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := telemetry.Listen(addr, false)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("serve metrics on %s: %w; choose another port with --http, or none with --http \"\"", addr, syscall.EADDRINUSE)
	}
	return l, err
}

// checkConfined guards this host against jobs from the network: without a sandbox they are refused
// unless the settings explicitly allow that.
func (d *daemon) checkConfined() error {
	st := d.w.Status().Sandbox
	if st.Measures.Level() != sandbox.Off {
		return nil
	}
	var all []net.Addr
	for _, l := range d.listen {
		all = append(all, l.Addr())
	}
	for _, l := range d.distcc.listen {
		all = append(all, l.Addr())
	}
	for _, a := range all {
		if isLoopback(a) {
			continue
		}
		if st.Mode != worker.SandboxOff {
			return fmt.Errorf("listen on %s: compiles cannot be confined here, and anyone who may send jobs could do what this user can (the log says what is missing); listen on 127.0.0.1, or accept it with --sandbox off", a)
		}
		d.log.Warn("COMPILES ARE NOT CONFINED, as set, and jobs are taken from beyond this machine: anyone who may send jobs can do here what this process's user can; --sandbox auto confines them", "addr", a.String())
	}
	return nil
}

// tellPod says in a pod of Kubernetes what makes private trees possible there: the log's line about them knows only what the kernel refused.
func (d *daemon) tellPod(getenv func(string) string) {
	if getenv("KUBERNETES_SERVICE_HOST") == "" || d.cfg.Daemon.Tree == "off" || d.w.Status().Tree {
		return
	}
	d.log.Warn("this pod has no private trees, so it compiles preprocessed text only and can be sent no compilers: set the chart's value confinement to userns or seccomp (docs/kubernetes.md, Confinement)")
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
				d.distcc.drain()
				drained = make(chan error, 1)
				go func() { drained <- d.w.Drain(ctx) }()
			}
		}
	}
}

// say logs an error in notifying systemd: nothing depends on that.
func (d *daemon) say(err error) {
	if err != nil {
		d.log.Warn("notify systemd", "err", err)
	}
}

// reload reads the settings again. Those fixed at the start stay as they are and are named.
func (d *daemon) reload() {
	d.say(d.notify.Reloading())
	defer func() { d.say(d.notify.Ready("serving")) }()
	if err := errors.Join(d.log.Reopen(), d.audit.Reopen()); err != nil {
		d.log.Error("reload", "err", err)
	}
	c, err := d.load()
	if err == nil {
		err = errors.Join(checkListen(c, d.id.Mode()), checkDistcc(c, d.id.Mode()))
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
	if err := d.id.Reload(); err != nil {
		d.log.Error("reload: certificates and keys stay as they are", "err", err)
	}
	d.readers.Store(&c.HTTP.Readers)
	d.w.Apply(settings(c, d.id.Mode()))
	d.w.Look()
	d.log.Info("settings are in force", "config", c.Path())
}
