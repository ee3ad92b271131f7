package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Validate checks each value, and values against each other. Its errors name the key and what set it.
func (c *Config) Validate() error {
	if err := c.checkHosts(); err != nil {
		return err
	}
	checks := []check{
		{"discovery.interval", within(c.Discovery.Interval, time.Second, time.Hour)},
		{"discovery.timeout", within(c.Discovery.Timeout, 10*time.Millisecond, time.Minute)},
		{"local.slots", between(c.Local.Slots, 0, 10000)},
		{"local.preprocess", between(c.Local.Preprocess, 0, 10000)},
		{"fallback.attempts", between(c.Fallback.Attempts, 1, 16)},
		{"fallback.patience", within(c.Fallback.Patience, time.Millisecond, time.Hour)},
		{"diagnostics", oneOf(c.Diagnostics, "exact", "fast")},
		{"wait", waiting(c.Wait)},
		{"limits.io-timeout", within(c.Limits.IOTimeout, time.Second, 24*time.Hour)},
		{"limits.connect-timeout", within(c.Limits.ConnectTimeout, 10*time.Millisecond, time.Minute)},
		{"limits.heartbeat", within(c.Limits.Heartbeat, 10*time.Millisecond, time.Hour)},
		{"limits.silence", within(c.Limits.Silence, 2*c.Limits.Heartbeat, 24*time.Hour)},
		{"limits.wrappers", between(c.Limits.Wrappers, 1, 65536)},
		{"limits.clients", between(c.Limits.Clients, 1, 65536)},
		{"limits.memory", memoryLimit(c.Limits.Memory)},
		{"sandbox", oneOf(c.Sandbox, "auto", "strict", "off")},
		{"limits.job-memory", memoryLimit(c.Limits.JobMemory)},
		{"limits.processes", between(c.Limits.Processes, 8, 65536)},
		{"limits.file", sized(c.Limits.File, MiB, 1024*GiB)},
		{"limits.output", sized(c.Limits.Output, 4*KiB, 64*MiB)},
		{"limits.client-running", between(c.Limits.ClientRunning, 0, 10000)},
		{"limits.client-queued", between(c.Limits.ClientQueued, 1, 65536)},
		{"limits.client-bytes", sized(c.Limits.ClientBytes, 0, 1024*GiB)},
		{"limits.disk-floor", sized(c.Limits.DiskFloor, 0, 1024*GiB)},
		{"toolchains.dirs", absolute(c.Toolchains.Dirs...)},
		{"toolchains.accept", oneOf(c.Toolchains.Accept, "none", "named", "all")},
		{"toolchains.dir", absoluteOrEmpty(c.Toolchains.Dir)},
		{"toolchains.plugins", plugins(c.Toolchains.Plugins)},
		{"toolchains.size", sized(c.Toolchains.Size, 0, 1024*GiB)},
		{"http.manager", httpAddr(c.HTTP.Manager)},
		{"http.daemon", httpAddr(c.HTTP.Daemon)},
		{"log.level", oneOf(c.Log.Level, "debug", "info", "warn", "error")},
		{"daemon.capture", capture(c.Daemon.Capture, c.Daemon.Provider)},
		{"manager.capture", absoluteOrEmpty(c.Manager.Capture)},
		{"log.capture-limit", sized(c.Log.CaptureLimit, MiB, 1024*GiB)},
		{"scheduler.backoff", within(c.Scheduler.Backoff, 10*time.Millisecond, time.Hour)},
		{"scheduler.backoff-max", within(c.Scheduler.BackoffMax, c.Scheduler.Backoff, 24*time.Hour)},
		{"scheduler.audit", part(c.Scheduler.Audit)},
		{"scheduler.connect-grace", within(c.Scheduler.ConnectGrace, 0, time.Minute)},
		{"links.min", between(c.Links.Min, 1, 16)},
		{"links.max", between(c.Links.Max, c.Links.Min, 16)},
		{"links.idle", within(c.Links.Idle, time.Second, 24*time.Hour)},
		{"buffers.slot", sized(c.Buffers.Slot, 64*KiB, 2*GiB)},
		{"buffers.sink", sized(c.Buffers.Sink, 64*KiB, 2*GiB)},
		{"buffers.source", sized(c.Buffers.Source, 64*KiB, 4*GiB)},
		{"buffers.result", sized(c.Buffers.Result, 64*KiB, 4*GiB)},
		{"buffers.large", sized(c.Buffers.Large, 0, 1024*GiB)},
		{"buffers.prefault", sized(c.Buffers.Prefault, 0, min(c.Buffers.Slot, c.Buffers.Sink))},
		{"buffers.slots", between(c.Buffers.Slots, 0, 4096)},
		{"cache.dir", absoluteOrEmpty(c.Cache.Dir)},
		{"cache.base-dir", absoluteOrEmpty(c.Cache.BaseDir)},
		{"cache.replicas", between(c.Cache.Replicas, 1, 8)},
		{"cache.size", sized(c.Cache.Size, 0, 1<<20*GiB)},
		{"cache.ahead", sized(c.Cache.Ahead, 0, 4*GiB)},
		{"cache.helpers", helpers(c.Cache.Helpers)},
		{"cache.tiers", chained(&c.Cache)},
		{"cache.trust", c.trusted()},
		{"buffers.eager", sized(c.Buffers.Eager, 0, MiB)},
		{"store.memory", storeMemory(c.Store.Memory)},
		{"store.disk", sized(c.Store.Disk, 0, 64*1024*GiB)},
		{"store.dir", absoluteOrEmpty(c.Store.Dir)},
		{"store.results", results(c.Store.Results)},
		{"store.results-disk", resultsDisk(c.Store.ResultsDisk)},
		{"store.results-dir", absoluteOrEmpty(c.Store.ResultsDir)},
		{"store.groups", c.checkGroups()},
		{"store.keep", within(c.Store.Keep, 0, 365*24*time.Hour)},
		{"auth.psk-file", oneMethod(&c.Auth)},
		// It is unclear what a relative one would be relative to: a manager is started from anywhere.
		{"auth.psk-file", absoluteOrEmpty(c.Auth.PSKFile)},
		{"auth.tls.cert", absoluteOrEmpty(c.Auth.TLS.Cert)},
		{"auth.tls.key", absoluteOrEmpty(c.Auth.TLS.Key)},
		{"auth.tls.ca", absoluteOrEmpty(c.Auth.TLS.CA)},
		{"auth.tls.cert", allOrNone(&c.Auth.TLS, c.Auth.TLS.Cert)},
		{"auth.tls.key", allOrNone(&c.Auth.TLS, c.Auth.TLS.Key)},
		{"auth.tls.ca", allOrNone(&c.Auth.TLS, c.Auth.TLS.CA)},
		{"daemon.listen", listen(c.Daemon.Listen)},
		{"daemon.provider", provider(c.Daemon.Provider)},
		{"daemon.slot-access", oneOf(c.Daemon.SlotAccess, "auto", "anew", "kept")},
		{"cache.here", oneOf(c.Cache.Here, "auto", "true", "false")},
		{"manager.carrier", oneOf(c.Manager.Carrier, "auto", "write", "eager", "pull")},
		{"manager.inputs", sized0(c.Manager.Inputs, 16*MiB, 1024*GiB)},
		{"daemon.carriers", carriers(c.Daemon.Carriers)},
		{"daemon.jobs", between(c.Daemon.Jobs, 0, 10000)},
		{"daemon.nice", between(c.Daemon.Nice, 0, 19)},
		{"daemon.allow", networks(c.Daemon.Allow)},
		{"daemon.work-dir", absoluteOrEmpty(c.Daemon.WorkDir)},
		{"daemon.tree", oneOf(c.Daemon.Tree, "auto", "require", "answered", "off")},
		{"daemon.compile-users", between(c.Daemon.CompileUsers, 0, 1<<31-1<<16)},
		{"distcc.listen", eachAddr(c.Distcc.Listen)},
		{"distcc.allow", networks(c.Distcc.Allow)},
		{"daemon.job-timeout", within(c.Daemon.JobTimeout, time.Second, 24*time.Hour)},
	}
	checks = append(checks, slices.Concat(c.Cache.Redis.checks(), c.Cache.S3.checks(), c.Cache.REAPI.checks(), c.Cluster.checks(&c.Distcc))...)
	for _, ch := range checks {
		if ch.err == nil {
			continue
		}
		where := c.origins[ch.key]
		if where == "" {
			where = "defaults" // it is wrong only together with another value
		}
		return &Error{where, ch.key + ": " + ch.err.Error()}
	}
	return nil
}

// Absolute returns the value that a flag's value stands for: files of an identity, and captures, are relative to the
// directory in which the program was started, wherever it is when it reads them.
func Absolute(key, value string) string {
	if !strings.HasPrefix(key, "auth.") && !strings.HasSuffix(key, ".capture") || value == "" {
		return value
	}
	if abs, err := filepath.Abs(value); err == nil {
		return abs
	}
	return value
}

// capture takes an absolute path, and only where the stack is ours: what a device sends does not pass the program.
func capture(path, provider string) error {
	if path != "" && provider != "soft" {
		return fmt.Errorf("connections of provider %s cannot be captured: use tcpdump, or daemon.provider soft", provider)
	}
	return absoluteOrEmpty(path)
}

func oneMethod(a *Auth) error {
	if a.PSKFile != "" && a.TLS != (TLS{}) {
		return fmt.Errorf("auth.tls is set too: choose one of the two, the same on all hosts")
	}
	return nil
}

// plugins takes names as -fplugin= does, without directory and suffix.
func plugins(names []string) error {
	for _, n := range names {
		if n == "" || strings.ContainsAny(n, "/. \t\n") {
			return fmt.Errorf("%q is not the name of a plugin: leave out its directory and .so, as in annobin", n)
		}
	}
	return nil
}

// allOrNone blames the one of the three that is not set.
func allOrNone(t *TLS, file string) error {
	if *t != (TLS{}) && file == "" {
		return fmt.Errorf("not set: TLS takes all three of cert, key and ca")
	}
	return nil
}

func part(v float64) error {
	if v >= 0 && v <= 1 { // NaN is neither
		return nil
	}
	return fmt.Errorf("%v is not between 0 and 1", v)
}

// memoryLimit checks a limit: below 64 MiB a compiler does not even start.
func memoryLimit(s Size) error {
	if s == 0 {
		return nil
	}
	return sized(s, 64*MiB, 1024*GiB)
}

// results checks a size: a tenant has at least 4 MiB.
func results(s Size) error {
	if s == 0 {
		return nil
	}
	return sized(s, 4*MiB, 32*GiB)
}

// resultsDisk checks the same for files, whose entries are counted in units of 64 bytes by 32 bits.
func resultsDisk(s Size) error {
	if s == 0 {
		return nil
	}
	return sized(s, 4*MiB, 64*GiB)
}

// storeMemory checks a size: with less than 16 MiB not even one compile's headers would stay.
func storeMemory(s Size) error { return sized0(s, 16*MiB, 1024*GiB) }

// sized0 is sized for a size that may also be 0.
func sized0(s, least, most Size) error {
	if s == 0 {
		return nil
	}
	return sized(s, least, most)
}

// checkHosts names the line of the entry that cannot be used.
func (c *Config) checkHosts() error {
	bad := func(where string, err error) error {
		var e *hostlist.Error
		if !errors.As(err, &e) {
			return &Error{where, "hosts: " + err.Error()}
		}
		problem := e.Problem
		if e.Entry != "" {
			problem = fmt.Sprintf("%q: %s", e.Entry, problem)
		}
		if e.Remedy != "" {
			problem += "; " + e.Remedy
		}
		return &Error{where, "hosts: " + problem}
	}
	for i, entry := range c.Hosts {
		if _, err := hostlist.ParseEntries([]string{entry}); err != nil {
			where := c.Origin("hosts")
			if i < len(c.entries) {
				where = c.entries[i]
			}
			return bad(where, err)
		}
	}
	if _, err := hostlist.ParseEntries(c.Hosts); err != nil { // too many of them
		return bad(c.Origin("hosts"), err)
	}
	return nil
}

func waiting(s string) error {
	_, err := iwarp.ParseWaiting(s)
	return err
}

func provider(p string) error {
	if device, ok := strings.CutPrefix(p, "ibverbs:"); p == "soft" || p == "ibverbs" || ok && device != "" {
		return nil
	}
	return fmt.Errorf("%q is none of soft, ibverbs, ibverbs:DEVICE", p)
}

// carriers checks the ways in which sources may come. One of them must be able to bring any source.
func carriers(list []string) error {
	for _, word := range list {
		if err := oneOf(word, "write", "eager", "pull"); err != nil {
			return err
		}
	}
	if !slices.Contains(list, "write") && !slices.Contains(list, "pull") {
		return fmt.Errorf("has neither write nor pull, so that only small sources could come")
	}
	return nil
}

func between(n, lo, hi int) error {
	if n < lo || n > hi {
		return fmt.Errorf("%d is not between %d and %d", n, lo, hi)
	}
	return nil
}

func within(d, lo, hi time.Duration) error {
	if d < lo || d > hi {
		return fmt.Errorf("%s is not between %s and %s", formatDuration(d), formatDuration(lo), formatDuration(hi))
	}
	return nil
}

func sized(s, lo, hi Size) error {
	if s < lo || s > hi {
		return fmt.Errorf("%s is not between %s and %s", s, lo, hi)
	}
	return nil
}

func oneOf(s string, words ...string) error {
	if !slices.Contains(words, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
	}
	return nil
}

func absolute(paths ...string) error {
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			return fmt.Errorf("%q is not an absolute path", p)
		}
	}
	return nil
}

func absoluteOrEmpty(path string) error {
	if path == "" {
		return nil
	}
	return absolute(path)
}

// addr checks "HOST:PORT"; an empty host means all addresses, port 0 any.
func addr(s string) error {
	host, port, ok := cutPort(s)
	if n, err := strconv.ParseUint(port, 10, 16); !ok || err != nil || n > 65535 || strings.ContainsAny(host, " /") {
		return fmt.Errorf("%q is not ADDR:PORT, as in 127.0.0.1:7632 or [::]:7632", s)
	}
	return nil
}

func cutPort(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = s[:i], s[i+1:]
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		inner, ok = strings.CutSuffix(inner, "]")
		return inner, port, ok
	}
	return host, port, !strings.Contains(host, ":")
}

func httpAddr(s string) error {
	if s == "" {
		return nil
	}
	return addr(s)
}

func listen(addrs []string) error {
	if len(addrs) == 0 {
		return fmt.Errorf("names no address")
	}
	return eachAddr(addrs)
}

func eachAddr(addrs []string) error {
	for _, a := range addrs {
		if err := addr(a); err != nil {
			return err
		}
	}
	return nil
}

func networks(list []string) error {
	for _, n := range list {
		if _, err := ParseNetwork(n); err != nil {
			return err
		}
	}
	return nil
}

// ParseNetwork parses "10.0.0.0/8", or an address, which means that host alone. Bits beyond the prefix
// length are ignored, as in distcc: 10.1.2.3/8 is 10.0.0.0/8. An IPv4 network that is written as an IPv6
// one is the IPv4 network.
func ParseNetwork(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		a = a.Unmap().WithZone("")
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q is not a network; write ADDR/BITS, as in 192.168.0.0/16", s)
	}
	const mapped = 96 // bits before the IPv4 address
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p.Masked(), nil
}

// Networks returns the parsed daemon.allow.
func (c *Config) Networks() []netip.Prefix { return parsed(c.Daemon.Allow) }

// Networks returns Allow.
func (d *Distcc) Networks() []netip.Prefix { return parsed(d.Allow) }

func parsed(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		if p, err := ParseNetwork(s); err == nil { // Validate rejected the others
			out = append(out, p)
		}
	}
	return out
}
