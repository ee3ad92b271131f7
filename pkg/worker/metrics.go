package worker

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/policy"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// Metrics counts what a Server does. A nil *Metrics counts nothing.
type Metrics struct {
	jobs     *prometheus.CounterVec
	refusals *prometheus.CounterVec
	auth     *prometheus.CounterVec
	seconds  prometheus.Histogram
	cpu      prometheus.Histogram
	memory   prometheus.Histogram
	windows  *prometheus.CounterVec
	endings  *prometheus.CounterVec
	cancels  *prometheus.CounterVec
	limits   *prometheus.CounterVec
	panics   prometheus.Counter
	canaries *prometheus.CounterVec
	denials  *prometheus.CounterVec
}

// NewMetrics returns new metrics. Register adds them to a registry, together with a server's gauges.
func NewMetrics() *Metrics {
	return &Metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_jobs_total", Help: "Jobs answered, by result and language.",
		}, []string{"result", "language"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_refusals_total", Help: "Jobs and connections refused, by cause.",
		}, []string{"cause"}),
		auth: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_auth_failures_total", Help: "Peers that may not use this host, by cause.",
		}, []string{"cause"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rdistccd_compile_seconds", Help: "Wall time of compiles.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 15),
		}),
		cpu: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rdistccd_compile_cpu_seconds", Help: "CPU time of compiles.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 15),
		}),
		memory: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rdistccd_compile_memory_bytes", Help: "Largest resident set of the programs of a compile.",
			Buckets: prometheus.ExponentialBuckets(8<<20, 2, 11),
		}),
		windows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_windows_total", Help: "Sources fetched and results offered by RDMA Read because they were too big for a slot or a sink.",
		}, []string{"what"}),
		endings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_connections_ended_total", Help: "Connections that ended, by cause.",
		}, []string{"cause"}),
		cancels: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_cancels_total", Help: "Jobs that clients cancelled, by where they were; unknown ones had been answered already, or are not the client's.",
		}, []string{"job"}),
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_client_limits_total", Help: "Connections, jobs and cores that a tenant was denied for the sake of others, by limit.",
		}, []string{"limit"}),
		canaries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_sandbox_canaries_total", Help: "Probes of the sandbox that confines compiles, by result.",
		}, []string{"result"}),
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_sandbox_denials_total", Help: "Compiles ended, or output cut, because of a limit or a forbidden call, by cause.",
		}, []string{"cause"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rdistccd_panics_total", Help: "Connections and jobs that met a bug in the daemon; its log has the stack.",
		}),
	}
}

func (m *Metrics) panicked() {
	if m != nil {
		m.panics.Inc()
	}
}

// Register adds the metrics and s's gauges to a registry.
func (m *Metrics) Register(r prometheus.Registerer, s *Server) error {
	gauge := func(name, help string, value func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(s.Status()) })
	}
	for _, c := range []prometheus.Collector{
		m.jobs, m.refusals, m.auth, m.seconds, m.cpu, m.memory, m.windows, m.endings, m.cancels, m.limits, m.panics, m.canaries, m.denials,
		gauge("rdistccd_jobs_running", "Compiles under way.", func(st Status) float64 { return float64(st.Load.Running) }),
		gauge("rdistccd_jobs_queued", "Jobs waiting for a core.", func(st Status) float64 { return float64(st.Load.Queued) }),
		gauge("rdistccd_toolchains", "Compilers offered to managers.", func(st Status) float64 { return float64(st.Toolchains) }),
		gauge("rdistccd_identifying", "1 while compilers are still being identified after a start.", func(st Status) float64 {
			if st.Identifying {
				return 1
			}
			return 0
		}),
		gauge("rdistccd_tree", "1 if the host can show private trees, so that it accepts jobs that depend on paths.", func(st Status) float64 {
			if st.Tree {
				return 1
			}
			return 0
		}),
		gauge("rdistccd_sandbox_level", "Level of confinement that canaries have shown: 0 off, 1 partial, 2 confined, 3 full.",
			func(st Status) float64 { return float64(st.Sandbox.Measures.Level()) }),
		gauge("rdistccd_clients", "Connected managers.", func(st Status) float64 { return float64(len(st.Clients)) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rdistccd_audit_lost_total", Help: "Lines of the audit log that could not be written."},
			func() float64 { return float64(s.o.Audit.Lost()) }),
		gauge("rdistccd_tenants", "Tenants of the connected managers: names in certificates, or addresses.", func(st Status) float64 { return float64(st.Tenants) }),
		gauge("rdistccd_large_bytes", "Memory of sources and results too big for a slot or a sink.", func(st Status) float64 { return float64(st.Large) }),
		gauge("rdistccd_credits", "Credits that managers hold unspent.", func(st Status) float64 {
			n := 0
			for _, c := range st.Clients {
				n += c.Credits
			}
			return float64(n)
		}),
		measures{s}, contents{s},
	} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	// All series exist from the start: a rate over a series that appears with its first count misses that
	// count.
	for c := job.CauseToolchain; c <= job.CauseVersion; c++ {
		m.refusals.WithLabelValues(c.String())
	}
	for _, c := range []job.Cause{job.CauseTree, job.CauseMemory, job.CauseSandbox, job.CauseLacks} {
		m.refusals.WithLabelValues(c.String())
	}
	results := []string{resultOK, resultRefused, resultSignal, resultFailed}
	for _, c := range []job.Cause{job.CauseTimeout, job.CauseCancelled, job.CauseTooBig, job.CauseDisk, job.CauseInternal,
		job.CauseUndeclared, job.CauseDigest, job.CauseMemory, job.CauseLimit} {
		results = append(results, c.String())
	}
	for _, result := range results {
		for _, language := range policy.Labels() {
			m.jobs.WithLabelValues(result, language)
		}
	}
	for _, cause := range authCauses {
		m.auth.WithLabelValues(cause)
	}
	for _, cause := range run.Denials() {
		m.denials.WithLabelValues(cause)
	}
	for _, result := range []string{canaryPassed, canaryFailed} {
		m.canaries.WithLabelValues(result)
	}
	for _, e := range endings {
		m.endings.WithLabelValues(string(e))
	}
	m.cancelled(0, 0, 0)
	for _, what := range []string{"source", "result"} {
		m.windows.WithLabelValues(what)
	}
	for _, limit := range []string{limitConnections, limitQueued, limitYield, limitViolations, limitUnproven, limitSlots} {
		m.limits.WithLabelValues(limit)
	}
	return nil
}

// Limits that a tenant or peer can reach, as label values.
const (
	limitConnections = "connections" // half of limits.clients
	limitViolations  = "violations"  // of iWARP or the job protocol: the peer is turned away for a while
	limitQueued      = "queued"      // limits.client-queued
	limitUnproven    = "unproven"    // a connection without a proof of the key had to make room for another
	limitSlots       = "slots"       // memory was short, and its slots without a job held the most: a connection was ended
	limitYield       = "yield"       // it had more than its part of the cores while another tenant waited
)

func (m *Metrics) limited(limit string) {
	if m != nil {
		m.limits.WithLabelValues(limit).Inc()
	}
}

// window counts a transfer by RDMA Read: what is "source" or "result".
func (m *Metrics) window(what string) {
	if m != nil {
		m.windows.WithLabelValues(what).Inc()
	}
}

// authNetwork is the cause for an address that is in no network of --allow.
const authNetwork = "network"

// AuthCauses makes the series for these causes of AuthFailed exist from the start.
func (m *Metrics) AuthCauses(causes []string) {
	for _, c := range causes {
		m.auth.WithLabelValues(c)
	}
}

// AuthFailed counts a peer that may not use this host, by cause.
func (m *Metrics) AuthFailed(cause string) {
	if m != nil {
		m.auth.WithLabelValues(cause).Inc()
	}
}

func (m *Metrics) refused(c job.Cause) {
	if m != nil {
		m.refusals.WithLabelValues(c.String()).Inc()
	}
}

// Results of jobs, as label values; a job that failed on the host has its cause instead.
const (
	resultOK      = "ok"
	resultRefused = "refused"
	resultSignal  = "signal" // a signal ended the compiler
	resultFailed  = "failed" // the compiler's exit status is not 0
)

// answered counts one answer.
func (m *Metrics) answered(t *task, r *job.Result) {
	if m == nil {
		return
	}
	result := resultOK
	switch {
	case r.Status == job.StatusRefused:
		result = resultRefused
		m.refused(r.Cause)
	case r.Status == job.StatusFailed:
		result = r.Cause.String()
	case r.Signal != 0:
		result = resultSignal
	case r.Exit != 0:
		result = resultFailed
	}
	m.jobs.WithLabelValues(result, policy.Label(t.language)).Inc()
	if r.CPU != 0 || r.Wall != 0 {
		m.seconds.Observe(float64(r.Wall) / 1e6)
		m.cpu.Observe(float64(r.CPU) / 1e6)
		m.memory.Observe(float64(r.MaxRSS))
	}
}

// log writes the ordinary log's line for a job.
func (r *runner) log(t *task, res *job.Result, n int) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.Uint64("job", t.m.ID),
		slog.String("toolchain", t.job.Toolchain.Family+"-"+t.job.Toolchain.Version),
		slog.String("source", t.source),
		slog.Uint64("text", t.size()),
		slog.Int("result", n),
		slog.Int("exit", int(res.Exit)),
		slog.Uint64("queue_us", uint64(res.Queue)),
		slog.Uint64("wall_us", uint64(res.Wall)),
		slog.Uint64("cpu_us", uint64(res.CPU)),
		slog.Uint64("rss", res.MaxRSS),
	}
	if t.files > 0 {
		attrs = append(attrs, slog.Int("files", t.files))
	}
	if res.Signal != 0 {
		attrs = append(attrs, slog.Int("signal", int(res.Signal)))
	}
	if res.Status != job.StatusRan {
		if level = slog.LevelWarn; res.Cause == job.CauseLacks { // the client sends the job again
			level = slog.LevelInfo
		}
		attrs = append(attrs, slog.String("cause", res.Cause.String()), slog.String("detail", res.Detail))
	}
	t.c.log.LogAttrs(r.s.ctx, level, "job", attrs...)
}
