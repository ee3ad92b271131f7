package interop

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/lab/exp/offload"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestOffload measures what serving jobs costs a daemon in the guest: by the software stack, by the kernel's siw, and, as a
// model of an adapter, by the software stack without the stack's own share of a profile. Clients are here and have the
// software stack. It prints a table, from which lab/experiments.md has its figures (E12).
func TestOffload(t *testing.T) {
	Boot(t) // or there is none here
	needRDMA(t)
	g, err := start(fmt.Sprintf("%s%d-offload", guestPrefix, os.Getpid()), "--mem", "2048") // two daemons with slots for 16 clients
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.stop)
	note := row(t, "rdistccd, soft and on siw", "CPU of a daemon in the guest for a job")
	bench := &offloadBench{t: t, g: g, length: 3 * time.Second}
	bench.install()
	soft, siw := bench.start("soft"), bench.start("ibverbs:"+guestDevice)
	fmt.Printf("  CPU, ms a job\n  %8s %7s | %-5s | %6s | %15s | %11s | %10s | %8s\n", "bytes", "clients", "by", "jobs/s", "daemon usr+sys", "of it stack", "and kernel", "client")
	ratios := map[int][]float64{}
	for _, size := range pick([]int{4 << 10, 256 << 10, 4 << 20}, []int{4 << 10, 256 << 10}) {
		for _, clients := range pick([]int{1, 4, 16}, []int{1, 4}) {
			if size == 4<<20 && clients > 1 {
				continue // an emulated guest takes seconds for each of these jobs
			}
			// In turns: what an emulated guest calls CPU time grows with what else this machine does.
			var as, bs []offloadCPU
			for range pick(3, 1) {
				as, bs = append(as, bench.measure(soft, size, clients)), append(bs, bench.measure(siw, size, clients))
				ratios[size] = append(ratios[size], bs[len(bs)-1].kernel/as[len(as)-1].kernel)
			}
			a, b := median(as), median(bs)
			fmt.Printf("  %8d %7d | %-5s | %6.1f | %6.2f + %6.2f | %10.0f%% | %10.2f | %8.2f\n", size, clients, "soft", a.Rate, a.User, a.System, 100*a.Profile.Stack.Whole(), a.kernel, a.Client)
			fmt.Printf("  %8s %7s | %-5s | %6.1f | %6.2f + %6.2f | %11s | %10.2f | %8.2f\n", "", "", "siw", b.Rate, b.User, b.System, "", b.kernel, b.Client)
			fmt.Printf("  %8s %7s | %-5s | %6s | %6.2f + %6.2f | %11s | %10s |\n", "", "", "model", "", a.ModelUser, a.ModelSystem, "", "")
		}
	}
	var said []string
	for _, size := range []int{4 << 10, 256 << 10, 4 << 20} {
		if r := ratios[size]; len(r) > 0 {
			slices.Sort(r)
			said = append(said, fmt.Sprintf("%d bytes: %.2f", size, r[len(r)/2]))
		}
	}
	*note = "CPU with siw, the kernel's too, over that with the software stack, " + strings.Join(said, "; ")
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

// offloadCPU is what a job costs.
type offloadCPU struct {
	offload.Cost
	kernel float64 // ms of CPU of the daemon, of the kernel's threads, and in interrupts, some of which are counted twice
}

// median returns the measurement with the median of CPU.
func median(all []offloadCPU) offloadCPU {
	slices.SortFunc(all, func(a, b offloadCPU) int { return cmp.Compare(a.kernel, b.kernel) })
	return all[len(all)/2]
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
type usage struct {
	user, system float64 // of the daemon's processes
	kernel       float64 // these, the kernel's threads, and what ticks have found in interrupts
}

// look reads the guest's counters, for the daemon pid.
func (b *offloadBench) look(pid int) usage {
	b.t.Helper()
	out := b.g.Run(b.t, "cat /proc/stat /proc/[0-9]*/stat 2>/dev/null; true")
	const tick = 100 // a second
	var u usage
	parents, times := map[int]int{}, map[int][2]float64{} // user, system
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 8 && f[0] == "cpu" {
			for _, i := range []int{6, 7} { // irq, softirq
				n, _ := strconv.ParseFloat(f[i], 64)
				u.kernel += n / tick
			}
			continue
		}
		id, rest, ok := strings.Cut(line, " (")
		n, err := strconv.Atoi(id)
		_, rest, ended := strings.Cut(rest, ") ")
		if f := strings.Fields(rest); ok && ended && err == nil && len(f) > 12 {
			parents[n], _ = strconv.Atoi(f[1])
			var all [2]float64
			for i := range all {
				v, _ := strconv.ParseFloat(f[11+i], 64)
				all[i] = v / tick
			}
			times[n] = all
		}
	}
	for n, t := range times {
		at := n
		for at > 2 && at != pid { // 2 is the parent of the kernel's threads
			at = parents[at]
		}
		switch at {
		case pid:
			u.user, u.system = u.user+t[0], u.system+t[1]
			u.kernel += t[0] + t[1]
		case 2:
			u.kernel += t[0] + t[1]
		}
	}
	return u
}

// measure keeps d busy for a while.
func (b *offloadBench) measure(d *offloadDaemon, size, clients int) offloadCPU {
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
	before, here := b.look(d.pid), self()
	var profile *Job
	if d.by == "soft" {
		profile = b.g.Start(b.t, fmt.Sprintf("busybox wget -q -O /share/profile 'http://127.0.0.1:%d/debug/pprof/profile?seconds=%d'", d.http, int(b.length.Seconds())), time.Minute)
	}
	done, err := c.Run(ctx, b.length)
	if err != nil {
		b.t.Fatalf("%s, %d bytes, %d clients: %v", d.by, size, clients, err)
	}
	here = self() - here
	after := b.look(d.pid)
	b.lost += done.Lost
	per := func(seconds float64) float64 { return 1e3 * seconds / float64(done.Jobs) }
	m := offloadCPU{kernel: per(after.kernel - before.kernel)}
	m.Rate, m.Client = float64(done.Jobs)/done.Wall.Seconds(), per(here)
	m.User, m.System = per(after.user-before.user), per(after.system-before.system)
	if profile != nil {
		if out, status := profile.Wait(b.t); status != 0 {
			b.t.Fatalf("profile: exit status %d\n%s", status, out)
		}
		text, err := os.ReadFile(filepath.Join(b.g.dir, "share", "profile"))
		if err != nil {
			b.t.Fatal(err)
		}
		p, err := offload.Read(ctx, text)
		if err != nil {
			b.t.Fatal(err)
		}
		m.Model(p)
	}
	return m
}

// self returns the CPU time of this process, in seconds.
func self() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail for oneself
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
