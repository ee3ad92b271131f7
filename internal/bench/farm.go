package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// farm is a manager and a daemon of ours, in one group with the clients to come;
// the daemon and its compilers are a part of it.
type farm struct {
	b       *bench
	g, host *group
	daemon  *daemon
	manager *daemon
	addr    string   // of the daemon
	env     []string // for the wrapper
	report  string   // where the wrapper says what it did
}

// newFarm starts a daemon, and a manager that knows it as host; via, when set, is
// asked for the address that the manager is to use instead of the daemon's own.
func (b *bench) newFarm(name string, via func(addr string) (string, error)) (*farm, error) {
	g, err := b.acct.group(name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.tmp, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &farm{b: b, g: g, report: filepath.Join(dir, "report")}
	if f.host, err = b.acct.group(name + "/host"); err != nil {
		return nil, err
	}
	if f.addr, err = freeAddr(); err != nil {
		return nil, err
	}
	env := b.env("RDISTCC_DIR="+dir, "HOME="+dir, "XDG_STATE_HOME="+dir)
	f.daemon, err = b.startDaemon(f.host, "rdistccd", env,
		filepath.Join(b.bin, "rdistccd"), "--listen", f.addr, "--jobs", "4", "--http", "127.0.0.1:0", "--nice", "0")
	if err != nil {
		return nil, err
	}
	g.daemons = append(g.daemons, f.daemon)
	// It takes connections before it has looked at its compilers.
	if err := f.daemon.await(b.ctx, f.daemon.said("msg=listening")); err != nil {
		f.close()
		return nil, err
	}
	host := f.addr
	if via != nil {
		if host, err = via(f.addr); err != nil {
			f.close()
			return nil, err
		}
	}
	socket := filepath.Join(dir, "cm.sock")
	f.manager, err = b.startDaemon(g, "rdistcc-cm", env,
		filepath.Join(b.bin, "rdistcc-cm"), "--socket", socket, "--hosts", host, "--http", "127.0.0.1:0")
	if err != nil {
		f.close()
		return nil, err
	}
	if err := f.manager.await(b.ctx, listening("unix", socket)); err != nil {
		f.close()
		return nil, err
	}
	f.env = append(env, "RDISTCC_CM_SOCKET="+socket, "RDISTCC_MODE=remote", "RDISTCC_FALLBACK=0", "RDISTCC_REPORT="+f.report)
	return f, nil
}

// trouble is err with the last words of both programs.
func (f *farm) trouble(err error) error {
	if err == nil {
		return nil
	}
	return f.manager.trouble(f.daemon.trouble(err))
}

// close ends both programs.
func (f *farm) close() {
	for _, d := range []*daemon{f.manager, f.daemon} {
		if d != nil {
			d.stop()
		}
	}
}

// check says whether every job of the report ran on the host, and forgets them.
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

// env is a bare environment, so that nobody's settings are measured.
func (b *bench) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + b.scratch()}, more...)
}

// errNoRival says that distcc is not there.
var errNoRival = errors.New("distcc and distccd are not installed (apt-get install distcc): its columns are left out")

// rival is a distccd, grouped like a farm.
type rival struct {
	g      *group
	host   *group
	daemon *daemon
	client string
	addr   string
	env    []string
}

func (b *bench) newRival(name, options string, via func(addr string) (string, error)) (*rival, error) {
	client, err := exec.LookPath("distcc")
	if err != nil {
		return nil, errNoRival
	}
	server, err := exec.LookPath("distccd")
	if err != nil {
		return nil, errNoRival
	}
	g, err := b.acct.group(name)
	if err != nil {
		return nil, err
	}
	r := &rival{g: g, client: client}
	if r.host, err = b.acct.group(name + "/host"); err != nil {
		return nil, err
	}
	if r.addr, err = freeAddr(); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(r.addr, ":")
	// distccd runs compilers of its masquerade directory only, and those of Debian
	// by Debian's own; niceness 5, its default, would make it look slower.
	args := []string{server, "--no-detach", "--daemon", "--listen", "127.0.0.1", "--port", port,
		"--allow", "127.0.0.1", "-j", "4", "-N", "0", "--log-stderr"}
	env := b.env("HOME=" + b.tmp)
	r.daemon, err = b.startDaemon(r.host, "distccd", env, args...)
	if err != nil {
		return nil, err
	}
	g.daemons = append(g.daemons, r.daemon)
	if err := r.daemon.await(b.ctx, listening("tcp", r.addr)); err != nil {
		r.close()
		return nil, err
	}
	host := r.addr
	if via != nil {
		if host, err = via(r.addr); err != nil {
			r.close()
			return nil, err
		}
	}
	dir := filepath.Join(b.tmp, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	r.env = append(env, "DISTCC_HOSTS="+host+"/4"+options, "DISTCC_DIR="+dir, "DISTCC_BACKOFF_PERIOD=0", "DISTCC_FALLBACK=0")
	return r, nil
}

func (r *rival) close() { r.daemon.stop() }
