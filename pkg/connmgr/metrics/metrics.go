// Package metrics provides a connection manager's Prometheus time series: counters of jobs, bytes and
// distrusted results, histograms of times, and gauges that are read at each scrape.
//
//	metrics inputs      counters, and the events that they count
//	gauges              what is read at a scrape
//	hosts               which hosts have series of their own
//
// The package knows the manager only as a Source. All of it is safe for concurrent use.
package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Source is where the gauges get their values. The functions are called at each scrape.
type Source struct {
	Status func() report.Status
	Demand func() report.Demand
	Large  func() int64 // returns the bytes of sources and results beyond what slots keep
	Files  func() int   // returns how many files' contents and includes are known
	States []string     // the states of a host's connection, without report.StateUnused
	Doubts []string     // the words for why the inputs of a compile are not known
	// Carriers are the words for how sources travel.
	Carriers []string
	// Tiers are those of the cache of results, and CacheOutcomes the words for what comes of a look into one.
	Tiers, CacheOutcomes []string
	WaitEnds             []string // the words for how waits for other managers' results end
}

// Metrics are the time series.
type Metrics struct {
	*inputMetrics
	*cacheMetrics
	*toolchainMetrics
	from        Source
	hosts       hostLabels
	jobs        *prometheus.CounterVec
	phases      *prometheus.HistogramVec
	traffic     *prometheus.CounterVec
	fallbacks   prometheus.Counter
	twice       *prometheus.CounterVec
	retries     prometheus.Counter
	hedges      *prometheus.CounterVec
	audits      *prometheus.CounterVec
	quarantines *prometheus.CounterVec
	distrusts   *prometheus.CounterVec
	windows     *prometheus.CounterVec
	carriers    *prometheus.CounterVec
	boards      *prometheus.CounterVec
	packing     *prometheus.CounterVec
	digests     *prometheus.CounterVec
	foresight   prometheus.Histogram
	unforeseen  prometheus.Counter
}

// New returns the time series of one manager. They are not registered yet.
func New(from Source) *Metrics {
	x := &Metrics{
		from: from, inputMetrics: newInputMetrics(&from), cacheMetrics: newCacheMetrics(&from), toolchainMetrics: newToolchainMetrics(),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_jobs_total",
			Help: "Commands by where they ran and why; retried ones are counted again where they ended."},
			[]string{"place", "reason", "host", "result"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rdistcc_cm_phase_seconds",
			Help:    "Phases of remote compiles, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 16)}, []string{"phase"}),
		traffic: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_bytes_total",
			Help: "Bytes of sources (out) and results (in)."}, []string{"direction", "host"}),
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_fallbacks_total",
			Help: "Compiles that ran locally because of trouble."}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_retries_total",
			Help: "Jobs given to another host after one failed or refused them."}),
		hedges: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_hedges_total",
			Help: "Late jobs given to a second host, by whether the second host answered first."}, []string{"result"}),
		windows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_windows_total",
			Help: "Sources offered and results fetched by RDMA Read because they were too big for a slot or a sink."}, []string{"what"}),
	}
	x.carriers = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_carriers_total",
		Help: "Jobs sent to hosts, by how their source travels: written into a slot, eager inside the message, or pulled by the host."}, []string{"carrier"})
	for _, word := range from.Carriers {
		x.carriers.WithLabelValues(word)
	}
	x.boards = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_board_reads_total",
		Help: "Load boards of hosts read; a torn one was read during a change."}, []string{"result"})
	x.packing = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_packed_bytes_total",
		Help: "Bytes of sources (out) and results (in) compressed for a slow network: before (plain) and after (packed)."},
		[]string{"direction", "form"})
	x.digests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_digest_errors_total",
		Help: "Sources and results that arrived altered although the network's own checks passed."}, []string{"what"})
	for _, direction := range []string{"out", "in"} {
		x.packing.WithLabelValues(direction, "plain")
		x.packing.WithLabelValues(direction, "packed")
	}
	for _, what := range []string{"source", "result"} {
		x.digests.WithLabelValues(what)
	}
	x.foresight = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "rdistcc_cm_prediction_ratio",
		Help:    "Actual CPU time of remote compiles over the time predicted for their host.",
		Buckets: []float64{0.25, 0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4}})
	x.unforeseen = prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_unpredicted_total",
		Help: "Remote compiles without a prediction."})
	for _, result := range []string{"ok", "torn"} {
		x.boards.WithLabelValues(result)
	}
	x.audits = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_audits_total",
		Help: "Jobs compiled on a second host for comparison, by outcome."}, []string{"result"})
	x.distrusts = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_distrusted_results_total",
		Help: "Results not used: forged, because no compiler makes such a file, or doubtful, so that the command was compiled locally."}, []string{"why"})
	for _, why := range []string{"forged", "doubt"} {
		x.distrusts.WithLabelValues(why)
	}
	x.twice = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_compiled_twice_total",
		Help: "Commands that a host compiled and that then ran locally as well, by reason."}, []string{"reason"})
	for _, reason := range []string{"diagnostics", "doubt"} {
		x.twice.WithLabelValues(reason)
	}
	x.quarantines = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_quarantines_total",
		Help: "Times that an audit found the results of a host wrong and quarantined it."}, []string{"host"})
	for _, result := range report.AuditWords {
		x.audits.WithLabelValues(result)
	}
	for _, result := range []string{"won", "lost"} {
		x.hedges.WithLabelValues(result)
	}
	for _, what := range []string{"source", "result"} {
		x.windows.WithLabelValues(what)
	}
	// The series exist from the start, so that a rate over the first events is right. Those with the label of
	// a host exist once the host is first named (see Host).
	for _, reason := range reason.Labels() {
		for _, result := range []string{resultOK, resultFailed} {
			x.jobs.WithLabelValues("local", reason, "", result)
		}
	}
	for _, result := range []string{resultOK, resultFailed} {
		x.jobs.WithLabelValues(report.PlaceCached, "", "", result)
	}
	for _, phase := range []string{"preprocess", "credit", "write", "compile", "return", "total"} {
		x.phases.WithLabelValues(phase)
	}
	return x
}

// all returns every collector.
func (x *Metrics) all() []prometheus.Collector {
	return append(slices.Concat(x.inputMetrics.collectors(), x.cacheMetrics.collectors(), x.toolchainMetrics.collectors()), x.jobs, x.phases, x.traffic, x.fallbacks, x.retries, x.hedges, x.audits, x.quarantines, x.distrusts,
		x.twice, x.windows, x.carriers, x.boards, x.packing, x.digests, x.foresight, x.unforeseen, x)
}

// Register adds the time series to r, if r is not nil. r may collect them at once.
func (x *Metrics) Register(r prometheus.Registerer) {
	if r != nil {
		r.MustRegister(x.all()...)
	}
}

// Unregister removes the time series from r, if r is not nil.
func (x *Metrics) Unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range x.all() {
		r.Unregister(c)
	}
}

// Results of commands, as label values.
const (
	resultOK      = "ok"
	resultFailed  = "failed"
	resultRetried = "retried"
)

// Host creates the counters of a host at 0, before it has done anything.
func (x *Metrics) Host(addr string) {
	addr = x.hosts.of(addr)
	for _, result := range []string{resultOK, resultFailed, resultRetried} {
		x.jobs.WithLabelValues("remote", "", addr, result)
	}
	for _, direction := range []string{"out", "in"} {
		x.traffic.WithLabelValues(direction, addr)
	}
	x.quarantines.WithLabelValues(addr)
}

// Failed counts an attempt on a host that gave no result.
func (x *Metrics) Failed(host string) {
	x.jobs.WithLabelValues("remote", "", x.hosts.of(host), resultRetried).Inc()
}

// Retried counts a job that went to another host after one had failed or refused it.
func (x *Metrics) Retried() { x.retries.Inc() }

// Hedged counts a late job given to a second host, which answered first ("won") or did not ("lost").
func (x *Metrics) Hedged(result string) { x.hedges.WithLabelValues(result).Inc() }

// Audited counts an audit by its outcome, one of report.AuditWords.
func (x *Metrics) Audited(result string) { x.audits.WithLabelValues(result).Inc() }

// Quarantined counts a quarantine of host.
func (x *Metrics) Quarantined(host string) { x.quarantines.WithLabelValues(x.hosts.of(host)).Inc() }

// Distrusted counts a result that was not used because it was "forged" or in "doubt".
func (x *Metrics) Distrusted(why string) { x.distrusts.WithLabelValues(why).Inc() }

// Damaged counts a "source" or a "result" whose digest is wrong.
func (x *Metrics) Damaged(what string) { x.digests.WithLabelValues(what).Inc() }

// Carrier counts a job that is sent to a host.
func (x *Metrics) Carrier(word string) { x.carriers.WithLabelValues(word).Inc() }

// Fetched counts a "source" or a "result" that is fetched by RDMA Read.
func (x *Metrics) Fetched(what string) { x.windows.WithLabelValues(what).Inc() }

// Board counts a read of a load board, "ok" or "torn".
func (x *Metrics) Board(result string) { x.boards.WithLabelValues(result).Inc() }

// Moved counts the bytes of sources (out) and results (in) that went to and from a host.
func (x *Metrics) Moved(host string, out, in uint64) {
	host = x.hosts.of(host)
	if out > 0 {
		x.traffic.WithLabelValues("out", host).Add(float64(out))
	}
	if in > 0 {
		x.traffic.WithLabelValues("in", host).Add(float64(in))
	}
}

// Packed counts a source (direction "out") or a result ("in") that was compressed from plain to packed bytes.
func (x *Metrics) Packed(plain, packed int, direction string) {
	x.packing.WithLabelValues(direction, "plain").Add(float64(plain))
	x.packing.WithLabelValues(direction, "packed").Add(float64(packed))
}

// Done counts a command that has ended.
func (x *Metrics) Done(r *report.JobRecord) {
	result := resultOK
	if r.Exit != 0 || !r.Finished {
		result = resultFailed
	}
	if r.Local {
		x.jobs.WithLabelValues("local", reason.Label(r.Reason), "", result).Inc()
		if r.Trouble {
			x.fallbacks.Inc()
		}
		if r.Twice {
			x.twice.WithLabelValues(reason.Label(r.Reason)).Inc()
		}
		return
	}
	if r.Place() == report.PlaceCached {
		x.jobs.WithLabelValues(report.PlaceCached, "", "", result).Inc()
		x.SavedCPU(time.Duration(r.CPUUS) * time.Microsecond)
		return
	}
	x.jobs.WithLabelValues("remote", "", x.hosts.of(r.Host), result).Inc()
	if ratio := r.Ratio(); ratio > 0 {
		x.foresight.Observe(ratio)
	} else {
		x.unforeseen.Inc()
	}
	for _, p := range [...]struct {
		phase string
		us    uint32
	}{
		{"preprocess", r.PreprocessUS}, {"credit", r.CreditUS}, {"write", r.WriteUS},
		{"compile", r.CompileUS}, {"return", r.ReturnUS}, {"total", r.TotalUS},
	} {
		x.phases.WithLabelValues(p.phase).Observe((time.Duration(p.us) * time.Microsecond).Seconds())
	}
}
