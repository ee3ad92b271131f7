package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// gathered returns the value of a metric's series with that label value, "" for a metric without labels.
func gathered(t *testing.T, ts *testServer, name, label string) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := ts.o.Metrics.Register(r, ts.Server); err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		metric, labels, _ := strings.Cut(series, "{")
		if metric != name || label != "" && !strings.HasSuffix(labels, `="`+label+`"}`) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Fatalf("no metric %s %s", name, label)
	return 0
}

// TestCanaryBeforeTheFirstJob: each runner has passed a canary when the server has started, and the measures
// are reported everywhere.
func TestCanaryBeforeTheFirstJob(t *testing.T) {
	part.Skip(t)
	confined(t, func(t *testing.T, on func(*Options)) {
		ts := startServer(t, func(o *Options) { on(o); o.Jobs = 3 })
		ts.needLevel(sandbox.Confined)
		st := ts.Status().Sandbox
		if st.Breach != "" {
			t.Fatalf("breach: %s", st.Breach)
		}
		if got := gathered(t, ts, "rdistccd_sandbox_canaries_total", canaryPassed); got != 3 {
			t.Errorf("%v canaries passed, want 3", got)
		}
		if got := gathered(t, ts, "rdistccd_sandbox_level", ""); got != float64(st.Measures.Level()) {
			t.Errorf("level is %v, want %v", got, st.Measures.Level())
		}
		for i, name := range sandbox.Set(sandbox.All).Names() {
			if got := gathered(t, ts, "rdistccd_sandbox_measure", name); (got == 1) != st.Measures.Has(1<<i) {
				t.Errorf("measure %s is %v, and %v hold", name, got, st.Measures)
			}
		}
		if log := ts.log.String(); !strings.Contains(log, `msg="compiles are confined" level=`+st.Measures.Level().String()) {
			t.Error("the log does not tell of the level")
		}
		if c := dial(t, ts.addr, &job.Hello{}); sandbox.Set(c.welcome.Sandbox) != st.Measures {
			t.Errorf("the welcome tells of %v", sandbox.Set(c.welcome.Sandbox))
		}
	})
}

// TestCanaryFindsALeak: in a tree that does not confine commands, the probe finds what is reachable, and the
// verdict puts the measures against it in doubt.
func TestCanaryFindsALeak(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Sandbox, o.Jobs = SandboxAuto, 1 })
	ts.needLevel(sandbox.Confined)
	r := leaky(t, ts)
	v := r.canary(t.Context(), ts.shown.Load())
	if len(v.reachable) == 0 || v.broken != nil || !v.doubt.Has(sandbox.Seccomp) {
		t.Errorf("found %q, doubts %v", v, v.doubt)
	}
}

// leaky returns another runner of a server, whose place does not confine.
func leaky(t *testing.T, ts *testServer) *runner {
	t.Helper()
	r, err := newRunner(ts.Server, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	r.place.Confine = false
	if ts.places.Bare {
		need.Skipf(t, need.Sandbox, "needs the right to make namespaces")
	}
	return r
}

// TestBreach: after a canary has found a leak, a strict host takes no work, and others report fewer measures,
// until every runner has passed a canary again.
func TestBreach(t *testing.T) {
	part.Skip(t)
	for _, mode := range []SandboxMode{SandboxAuto, SandboxStrict} {
		t.Run(mode.String(), func(t *testing.T) {
			ts := startServer(t, func(o *Options) { o.Sandbox, o.Jobs = SandboxAuto, 2 })
			ts.needLevel(sandbox.Confined)
			ts.o.Sandbox = mode
			before := ts.Status().Sandbox.Measures
			r := &runner{s: ts.Server, i: 0}
			v := &verdict{held: before, reachable: []string{"tcp-connect"}, doubt: sandbox.Network | sandbox.Seccomp}
			err := ts.judged(r, v, 0)
			c := dial(t, ts.addr, nil)
			c.send(&job.Hello{})
			c.wait("the welcome", func() bool { return c.welcome != nil })
			st := ts.Status().Sandbox
			if st.Measures.Level() != sandbox.Partial || st.Breach != "reachable: tcp-connect" || sandbox.Set(c.welcome.Sandbox) != st.Measures {
				t.Errorf("after a breach: %+v, the welcome tells of %v", st, sandbox.Set(c.welcome.Sandbox))
			}
			if !strings.Contains(ts.log.String(), "the sandbox leaks") || gathered(t, ts, "rdistccd_sandbox_canaries_total", canaryFailed) != 1 {
				t.Error("nobody is told of the breach")
			}
			ts.mu.Lock()
			ts.cage.told = false
			ts.mu.Unlock()
			ts.tellSandbox() // as at a start whose canary fails
			if log := ts.log.String(); !strings.Contains(log, "seccomp: in doubt") || strings.Contains(log, "CONFIG_SECCOMP_FILTER") {
				t.Errorf("of a measure in doubt the log says that the kernel has it not: %s", log)
			}
			if ready := ts.Ready(); (mode == SandboxStrict) != (err != nil) || (err != nil) != (ready != nil) {
				t.Errorf("a job may run: %v; ready: %v", err, ready)
			}
			var no *job.Refusal
			if err != nil && (!errors.As(err, &no) || no.Cause != job.CauseSandbox) {
				t.Errorf("refused by %v", err)
			}
			// A minute later every runner is asked again, and passes.
			ts.mu.Lock()
			ts.canariesLocked(time.Now().Add(2 * canaryAgain))
			ts.mu.Unlock()
			until(t, "the runners to pass", func() bool { return ts.Status().Sandbox.Breach == "" })
			if st := ts.Status().Sandbox; st.Measures != before || ts.Ready() != nil {
				t.Errorf("after all have passed: %+v, %v", st, ts.Ready())
			}
		})
	}
}

// TestStrictRefusesJobsWhenItHasLost: a job that came before the host stopped taking work is refused with the
// reason.
func TestStrictRefusesJobsWhenItHasLost(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Sandbox, o.Jobs = SandboxAuto, 1 })
	ts.needLevel(sandbox.Confined)
	c := dial(t, ts.addr, &job.Hello{})
	ts.o.Sandbox = SandboxStrict
	ts.mu.Lock()
	ts.cage.lost = job.Refuse(job.CauseSandbox, "reachable: tcp-connect")
	ts.lend.Close(ts.cage.lost)
	ts.mu.Unlock()
	r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello})
	if r.Status != job.StatusRefused || r.Cause != job.CauseSandbox || !strings.Contains(r.Detail, "tcp-connect") {
		t.Errorf("answer %+v", r.Result)
	}
}

// TestStrictNeedsASandbox: in strict mode, a server that cannot confine enough does not start, and says what is
// missing.
func TestStrictNeedsASandbox(t *testing.T) {
	held := sandbox.Set(sandbox.Landlock | sandbox.NoNewPrivs | sandbox.Bounds)
	text := remedies(held)
	if !strings.Contains(text, "lacks seccomp (") || !strings.Contains(text, "CONFIG_SECCOMP_FILTER") || strings.Contains(text, "landlock") {
		t.Errorf("remedies of %v: %s", held, text)
	}
	if text := remedies(sandbox.Seccomp | sandbox.NoNewPrivs | sandbox.Bounds); !strings.Contains(text, "tree or landlock") || !strings.Contains(text, "private trees") || !strings.Contains(text, "5.13") {
		t.Errorf("remedies: %s", text)
	}
}

// TestCanarySchedule: canaries come at random, at the right rate on average, and never two at once.
func TestCanarySchedule(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2)).Float64
	s := schedule{mean: 10 * time.Minute}
	start := time.Unix(0, 0)
	var last time.Time
	n, short, long := 0, 0, 0
	const days = 100
	for now := start; now.Before(start.Add(days * 24 * time.Hour)); now = now.Add(time.Second) {
		if !s.due(now, chance) {
			continue
		}
		if n++; n == 1 {
			last = now
			continue
		}
		switch gap := now.Sub(last); {
		case gap < 2*time.Minute:
			short++
		case gap > 30*time.Minute:
			long++
		}
		last = now
	}
	if per := float64(n) / (days * 144); per < 0.97 || per > 1.03 {
		t.Errorf("%d canaries in %d days", n, days)
	}
	// Of an exponential distribution 18 % are below a fifth of the mean, 5 % above three times it.
	if s, l := float64(short)/float64(n), float64(long)/float64(n); s < 0.16 || s > 0.20 || l < 0.04 || l > 0.06 {
		t.Errorf("%.3f of the gaps are short, %.3f long", s, l)
	}
}

// TestCanaryOnAnIdleRunner: a canary that is due runs on an idle runner, and only once.
func TestCanaryOnAnIdleRunner(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Sandbox, o.Jobs = SandboxAuto, 2 })
	ts.needLevel(sandbox.Confined)
	before := gathered(t, ts, "rdistccd_sandbox_canaries_total", canaryPassed)
	ts.mu.Lock()
	ts.cage.schedule.next = time.Unix(1, 0)
	ts.canariesLocked(time.Now())
	wanted := ts.cage.wanted
	ts.mu.Unlock()
	if !wanted {
		t.Error("a canary that is due is not wanted")
	}
	passed := func() float64 { return gathered(t, ts, "rdistccd_sandbox_canaries_total", canaryPassed) }
	until(t, "the canary", func() bool { return passed() == before+1 })
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("after the canary: %+v", r.Result)
	}
	if got := passed(); got != before+1 {
		t.Errorf("%v canaries, want one more than %v", got, before)
	}
}

// TestNoToolchainNoCanary: a host without compilers starts, and runs canaries once there are some.
func TestNoToolchainNoCanary(t *testing.T) {
	ts := startServer(t, func(o *Options) {
		o.Sandbox, o.Jobs = SandboxAuto, 1
		if err := os.Remove(o.Dirs[0] + "/gcc"); err != nil {
			t.Fatal(err)
		}
	})
	if got := gathered(t, ts, "rdistccd_sandbox_canaries_total", canaryPassed); got != 0 {
		t.Errorf("%v canaries without a compiler", got)
	}
	ts.link("gcc")
	if err := ts.Rescan(context.Background()); err != nil {
		t.Fatal(err)
	}
	ts.needLevel(sandbox.Confined)
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("the first job: %+v", r.Result)
	}
	if got := gathered(t, ts, "rdistccd_sandbox_canaries_total", canaryPassed); got != 1 {
		t.Errorf("%v canaries before the first job, want 1", got)
	}
}

// TestCanaryStaysWithWhatIsShown: compilers that become known while a canary runs are neither in its tree nor
// part of its verdict.
func TestCanaryStaysWithWhatIsShown(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Sandbox, o.Jobs = SandboxAuto, 1 })
	ts.needLevel(sandbox.Confined)
	shown := ts.shown.Load()
	ts.fake("cc", "cp $0 $out") // listed before gcc
	if first := ts.Toolchains()[0].Exec; !strings.HasSuffix(first, "/cc") {
		t.Fatalf("%s is listed first", first)
	}
	r, err := newRunner(ts.Server, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	if ts.places.Bare {
		t.Skip("needs the right to make namespaces")
	}
	r.place.Confine = true
	if v := r.canary(t.Context(), shown); v.broken != nil || len(v.reachable) > 0 {
		t.Errorf("verdict: %v", v)
	}
}

// TestCanaryAndCompilers: the sandbox is not blamed for a compiler that was replaced since the tree was made, nor for one
// that leaves so much behind that the tree has to be made again.
func TestCanaryAndCompilers(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Sandbox, o.Jobs = SandboxAuto, 1 })
	ts.needLevel(sandbox.Confined)
	if ts.places.Bare {
		t.Skip("needs the right to make namespaces")
	}
	ts.fake("cc", "i=0; while [ $i -lt 20000 ]; do : >/tmp/$i; i=$((i+1)); done; exit 1") // listed before gcc
	shown := ts.shown.Load()
	r, err := newRunner(ts.Server, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	r.place.Confine = true
	if err := r.honest(shown); err != nil {
		t.Errorf("with a compiler that litters, and another one: %v", err)
	}
	only := &display{shown.spec, shown.list[:1]}
	if err := r.honest(only); err == nil {
		t.Error("it is honest where nothing compiles")
	}
	upgraded := filepath.Join(ts.bin, "new")
	if err := os.WriteFile(upgraded, []byte("#!/bin/sh\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(upgraded, filepath.Join(ts.bin, "cc")); err != nil {
		t.Fatal(err)
	}
	if err := r.honest(only); err != nil {
		t.Errorf("with a compiler that was replaced: %v", err)
	}
}
