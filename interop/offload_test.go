package interop

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/exp/offload"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestOffload measures what serving jobs costs a daemon in the guest: by the software stack, by the kernel's siw, and, as a
// model of an adapter, by the software stack without the stack's own share of a profile. Clients are here and have the
// software stack. It prints a table, from which docs/experiments.md has its figures (E12).
func TestOffload(t *testing.T) {
	g := Boot(t)
	needRDMA(t)
	note := row(t, "rdistccd, soft and on siw", "CPU of a daemon in the guest for a job")
	bench := &offloadBench{t: t, g: g, length: pick(10*time.Second, 4*time.Second)}
	bench.install()
	soft, siw := bench.start("soft"), bench.start("ibverbs:"+guestDevice)
	idle := bench.idle()
	fmt.Printf("  CPU of the guest, ms a job; idle: %.0f ms/s, taken off\n", idle*1e3)
	fmt.Printf("  %8s %7s | %-5s | %6s | %15s | %11s | %8s | %8s\n", "bytes", "clients", "by", "jobs/s", "daemon usr+sys", "of it stack", "guest", "client")
	ratios := map[int][]float64{}
	for _, size := range pick([]int{4 << 10, 256 << 10, 4 << 20}, []int{4 << 10, 256 << 10}) {
		for _, clients := range pick([]int{1, 4, 16}, []int{1, 4}) {
			a := bench.measure(soft, size, clients, idle)
			b := bench.measure(siw, size, clients, idle)
			model := a
			model.by, model.clientCPU, model.rate, model.guest, model.stack = "model", 0, 0, 0, 0
			model.user *= max(0, 1-a.split.Stack.User/max(1e-9, a.split.Stack.User+a.split.Daemon.User+a.split.Runtime.User))
			model.system *= max(0, 1-a.split.Stack.System/max(1e-9, a.split.Stack.System+a.split.Daemon.System+a.split.Runtime.System))
			for _, m := range []offloadCPU{a, b, model} {
				fmt.Printf("  %8d %7d | %-5s | %6.1f | %6.2f + %6.2f | %10.0f%% | %8.2f | %8.2f\n", size, clients, m.by, m.rate, m.user, m.system, 100*m.stack, m.guest, m.clientCPU)
			}
			ratios[size] = append(ratios[size], b.guest/a.guest)
		}
	}
	var said []string
	for _, size := range []int{4 << 10, 256 << 10, 4 << 20} {
		if r := ratios[size]; len(r) > 0 {
			slices.Sort(r)
			said = append(said, fmt.Sprintf("%d bytes: %.2f", size, r[len(r)/2]))
		}
	}
	*note = "CPU of the guest with siw over that with the software stack, " + strings.Join(said, "; ")
	if bench.lost > 0 {
		*note += fmt.Sprintf("; %d connections lost", bench.lost)
	}
}

// offloadBench is what the measurements share.
type offloadBench struct {
	t      *testing.T
	g      *Guest
	length time.Duration
	daemon string // path in the guest
	key    *psk.Key
	next   int // port of status pages
	lost   int
}

// offloadDaemon is a daemon in the guest.
type offloadDaemon struct {
	by, addr string
	pid      int
	http     int // port of its profiles
}

// offloadCPU is what a job costs, in milliseconds of CPU.
type offloadCPU struct {
	by           string
	rate         float64 // jobs a second
	user, system float64 // of the daemon's processes
	stack        float64 // share of the software stack in them
	split        offload.Profile
	guest        float64 // all that the guest did, but for the compiler and what it does when idle
	clientCPU    float64 // of the clients' process, here
}

// install puts daemon, key and the stand-in compiler into the guest.
func (b *offloadBench) install() {
	dir := b.t.TempDir()
	build(b.t, "build", "-tags", "ibverbs", "-o", dir+"/rdistccd", "./cmd/rdistccd")
	b.daemon = b.g.Put(b.t, dir+"/rdistccd")
	gcc := b.g.Put(b.t, farmtest.StandIn(b.t))
	text := strings.Repeat("offload ", 8)
	b.g.Run(b.t, "cp "+gcc+" /usr/bin/gcc && chmod 755 /usr/bin/gcc && (umask 077; echo '"+text+"' >/tmp/offload.key)")
	b.t.Cleanup(func() { b.g.Run(b.t, "rm -f /usr/bin/gcc") }) // no compiler for other tests to find
	key, err := psk.Parse([]byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	b.key = key
}

// start starts a daemon with a provider.
func (b *offloadBench) start(provider string) *offloadDaemon {
	port, host := b.g.Port()
	b.next++
	by, _, _ := strings.Cut(provider, ":")
	d := &offloadDaemon{by: map[string]string{"soft": "soft", "ibverbs": "siw"}[by], addr: host, http: 7690 + b.next}
	config := "/tmp/offload-" + by + ".yaml"
	job := b.g.Start(b.t, fmt.Sprintf("printf 'limits: {silence: 1m}\nbuffers: {slot: 5MiB}\nhttp: {pprof: true}\nsandbox: off\n' >%s; echo pid $$; TMPDIR=/tmp exec %s --config %s --provider %s --listen %s --allow 10.0.2.0/24 --psk-file /tmp/offload.key --http 127.0.0.1:%d --jobs 2",
		config, b.daemon, config, provider, net.JoinHostPort(guestAddr, fmt.Sprint(port)), d.http), 25*time.Minute)
	job.until(b.t, 4*time.Minute, "listen", func() bool { return strings.Contains(job.Output(), "msg=listening") })
	_, rest, _ := strings.Cut(job.Output(), "pid ")
	line, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		b.t.Fatalf("no pid in %q", job.Output())
	}
	d.pid = pid
	return d
}

// usage is what the guest has used since it booted, in seconds.
type usage struct{ user, system, all float64 }

// look reads the guest's counters: of the processes of daemon d (0: none), and of all.
func (b *offloadBench) look(pid int) usage {
	b.t.Helper()
	out := b.g.Run(b.t, "cat /proc/stat /proc/[0-9]*/stat 2>/dev/null; true")
	const tick = 100 // a second
	var u usage
	parents, mine := map[int]int{}, map[int][2]float64{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 8 && f[0] == "cpu" {
			for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
				n, _ := strconv.ParseFloat(f[i], 64)
				u.all += n / tick
			}
			continue
		}
		id, rest, ok := strings.Cut(line, " (")
		n, err := strconv.Atoi(id)
		_, rest, ended := strings.Cut(rest, ") ")
		if f := strings.Fields(rest); ok && ended && err == nil && len(f) > 13 {
			parents[n], _ = strconv.Atoi(f[1])
			user, _ := strconv.ParseFloat(f[11], 64)
			system, _ := strconv.ParseFloat(f[12], 64)
			mine[n] = [2]float64{user / tick, system / tick}
		}
	}
	for n, t := range mine {
		for at := n; at > 1; at = parents[at] {
			if at == pid {
				u.user, u.system = u.user+t[0], u.system+t[1]
				break
			}
		}
	}
	return u
}

// idle returns the CPU time that the guest takes in a second with nothing to do.
func (b *offloadBench) idle() float64 {
	before, begin := b.look(0), time.Now()
	time.Sleep(b.length) // there is no event to wait for
	return (b.look(0).all - before.all) / time.Since(begin).Seconds()
}

// self returns the CPU time of this process.
func self() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// measure keeps d busy for a while.
func (b *offloadBench) measure(d *offloadDaemon, size, clients int, idle float64) offloadCPU {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Minute)
	defer cancel()
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer dev.Close()
	c, err := offload.Connect(ctx, offload.Load{Device: dev, Addr: d.addr, Key: b.key, Clients: clients, Size: size, Settle: 200 * time.Millisecond, Retries: 20})
	if err != nil {
		b.t.Fatalf("%s, %d bytes, %d clients: %v", d.by, size, clients, err)
	}
	defer c.Close()
	before, here, begin := b.look(d.pid), self(), time.Now()
	var profile *Job
	if d.by == "soft" {
		profile = b.g.Start(b.t, fmt.Sprintf("busybox wget -q -O /share/profile 'http://127.0.0.1:%d/debug/pprof/profile?seconds=%d'", d.http, int(b.length.Seconds())), time.Minute)
	}
	done, err := c.Run(ctx, b.length)
	if err != nil {
		b.t.Fatalf("%s, %d bytes, %d clients: %v", d.by, size, clients, err)
	}
	after, took := b.look(d.pid), time.Since(begin)
	jobs := float64(done.Jobs)
	b.lost += done.Lost
	m := offloadCPU{
		by: d.by, rate: jobs / done.Wall.Seconds(), user: 1e3 * (after.user - before.user) / jobs, system: 1e3 * (after.system - before.system) / jobs,
		guest: 1e3 * (after.all - before.all - idle*took.Seconds() - done.Compiler.Seconds()) / jobs, clientCPU: 1e3 * (self() - here) / jobs,
	}
	if profile != nil {
		if out, status := profile.Wait(b.t); status != 0 {
			b.t.Fatalf("profile: exit status %d\n%s", status, out)
		}
		m.split = *traces(b.t, filepath.Join(b.g.dir, "share", "profile"))
		m.stack = m.split.Stack.Whole()
	}
	return m
}

// traces reads a profile.
func traces(t *testing.T, file string) *offload.Profile {
	t.Helper()
	cmd := exec.Command("go", "tool", "pprof", "-traces", file)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	p, err := offload.ParseTraces(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
