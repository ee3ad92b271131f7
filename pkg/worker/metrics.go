package worker

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/worker/policy"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// Register adds the metrics and s's gauges to a registry.
func (m *Metrics) Register(r prometheus.Registerer, s *Server) error {
	gauge := func(name, help string, value func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(s.Status()) })
	}
	for _, c := range []prometheus.Collector{
		m.jobs, m.refusals, m.auth, m.seconds, m.cpu, m.memory, m.windows, m.slots, m.carriers, m.endings, m.cancels, m.limits, m.panics, m.canaries, m.denials, m.copies, m.unshared,
		gauge("rdistccd_jobs_running", "Compiles under way.", func(st Status) float64 { return float64(st.Load.Running) }),
		gauge("rdistccd_jobs_queued", "Jobs waiting for a core.", func(st Status) float64 { return float64(st.Load.Queued) }),
		gauge("rdistccd_jobs_waiting", "Jobs that connected managers keep for want of a place, on this host or any other.", func(st Status) float64 { return float64(st.Waiting) }),
		gauge("rdistccd_places", "Compiles that the host runs at a time.", func(st Status) float64 { return float64(st.Load.Jobs) }),
		gauge("rdistccd_toolchains", "Compilers offered to all managers.", func(st Status) float64 { return float64(st.Toolchains) }),
		gauge("rdistccd_toolchains_received", "Compilers that managers have sent, and are offered themselves.", func(st Status) float64 { return float64(st.Received.Toolchains) }),
		gauge("rdistccd_toolchains_received_bytes", "Files of compilers that managers have sent.", func(st Status) float64 { return float64(st.Received.Bytes) }),
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
		gauge("rdistccd_streams", "Open streams, by which peers read metrics, profiles or the log.", func(st Status) float64 { return float64(st.Streams) }),
		gauge("rdistccd_fetched_ahead", "Jobs whose sources are fetched, or being fetched, before they have a place.", func(st Status) float64 { return float64(st.Ahead) }),
		gauge("rdistccd_large_bytes", "Memory of sources and results too big for a slot or a sink.", func(st Status) float64 { return float64(st.Large) }),
		gauge("rdistccd_results_bytes", "Results that managers can read, in memory and in files.", func(st Status) float64 { return float64(st.Results.Bytes) }),
		gauge("rdistccd_results_disk_bytes", "Results that managers can read, in files.", func(st Status) float64 { return float64(st.Results.Disk) }),
		gauge("rdistccd_results_entries", "Results that managers can read.", func(st Status) float64 { return float64(st.Results.Entries) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rdistccd_results_kept_total", Help: "Results kept for managers to read."},
			func() float64 { return float64(s.shelves.Stats().Kept) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rdistccd_results_evictions_total", Help: "Results dropped to make room, or because memory was short."},
			func() float64 { return float64(s.shelves.Stats().Evicted) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rdistccd_results_dropped_total", Help: "Results not kept because the disk was too slow."},
			func() float64 { return float64(s.shelves.Stats().Dropped) }),
		gauge("rdistccd_images", "Precompiled headers that this host has made and keeps.", func(Status) float64 { return float64(s.places.Images.Stats().Images) }),
		gauge("rdistccd_images_bytes", "Their size.", func(Status) float64 { return float64(s.places.Images.Stats().Bytes) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rdistccd_images_made_total", Help: "Precompiled headers made for compiles that use them."},
			func() float64 { return float64(s.places.Images.Stats().Made) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rdistccd_images_failed_total", Help: "Commands that should have made one, and have not."},
			func() float64 { return float64(s.places.Images.Stats().Failed) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rdistccd_images_used_total", Help: "Compiles that found the precompiled header made."},
			func() float64 { return float64(s.places.Images.Stats().Used) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rdistccd_images_evictions_total", Help: "Precompiled headers dropped to make room, because memory was short, or with their tenant."},
			func() float64 { return float64(s.places.Images.Stats().Gone) }),
		gauge("rdistccd_credits", "Credits that managers hold unspent.", func(st Status) float64 {
			n := 0
			for _, c := range st.Clients {
				n += c.Credits
			}
			return float64(n)
		}),
		measures{s}, contents{s}, clustered{s},
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
	results := []string{resultOK, resultRefused, resultSignal, resultFailed, resultJoined}
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
	for _, why := range []string{unsharedName, unsharedToolchain, unsharedInputs, unsharedConfinement, unsharedSignature} {
		m.unshared.WithLabelValues(why)
	}
	for _, result := range []string{canaryPassed, canaryFailed} {
		m.canaries.WithLabelValues(result)
	}
	for _, e := range endings {
		m.endings.WithLabelValues(string(e))
	}
	m.cancelled(0, 0, 0)
	for _, result := range copyResults {
		m.copies.WithLabelValues(string(result))
	}
	for _, what := range []string{"source", "result"} {
		m.windows.WithLabelValues(what)
	}
	for _, word := range job.CarrierNames() {
		m.carriers.WithLabelValues(word)
	}
	for _, limit := range []string{limitConnections, limitQueued, limitYield, limitViolations, limitUnproven, limitSlots} {
		m.limits.WithLabelValues(limit)
	}
	return nil
}

// AuthCauses makes the series for these causes of AuthFailed exist from the start.
func (m *Metrics) AuthCauses(causes []string) {
	for _, c := range causes {
		m.auth.WithLabelValues(c)
	}
}

// log writes the ordinary log's line for a job.
func (t *task) log(res *job.Result, n int) {
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
	if res.Joined {
		attrs = append(attrs, slog.Bool("joined", true))
	}
	t.c.log.LogAttrs(t.c.s.ctx, level, "job", attrs...)
}

// contents collects the metrics of the store, all 0 if there is no store.
type contents struct{ s *Server }

var (
	storeBytesDesc     = prometheus.NewDesc("rdistccd_store_bytes", "Memory of contents that managers have sent, kept for their later jobs.", nil, nil)
	storeTreesDesc     = prometheus.NewDesc("rdistccd_store_tree_bytes", "Memory of files that private trees keep from one job to the next.", nil, nil)
	storeDiskDesc      = prometheus.NewDesc("rdistccd_store_disk_bytes", "Bytes on disk of contents that managers have sent.", nil, nil)
	storeLearntDesc    = prometheus.NewDesc("rdistccd_store_learnt_bytes", "Memory of the compile host's own headers, read before a job named them.", nil, nil)
	storeFilesDesc     = prometheus.NewDesc("rdistccd_store_files", "Contents kept.", nil, nil)
	storeEvictionsDesc = prometheus.NewDesc("rdistccd_store_evictions_total", "Contents dropped to make room.", nil, nil)
	storeHitsDesc      = prometheus.NewDesc("rdistccd_store_hits_total", "Contents named by a job that the host held.", nil, nil)
	storeOwnDesc       = prometheus.NewDesc("rdistccd_store_own_total", "Contents named by a job that the compile host has among its own system headers.", nil, nil)
	storeLacksDesc     = prometheus.NewDesc("rdistccd_store_lacks_total", "Contents named by a job that the host lacked: the job was refused, and is sent again with them.", nil, nil)
)

func (c contents) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storeBytesDesc, storeTreesDesc, storeDiskDesc, storeLearntDesc, storeFilesDesc, storeEvictionsDesc, storeHitsDesc, storeOwnDesc, storeLacksDesc} {
		to <- d
	}
}

func (c contents) Collect(to chan<- prometheus.Metric) {
	st := c.s.storeStats()
	for _, m := range []struct {
		d     *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{storeBytesDesc, prometheus.GaugeValue, float64(st.Bytes)},
		{storeTreesDesc, prometheus.GaugeValue, float64(c.s.places.Kept())},
		{storeDiskDesc, prometheus.GaugeValue, float64(st.DiskBytes)},
		{storeLearntDesc, prometheus.GaugeValue, float64(st.Common)},
		{storeFilesDesc, prometheus.GaugeValue, float64(st.Contents)},
		{storeEvictionsDesc, prometheus.CounterValue, float64(st.Evictions)},
		{storeHitsDesc, prometheus.CounterValue, float64(st.Hits)},
		{storeOwnDesc, prometheus.CounterValue, float64(st.Own)},
		{storeLacksDesc, prometheus.CounterValue, float64(st.Lacks)},
	} {
		to <- prometheus.MustNewConstMetric(m.d, m.kind, m.value)
	}
}

// measures collects a gauge for each measure of package sandbox: 1 if it confines every compile.
type measures struct{ s *Server }

var measureDesc = prometheus.NewDesc("rdistccd_sandbox_measure", "1 if this measure confines every compile.", []string{"measure"}, nil)

func (m measures) Describe(to chan<- *prometheus.Desc) { to <- measureDesc }

func (m measures) Collect(to chan<- prometheus.Metric) {
	held := m.s.Status().Sandbox.Measures
	for i, name := range sandbox.Set(sandbox.All).Names() {
		value := 0.0
		if held.Has(1 << i) {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(measureDesc, prometheus.GaugeValue, value, name)
	}
}
