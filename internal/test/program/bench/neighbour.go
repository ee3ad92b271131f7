package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/test/kit/standin"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// S7 has an honest client and a hostile one at one daemon. The honest one is a manager with as many
// compiles under way as its share of the places. Their times are compared with those on a daemon that has
// only that many places, and no other client. Both columns have real processes: in one the compiler only
// sleeps, so that the processors of this machine are not what is measured; in the other it is gcc.

// neighbourTime is the length of one phase: 300 compiles of 100 ms, two at a time, so that a 99th
// percentile is meaningful.
const neighbourTime = 15 * time.Second

// neighbourhood is one column: daemons, and the honest client's managers.
type neighbourhood struct {
	name          string
	dir           string // directory of its compiler
	tc            toolchain.Toolchain
	source, flood string
	width, places int // the honest client's share, and the total

	alone, shared, keyed *house
	pulling              *house // takes sources by pull only: its credits have no slots
}

// house is a daemon with the honest client's manager.
type house struct {
	d, manager *daemon
	addr, http string
	auth       func(client string) identity.Settings
	env        []string // of the wrapper
}

// phase holds the honest client's results in one situation, over all rounds.
type phase struct {
	kind     string // hostile...; "": there is none
	keyed    bool   // identity by a shared key, otherwise by certificates
	pulling  bool   // on the daemon whose credits have no slots
	p50, p99 []float64
	worst    float64 // ms
	rss      uint64  // maximum, in bytes
	lost     int     // compiles that the host did not do
	dials    []float64
	refused  int // number of new connections refused
}

func (b *bench) neighbour() error {
	cc := filepath.Join(b.tmp, "cc")
	if err := os.Mkdir(cc, 0o755); err != nil {
		return err
	}
	if err := standin.Build(b.ctx, b.gcc, filepath.Join(cc, "gcc")); err != nil {
		return err
	}
	const real = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" +
		"int f(const char *s) { char b[64]; snprintf(b, sizeof b, \"%%s %%d\", s, %d); return (int)strlen(b) + atoi(s); }\n"
	waits := func(ms int) string {
		return fmt.Sprintf("/* stand-in: sleep %d memory 4000 output 4000 */\nint unit;\n", ms)
	}
	for _, n := range []*neighbourhood{
		{name: "a compiler that only takes its time", dir: cc, source: waits(100), flood: waits(400), width: 2, places: 4},
		{name: "gcc", dir: filepath.Dir(b.gcc), source: fmt.Sprintf(real, 1), flood: "int flood(int x) { return x + 1; }\n", width: 1, places: 2},
	} {
		if err := b.live(n); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// live measures one column.
func (b *bench) live(n *neighbourhood) (err error) {
	var cache toolchain.Cache
	if n.tc, err = cache.Identify(b.ctx, filepath.Join(n.dir, "gcc")); err != nil {
		return err
	}
	base := filepath.Join(b.tmp, "s7-"+strconv.Itoa(n.places))
	if err := os.Mkdir(base, 0o755); err != nil {
		return err
	}
	phases := []*phase{{}, {kind: hostileFlood}, {kind: hostileDoS}, {kind: hostileSilent}, {kind: hostileSilent, keyed: true}, {kind: hostileHoarder}, {kind: hostileFiller}, {kind: hostileFiller, pulling: true}}
	certs := filepath.Join(base, "certs")
	words := []string{"certs", certs, "--daemon", identity.Anyone, "--client", "honest"}
	for round := range b.turns {
		for _, p := range phases[1:] {
			// Another one each time: what is known of the previous one does not count.
			words = append(words, "--client", p.name(round))
		}
	}
	if out, err := exec.CommandContext(b.ctx, filepath.Join(b.bin, "rdistcc"), words...).CombinedOutput(); err != nil {
		return fmt.Errorf("rdistcc certs: %w: %s", err, lastLines(out, 2))
	}
	byCert := func(client string) identity.Settings {
		at := func(name string) string { return filepath.Join(certs, name) }
		return identity.Settings{Cert: at(client + ".crt"), Key: at(client + ".key"), CA: at("ca.crt")}
	}
	key := filepath.Join(base, "key")
	if err := os.WriteFile(key, []byte(rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	byKey := func(string) identity.Settings { return identity.Settings{PSKFile: key} }
	for _, h := range []struct {
		to     **house
		name   string
		auth   func(string) identity.Settings
		places int
		more   string
	}{
		{&n.alone, "alone", byCert, n.width, ""}, {&n.shared, "shared", byCert, n.places, ""}, {&n.keyed, "keyed", byKey, n.places, ""},
		{&n.pulling, "pulling", byCert, n.places, "daemon: {carriers: [pull]}\n"},
	} {
		if *h.to, err = b.house(n, filepath.Join(base, h.name), h.auth, h.places, h.more); *h.to != nil {
			defer (*h.to).stop()
		}
		if err != nil {
			return err
		}
	}
	var alone phase
	for round := range b.turns {
		p50, p99, err := b.honest(n, n.alone, &alone, round)
		if err != nil {
			return err
		}
		for _, p := range phases {
			h := n.shared
			switch {
			case p.keyed:
				h = n.keyed
			case p.pulling:
				h = n.pulling
			}
			q50, q99, err := b.beside(n, h, p, round)
			if err != nil {
				return err
			}
			p.p50, p.p99 = append(p.p50, q50/p50), append(p.p99, q99/p99)
		}
	}
	fmt.Printf("# S7, %s: alone on its part p50 %.1f ms, p99 %.1f, worst %.1f\n", n.name, median(alone.p50), median(alone.p99), alone.worst)
	for _, p := range phases {
		fmt.Printf("# S7, %s, %s: p99 by round %.2f; worst %.1f ms; %d compiles not done there; new connections p50 %.1f ms, most %.1f, %d of %d refused\n",
			n.name, p.what(), p.p99, p.worst, p.lost, median(p.dials), slices.Max(append(p.dials, 0)), p.refused, len(p.dials)+p.refused)
		b.table.note("S7", n.name+", "+p.what(), fmt.Sprintf("p50 x %.2f, p99 x %.2f, daemon %d MiB", median(p.p50), median(p.p99), p.rss>>20), "", "<= 2")
	}
	return nil
}

func (p *phase) name(round int) string {
	return fmt.Sprintf("%s-%v-%v-%d", p.kind, p.keyed, p.pulling, round)
}

// what returns the name of a phase in the table.
func (p *phase) what() string {
	what := map[string]string{"": "no other client", hostileFlood: "a flood of jobs", hostileDoS: "jobs that want the machine", hostileSilent: "connections that prove nothing",
		hostileHoarder: "credits that are kept", hostileFiller: "the same, slots full"}[p.kind]
	if p.kind == hostileSilent {
		what += map[bool]string{false: " (TLS)", true: " (key)"}[p.keyed]
	}
	if p.pulling {
		what += ", where sources are pulled"
	}
	return what
}

// house starts a daemon with a number of places and further settings, and a manager that knows it.
func (b *bench) house(n *neighbourhood, dir string, auth func(string) identity.Settings, places int, more string) (h *house, err error) {
	h = &house{auth: auth}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if h.addr, err = freeAddr(nil); err != nil {
		return nil, err
	}
	if h.http, err = freeAddr(nil); err != nil {
		return nil, err
	}
	// The bounds of the hostile jobs' tests: they leave room for four bombs at a time.
	config := filepath.Join(dir, "daemon.yaml")
	text := fmt.Sprintf("toolchains: {dirs: [%s, /usr/bin]}\nlimits: {job-memory: 1GiB, file: 256MiB}\n", n.dir) + more
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	env := b.env("RDISTCC_DIR="+dir, "HOME="+dir, "XDG_STATE_HOME="+dir, "RDISTCC_CONFIG="+config)
	g := &group{a: b.acct}
	words := []string{filepath.Join(b.bin, "rdistccd"), "--listen", h.addr, "--http", h.http, "--jobs", strconv.Itoa(places), "--log-level", "error"}
	if h.d, err = b.startDaemon(g, "rdistccd", env, append(words, flagsOf(auth(identity.Anyone))...)...); err != nil {
		return h, err
	}
	ready := func() bool {
		r, err := http.Get("http://" + h.http + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	}
	if err := h.d.await(b.ctx, ready); err != nil {
		return h, err
	}
	socket := filepath.Join(dir, "cm.sock")
	env = b.env("RDISTCC_DIR="+dir, "HOME="+dir, "XDG_STATE_HOME="+dir)
	words = []string{filepath.Join(b.bin, "rdistcc-cm"), "--socket", socket, "--hosts", h.addr, "--http", ""}
	if h.manager, err = b.startDaemon(g, "rdistcc-cm", env, append(words, flagsOf(auth("honest"))...)...); err != nil {
		return h, err
	}
	if err := h.manager.await(b.ctx, listening(nil, "unix", socket)); err != nil {
		return h, err
	}
	h.env = append(env, "RDISTCC_CM_SOCKET="+socket, "RDISTCC_MODE=remote", "RDISTCC_FALLBACK=0")
	h.env[0] = "PATH=" + n.dir + ":" + os.Getenv("PATH")
	return h, nil
}

func flagsOf(s identity.Settings) []string {
	if s.PSKFile != "" {
		return []string{"--psk-file", s.PSKFile}
	}
	return []string{"--tls-cert", s.Cert, "--tls-key", s.Key, "--tls-ca", s.CA}
}

func (h *house) stop() {
	for _, d := range []*daemon{h.manager, h.d} {
		if d != nil {
			d.stop()
		}
	}
}

// metric returns the value of a metric without labels; NaN: not available.
func (h *house) metric(name string) float64 {
	r, err := http.Get("http://" + h.http + "/metrics")
	if err != nil {
		return math.NaN()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return math.NaN()
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v
		}
	}
	return math.NaN()
}

// beside measures the honest client, with a hostile one beside it if the phase has one.
func (b *bench) beside(n *neighbourhood, h *house, p *phase, round int) (p50, p99 float64, err error) {
	if p.kind == "" {
		return b.honest(n, h, p, round)
	}
	stop, err := b.startHostile(n, h, p, round)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	// It reaches its full extent before the measurement begins.
	select {
	case <-time.After(5 * time.Second):
	case <-b.ctx.Done():
	}
	p50, p99, err = b.honest(n, h, p, round)
	stop()
	// The next phase begins on a quiet daemon.
	for end := time.Now().Add(time.Minute); err == nil && b.ctx.Err() == nil && (h.metric("rdistccd_jobs_running") != 0 || h.metric("rdistccd_clients") > 1); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			err = h.d.trouble(errors.New("jobs of the hostile client do not end"))
		}
	}
	return p50, p99, err
}

// startHostile starts the hostile client: this program. A real one would be on another machine, where its
// own work would not take the daemon's processors.
func (b *bench) startHostile(n *neighbourhood, h *house, p *phase, round int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	x := hostile{Kind: p.kind, Addr: h.addr, Auth: h.auth(p.name(round)), Toolchain: n.tc.ID, Text: n.flood, FIFO: filepath.Join(b.tmp, "fifo")}
	if err := syscall.Mkfifo(x.FIFO, 0o666); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	var cache toolchain.Cache
	gcc, err := cache.Identify(b.ctx, b.gcc)
	if err != nil {
		return nil, err
	}
	x.GCC, x.GXX = gcc.ID, gcc.ID
	if gxx, err := exec.LookPath("g++"); err == nil {
		if tc, err := cache.Identify(b.ctx, gxx); err == nil {
			x.GXX = tc.ID
		}
	}
	text, err := json.Marshal(&x)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = b.env(hostileVar + "=" + string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}), nil
}

// honest keeps width compiles under way for a while, and returns percentiles in milliseconds.
func (b *bench) honest(n *neighbourhood, h *house, p *phase, round int) (p50, p99 float64, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, neighbourTime)
	defer cancel()
	dir, err := os.MkdirTemp(b.tmp, "honest-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	var mu sync.Mutex
	var took []float64
	lost, said := 0, ""
	var all sync.WaitGroup
	for i := range n.width {
		name := fmt.Sprintf("unit%d", i)
		if err := os.WriteFile(filepath.Join(dir, name+".c"), []byte(n.source), 0o644); err != nil {
			return 0, 0, err
		}
		all.Go(func() {
			for ctx.Err() == nil {
				cmd := exec.Command(filepath.Join(b.bin, "rdistcc"), "gcc", "-O2", "-c", name+".c", "-o", name+".o")
				cmd.Env, cmd.Dir = h.env, dir
				began := time.Now()
				out, err := cmd.CombinedOutput()
				wall := ms(time.Since(began))
				mu.Lock()
				if took = append(took, wall); err != nil {
					lost, said = lost+1, lastLines(out, 1)
				}
				b.log.add(sample{Figure: "S7", Side: n.name + ", " + p.what(), Round: round, WallMS: wall})
				mu.Unlock()
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			p.rss = max(p.rss, residentNow(h.d.cmd.Process.Pid))
			began := time.Now()
			if err := h.connect(ctx); err == nil {
				p.dials = append(p.dials, ms(time.Since(began)))
			} else if ctx.Err() == nil {
				p.refused++
				said = err.Error()
			}
			pause(ctx, 250*time.Millisecond)
		}
	})
	all.Wait()
	if said != "" {
		fmt.Printf("# S7, %s, %s: %s\n", n.name, p.what(), said)
	}
	if p.lost += lost; len(took) == 0 || lost == len(took) {
		return 0, 0, h.d.trouble(errors.New("no compile of the honest client was done: " + said))
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[min(len(took)-1, int(q*float64(len(took))))] }
	p.worst = max(p.worst, at(1))
	p50, p99 = at(0.5), at(0.99)
	if h == n.alone {
		p.p50, p.p99 = append(p.p50, p50), append(p.p99, p99)
	}
	return p50, p99, nil
}

// connect makes a new connection as the honest client, up to the daemon's introduction.
func (h *house) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, err := identity.New(identity.Client, h.auth("honest"))
	if err != nil {
		return err
	}
	dev, err := iwarp.Open(iwarp.Config{Dial: id.Dial})
	if err != nil {
		return err
	}
	defer dev.Close()
	c, err := rawjob.DialWith(ctx, dev, h.addr, rawjob.Options{Want: 1, Key: id.Key()})
	if err != nil {
		return err
	}
	defer c.Close()
	_, _, err = c.Introduced(ctx)
	return err
}

// residentNow returns a process's memory in bytes, including shared memory; 0: it has ended.
func residentNow(pid int) uint64 {
	text, err := os.ReadFile(procPath(pid, "statm"))
	f := strings.Fields(string(text))
	if err != nil || len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(f[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}
