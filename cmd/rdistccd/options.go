package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/pkg/worker"
	"github.com/rdistcc/rdistcc/pkg/worker/received"
)

// treeMode maps the values of the setting daemon.tree.
var treeMode = map[string]worker.TreeMode{"auto": worker.TreeAuto, "off": worker.TreeOff, "require": worker.TreeRequire, "answered": worker.TreeAnswered}

var slotAccess = map[string]worker.SlotAccess{"auto": worker.SlotsAuto, "anew": worker.SlotsAnew, "kept": worker.SlotsKept}

// settings returns the settings that a reload can change.
func settings(c *config.Config, mode identity.Mode) worker.Settings {
	return worker.Settings{Allow: networks(c, mode), Nice: c.Daemon.Nice, JobTimeout: c.Daemon.JobTimeout, Dirs: c.Toolchains.Dirs}
}

// sandboxMode maps the values of the setting sandbox.
var sandboxMode = map[string]worker.SandboxMode{"auto": worker.SandboxAuto, "strict": worker.SandboxStrict, "off": worker.SandboxOff}

// compileUsers returns the first user ID that compiles run as. A daemon that was to become
// another user has given up the right to run compiles as others.
func compileUsers(c *config.Config) int {
	if c.Daemon.User != "" || os.Geteuid() != 0 {
		return 0
	}
	return c.Daemon.CompileUsers
}

// cgroup returns where control groups can be made for compiles; empty: compiles run without.
func (d *daemon) cgroup() string {
	if d.cfg.Sandbox == "off" {
		return ""
	}
	dir, err := sandbox.Delegated()
	if err != nil {
		d.log.Debug("control groups", "err", err)
		return ""
	}
	return dir
}

// compilersFile returns the file that remembers the compilers found, as looking at all of them
// takes seconds. It is in systemd's cache directory for the service, else in the state
// directory, else in the user's cache; empty if there is none of these.
func compilersFile(getenv func(string) string) string {
	dir := cacheDir(getenv)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "rdistccd.compilers")
}

// cacheDir returns that directory, or empty if there is none.
func cacheDir(getenv func(string) string) string {
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
	return dir
}

// storeOptions returns the options of the store that keeps clients' contents.
func storeOptions(c *config.Config) store.Options {
	o := store.Options{Memory: int64(c.Store.Memory), Disk: int64(c.Store.Disk), Dir: c.Store.Dir, Keep: c.Store.Keep}
	if dir := cacheDir(os.Getenv); o.Disk > 0 && o.Dir == "" && dir != "" {
		o.Dir = filepath.Join(dir, "store")
	}
	return o
}

// resultsDir returns the directory of results that clients can read, or empty if there is none.
func resultsDir(c *config.Config) string {
	if c.Store.ResultsDir != "" || c.Store.ResultsDisk == 0 {
		return c.Store.ResultsDir
	}
	if dir := cacheDir(os.Getenv); dir != "" {
		return filepath.Join(dir, "results")
	}
	return ""
}

// acceptMode maps the values of the setting toolchains.accept.
var acceptMode = map[string]worker.AcceptMode{"none": worker.AcceptNone, "named": worker.AcceptNamed, "all": worker.AcceptAll}

// receivedOptions returns the options of the store of toolchains that clients send.
func receivedOptions(c *config.Config) received.Options {
	o := received.Options{Quota: int64(c.Toolchains.Size), Dir: c.Toolchains.Dir}
	if dir := cacheDir(os.Getenv); o.Dir == "" && dir != "" {
		o.Dir = filepath.Join(dir, "toolchains")
	}
	return o
}

// fixed names the settings that differ and cannot change while the daemon runs.
func fixed(a, b *config.Config) []string {
	var names []string
	for _, s := range []struct {
		name string
		same bool
	}{
		{"auth", a.Auth == b.Auth},
		{"daemon.listen", slices.Equal(a.Daemon.Listen, b.Daemon.Listen)},
		{"discovery.mdns", a.Discovery.MDNS == b.Discovery.MDNS},
		{"discovery.interfaces", slices.Equal(a.Discovery.Interfaces, b.Discovery.Interfaces)},
		{"daemon.provider", a.Daemon.Provider == b.Daemon.Provider},
		{"wait", a.Wait == b.Wait},
		{"daemon.slot-access", a.Daemon.SlotAccess == b.Daemon.SlotAccess},
		{"daemon.carriers", slices.Equal(a.Daemon.Carriers, b.Daemon.Carriers)},
		{"daemon.jobs", a.Daemon.Jobs == b.Daemon.Jobs},
		{"daemon.user", a.Daemon.User == b.Daemon.User},
		{"daemon.work-dir", a.Daemon.WorkDir == b.Daemon.WorkDir},
		{"daemon.pid-file", a.Daemon.PIDFile == b.Daemon.PIDFile},
		{"daemon.tree", a.Daemon.Tree == b.Daemon.Tree},
		{"daemon.compile-users", a.Daemon.CompileUsers == b.Daemon.CompileUsers},
		{"sandbox", a.Sandbox == b.Sandbox},
		{"http.daemon", a.HTTP.Daemon == b.HTTP.Daemon},
		{"buffers", a.Buffers == b.Buffers},
		{"store", reflect.DeepEqual(a.Store, b.Store)},
		{"limits", a.Limits == b.Limits},
		{"toolchains.accept", a.Toolchains.Accept == b.Toolchains.Accept},
		{"toolchains.dir", a.Toolchains.Dir == b.Toolchains.Dir},
		{"toolchains.size", a.Toolchains.Size == b.Toolchains.Size},
		{"distcc", reflect.DeepEqual(a.Distcc, b.Distcc)},
		{"cluster", reflect.DeepEqual(a.Cluster, b.Cluster)},
		{"log.file", a.Log.File == b.Log.File},
		{"log.audit", a.Log.Audit == b.Log.Audit},
		{"daemon.capture", a.Daemon.Capture == b.Daemon.Capture},
		{"log.capture-limit", a.Log.CaptureLimit == b.Log.CaptureLimit},
	} {
		if !s.same {
			names = append(names, s.name)
		}
	}
	return names
}
