package main

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/textfile"
	"github.com/rdistcc/rdistcc/pkg/connmgr"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// taken lists the settings that a reload can change. All others of the manager are fixed
// when it starts.
var taken = []string{
	"hosts", "local.slots", "local.share", "local.preprocess", "fallback.allow", "fallback.attempts", "fallback.patience", "diagnostics",
	"limits.io-timeout", "log.level", "scheduler.backoff", "scheduler.backoff-max", "scheduler.audit", "scheduler.connect-grace",
	"manager.idle-exit",
}

// daemons lists rdistccd's settings and prefixes of them: the manager ignores them.
var daemons = []string{
	"daemon.", "store.", "toolchains.accept", "toolchains.dir", "toolchains.size", "sandbox", "http.daemon", "http.readers", "log.audit", "discovery.mdns", "limits.clients", "limits.client-",
	"limits.memory", "limits.disk-floor", "limits.job-memory", "limits.processes", "limits.file", "limits.output",
}

func ofDaemons(key string) bool {
	return slices.ContainsFunc(daemons, func(d string) bool { return strings.HasPrefix(key, d) })
}

// configState holds the settings in force and the outcome of the last look at the file.
// reload replaces it.
type configState struct {
	report.Configuration
	settings []config.Setting
}

// state returns the settings in force.
func (d *daemon) state() *configState { return d.current.Load() }

// publish shows the settings in force and the outcome of the last look for newer ones.
func (d *daemon) publish(bad error, restart []string) {
	s := &configState{settings: d.cfg.Settings()}
	s.File, s.Restart = d.cfg.Path(), restart
	if bad != nil {
		s.Error = bad.Error()
	}
	d.current.Store(s)
}

// reload reads the configuration again and what it names: key files, the log. It applies all
// of it or nothing; settings that need a restart are left alone and named. why is for the log.
func (d *daemon) reload(why string) report.Reloaded {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	d.say(d.notify.Reloading())
	defer func() { d.say(d.notify.Ready("serving")) }()
	d.seen = d.lookAtConfig() // before reading: a later change then counts as another one
	next, err := d.load()
	if err == nil {
		err = d.id.Reload()
	}
	if err != nil {
		d.log.Error("reload: settings stay as they are", "why", why, "err", err)
		d.publish(err, d.state().Restart)
		return report.Reloaded{Configuration: d.state().Configuration}
	}
	var changed, restart []string
	for _, key := range next.Differing(d.cfg) {
		switch {
		case ofDaemons(key):
		case slices.Contains(taken, key):
			changed = append(changed, key)
		default:
			restart = append(restart, key)
			d.log.Warn("reload: takes a restart", "setting", key, "where", next.Origin(key))
		}
	}
	next.Keep(d.cfg, restart...)
	if err := errors.Join(d.log.SetLevel(next.Log.Level), d.log.Reopen()); err != nil {
		d.log.Error("reload: the log stays as it is", "err", err)
	}
	d.hosts.configure(next)
	d.m.Apply(d.live(next))
	d.cfg = next
	d.publish(nil, restart)
	d.log.Info("reloaded", "why", why, "config", next.Path(), "changed", strings.Join(changed, " "))
	r := report.Reloaded{Configuration: d.state().Configuration, Changed: changed}
	list := d.hosts.get()
	r.ListFrom = list.Where
	switch {
	case list.Err != nil:
		r.ListError = list.Err.Error()
	case list.Stale != nil:
		r.ListError, r.ListKept = list.Stale.Error(), true
	}
	return r
}

// configLook holds what changes of the configuration are noticed by.
type configLook struct {
	path  string
	stamp textfile.Stamp
}

// lookAtConfig finds which file is the configuration now, and the stamp by which a change of
// it is noticed.
func (d *daemon) lookAtConfig() configLook {
	path := d.configFile
	if path == "" {
		path, _ = config.Locate(os.Getenv)
	}
	return configLook{path, textfile.Look(path)}
}

// follow reloads if the configuration has been edited since it was last read.
func (d *daemon) follow() {
	same := func(a, b configLook) bool { return a == b }
	d.reloading.Lock()
	seen := d.seen
	d.reloading.Unlock()
	if same(seen, d.lookAtConfig()) || same(seen, textfile.Settled(d.lookAtConfig, same)) {
		return
	}
	d.reload("the file has changed")
}

// live returns, for connmgr, the settings that a running manager can change.
func (d *daemon) live(c *config.Config) connmgr.Live {
	return connmgr.Live{
		NoFallback:    !c.Fallback.Allow,
		Plugins:       c.Toolchains.Plugins,
		Fast:          c.Diagnostics == "fast",
		LocalShare:    c.Local.Share,
		Preprocessors: c.Local.Preprocess,
		LocalJobs:     c.Local.Slots,
		Attempts:      c.Fallback.Attempts,
		Patience:      c.Fallback.Patience,
		Audit:         c.Scheduler.Audit,
		IOTimeout:     c.Limits.IOTimeout,
		IdleExit:      idleExit(c, d.byWrapper),
		Backoff:       c.Scheduler.Backoff,
		BackoffMax:    c.Scheduler.BackoffMax,
		ConnectGrace:  c.Scheduler.ConnectGrace,
	}
}
