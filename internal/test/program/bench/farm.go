package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rdistcc/rdistcc/lab/netlab"
)

// farm is a manager and daemons of ours, in one group with the clients that will be started; the daemons
// and their compilers form a subgroup.
type farm struct {
	b       *bench
	name    string
	g, host *group
	daemons []*daemon
	manager *daemon
	manage  func() error // starts the manager; again, once it has ended
	env     []string     // for the wrapper
	report  string       // where the wrapper reports what it did
}

// ground is where a farm and its rival run: with nil on loopback, with one host each; otherwise the client
// is on the first host of a network, and a daemon on each other one.
type ground struct{ *netlab.Lab }

// client returns the host on which commands and managers run.
func (at ground) client() *netlab.Host {
	if at.Lab == nil {
		return nil
	}
	return at.Hosts[0]
}

// hosts returns the hosts on which daemons run.
func (at ground) hosts() []*netlab.Host {
	if at.Lab == nil {
		return []*netlab.Host{nil}
	}
	return at.Hosts[1:]
}

// allow returns the network that daemons accept jobs from.
func (at ground) allow() string {
	if at.Lab == nil {
		return "127.0.0.1"
	}
	return netlab.Net.String()
}

// group makes a group whose processes run on a host.
func (b *bench) group(name string, place *netlab.Host) (*group, error) {
	g, err := b.acct.group(name)
	if err == nil {
		g.place = place
	}
	return g, err
}

// farmSpec describes a farm.
type farmSpec struct {
	name string
	at   ground
	// via, when set, returns the address that the manager should use instead of a daemon's own.
	via     func(addr string) (string, error)
	options string // of each host: ",zstd"
	sandbox string // "": off, as the rival has none
	tls     bool   // both sides have certificates; otherwise those beyond loopback have a key
	config  string // settings of the manager, as in its configuration file
	tree    string // daemon.tree; "": the default
	places  int    // of each host; 0: four
	// compilers, when set, is the only directory in which hosts have compilers.
	compilers string
	executor  string // of each daemon: a cluster; then it logs which actions it has executed
}

// newFarm starts a daemon on each host, and a manager that knows them.
func (b *bench) newFarm(s farmSpec) (f *farm, err error) {
	at, name, via := s.at, s.name, s.via
	made := &farm{b: b, name: name}
	f = made
	defer func() {
		if err != nil {
			made.close()
		}
	}()
	if f.g, err = b.group(name, at.client()); err != nil {
		return nil, err
	}
	dir := filepath.Join(b.tmp, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f.report = filepath.Join(dir, "report")
	env := b.env("RDISTCC_DIR="+dir, "HOME="+dir, "XDG_STATE_HOME="+dir)
	daemon, client, err := b.identity(dir, s.tls, at.Lab != nil)
	if err != nil {
		return nil, err
	}
	daemon = append(daemon, "--sandbox", cmp.Or(s.sandbox, "off"))
	if s.tree != "" || s.compilers != "" {
		file := filepath.Join(dir, "daemon.yaml")
		text := ""
		if s.tree != "" {
			text = "daemon: {tree: " + s.tree + "}\n"
		}
		if s.compilers != "" {
			text += "toolchains: {dirs: [" + s.compilers + "]}\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		daemon = append(daemon, "--config", file)
	}
	var hosts []string
	for _, h := range at.hosts() {
		// One group for all of them, as only the total matters.
		if f.host, err = b.group(name+"/host", h); err != nil {
			return nil, err
		}
		addr, err := freeAddr(h)
		if err != nil {
			return nil, err
		}
		args := []string{filepath.Join(b.bin, "rdistccd"), "--listen", addr, "--jobs", strconv.Itoa(cmp.Or(s.places, 4)), "--http", "127.0.0.1:0", "--nice", "0"}
		args = append(args, daemon...)
		if s.executor != "" {
			args = append(args, "--executor", s.executor, "--log-level", "debug")
		}
		d, err := b.startDaemon(f.host, "rdistccd", env, args...)
		if err != nil {
			return nil, err
		}
		f.daemons, f.g.daemons = append(f.daemons, d), append(f.g.daemons, d)
		// It serves before it has identified its compilers and tested how it confines compiles, and the
		// cost of that is not a job's.
		known := []string{"compilers are known"}
		if s.sandbox != "" && s.sandbox != "off" {
			known = append(known, "compiles are confined")
		}
		for _, words := range known {
			if err := d.await(b.ctx, d.said(words)); err != nil {
				return nil, err
			}
		}
		if via != nil {
			if addr, err = via(addr); err != nil {
				return nil, err
			}
		}
		hosts = append(hosts, addr+s.options)
	}
	f.host.daemons = f.daemons
	socket := filepath.Join(dir, "cm.sock")
	settings := env
	if s.config != "" {
		file := filepath.Join(dir, "manager.yaml")
		if err := os.WriteFile(file, []byte(s.config), 0o600); err != nil {
			return nil, err
		}
		settings = append(slices.Clone(env), "RDISTCC_CONFIG="+file)
	}
	f.manage = func() (err error) {
		f.manager, err = b.startDaemon(f.g, "rdistcc-cm", settings, append([]string{
			filepath.Join(b.bin, "rdistcc-cm"), "--socket", socket, "--hosts", strings.Join(hosts, " "), "--http", "127.0.0.1:0"}, client...)...)
		if err != nil {
			return err
		}
		return f.manager.await(b.ctx, listening(nil, "unix", socket))
	}
	if err := f.manage(); err != nil {
		return nil, err
	}
	f.env = append(env, "RDISTCC_CM_SOCKET="+socket, "RDISTCC_MODE=remote", "RDISTCC_FALLBACK=0", "RDISTCC_REPORT="+f.report)
	return f, nil
}

// identity returns the words by which daemons and clients prove their identity: none on loopback.
func (b *bench) identity(dir string, tls, beyond bool) (daemon, client []string, err error) {
	switch {
	case tls:
		certs := filepath.Join(dir, "certs")
		if out, err := exec.CommandContext(b.ctx, filepath.Join(b.bin, "rdistcc"), "certs", certs).CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("rdistcc certs: %w: %s", err, strings.TrimSpace(string(out)))
		}
		pair := func(name string) []string {
			return []string{"--tls-cert", filepath.Join(certs, name+".crt"), "--tls-key", filepath.Join(certs, name+".key"), "--tls-ca", filepath.Join(certs, "ca.crt")}
		}
		return pair("rdistccd"), pair("client"), nil
	case beyond:
		file := filepath.Join(dir, "psk")
		if err := os.WriteFile(file, []byte(rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
			return nil, nil, err
		}
		words := []string{"--psk-file", file}
		return words, words, nil
	}
	return nil, nil, nil
}

// trouble returns err with the end of all programs' output.
func (f *farm) trouble(err error) error {
	if err == nil {
		return nil
	}
	for _, d := range f.daemons {
		err = d.trouble(err)
	}
	return f.manager.trouble(err)
}

// close ends all programs.
func (f *farm) close() {
	for _, d := range append([]*daemon{f.manager}, f.daemons...) {
		if d != nil {
			d.stop()
		}
	}
}

// check reports whether every job of the report ran on the host, and clears the report.
func (f *farm) check() error {
	b, err := os.ReadFile(f.report)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "remote:") {
			return fmt.Errorf("a job did not run on the host: %s", strings.TrimSpace(line))
		}
	}
	return os.Remove(f.report)
}

// env returns a bare environment, so that no user's settings are measured.
func (b *bench) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + b.scratch(), "RDISTCC_CACHE=off"}, more...)
}

// errNoRival means that distcc is not installed.
var errNoRival = errors.New("distcc and distccd are not installed (apt-get install distcc): its columns are left out")

// rival is distcc with its daemons, grouped like a farm.
type rival struct {
	g       *group
	host    *group
	daemons []*daemon
	client  string
	env     []string
}

// newRival starts a distccd on loopback.
func (b *bench) newRival(name, options string, via func(addr string) (string, error)) (*rival, error) {
	return b.rivalOn(ground{}, name, options, via)
}

// rivalOn starts a distccd on each host.
func (b *bench) rivalOn(at ground, name, options string, via func(addr string) (string, error)) (r *rival, err error) {
	client, err := exec.LookPath("distcc")
	if err != nil {
		return nil, errNoRival
	}
	server, err := exec.LookPath("distccd")
	if err != nil {
		return nil, errNoRival
	}
	r = &rival{client: client}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.g, err = b.group(name, at.client()); err != nil {
		return nil, err
	}
	env := b.env("HOME=" + b.tmp)
	var hosts []string
	for _, h := range at.hosts() {
		if r.host, err = b.group(name+"/host", h); err != nil {
			return nil, err
		}
		addr, err := freeAddr(h)
		if err != nil {
			return nil, err
		}
		ip, port, _ := strings.Cut(addr, ":")
		// distccd runs only compilers of its masquerade directory, and Debian's runs those of Debian;
		// niceness 5, its default, would make it look slower.
		args := []string{server, "--no-detach", "--daemon", "--listen", ip, "--port", port,
			"--allow", at.allow(), "-j", "4", "-N", "0", "--log-stderr"}
		d, err := b.startDaemon(r.host, "distccd", env, args...)
		if err != nil {
			return nil, err
		}
		r.daemons, r.g.daemons = append(r.daemons, d), append(r.g.daemons, d)
		if err := d.await(b.ctx, listening(h, "tcp", addr)); err != nil {
			return nil, err
		}
		if via != nil {
			if addr, err = via(addr); err != nil {
				return nil, err
			}
		}
		hosts = append(hosts, addr+"/4"+options)
	}
	r.host.daemons = r.daemons
	dir := filepath.Join(b.tmp, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	r.env = append(env, "DISTCC_HOSTS="+strings.Join(hosts, " "), "DISTCC_DIR="+dir, "DISTCC_BACKOFF_PERIOD=0", "DISTCC_FALLBACK=0")
	return r, nil
}

func (r *rival) close() {
	for _, d := range r.daemons {
		d.stop()
	}
}
