package connmgr

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// maxHostLabels bounds the values of the label host: whoever may use the manager can
// name hosts without end. A thousand is a large farm.
const maxHostLabels = 1024

// otherHosts is the label of the hosts beyond.
const otherHosts = "other"

// hostLabels are the hosts that have time series of their own: the first ones.
type hostLabels struct {
	mu   sync.Mutex
	seen map[string]bool
}

// of is the label's value for a host.
func (l *hostLabels) of(addr string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen[addr] {
		if len(l.seen) >= maxHostLabels {
			return otherHosts
		}
		if l.seen == nil {
			l.seen = make(map[string]bool)
		}
		l.seen[addr] = true
	}
	return addr
}

// metrics are the manager's time series. Gauges are read at each scrape.
type metrics struct {
	*inputMetrics
	m           *Manager
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
	boards      *prometheus.CounterVec
	packing     *prometheus.CounterVec
	digests     *prometheus.CounterVec
	foresight   prometheus.Histogram
	unforeseen  prometheus.Counter
}

var (
	descHosts       = prometheus.NewDesc("rdistcc_cm_hosts", "Hosts named by any host list, by the state of their connection.", []string{"state"}, nil)
	descConnections = prometheus.NewDesc("rdistcc_cm_connections", "Live connections to hosts.", []string{"host"}, nil)
	descCredits     = prometheus.NewDesc("rdistcc_cm_credits", "Unspent credits: jobs that can be placed at once.", []string{"host"}, nil)
	descSlots       = prometheus.NewDesc("rdistcc_cm_slots", "Slots of shared memory: leased to a wrapper, or kept ready.", []string{"state"}, nil)
	descLarge       = prometheus.NewDesc("rdistcc_cm_large_bytes", "Memory of sources beyond what slots keep, of copies of other users' sources, and of results too big for a sink.", nil, nil)
	descViewAge     = prometheus.NewDesc("rdistcc_cm_view_age_seconds", "Age of the last known load of a host.", []string{"host"}, nil)
	descRunning     = prometheus.NewDesc("rdistcc_cm_running", "This manager's jobs on a host or on the way there.", []string{"host"}, nil)
	descPlaces      = prometheus.NewDesc("rdistcc_cm_places", "Compiles that a connected host runs at a time, for all managers.", []string{"host"}, nil)
	descDemand      = prometheus.NewDesc("rdistcc_cm_demand", "Jobs that this manager told a host it could use places for.", []string{"host"}, nil)
	descRTT         = prometheus.NewDesc("rdistcc_cm_link_rtt_seconds", "Round trip to a host, as TCP measures it.", []string{"host"}, nil)
	descRate        = prometheus.NewDesc("rdistcc_cm_link_bytes_per_second", "Measured rate of the link to a host, in bytes a second.", []string{"host"}, nil)
	descSpeed       = prometheus.NewDesc("rdistcc_cm_host_speed", "Speed of one core of a host, learned from compiles, relative to the average.", []string{"host"}, nil)
	descDrained     = prometheus.NewDesc("rdistcc_cm_drained", "Hosts drained with rdistcc drain.", nil, nil)
	descWaiting     = prometheus.NewDesc("rdistcc_cm_waiting", "Commands waiting for a credit or for a turn on the build host.", []string{"for"}, nil)
)

func newMetrics(m *Manager) *metrics {
	x := &metrics{
		m: m, inputMetrics: newInputMetrics(m),
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
	for _, result := range []string{auditSame, auditDiffers, auditUnsound, auditOpen, auditVoid} {
		x.audits.WithLabelValues(result)
	}
	for _, result := range []string{"won", "lost"} {
		x.hedges.WithLabelValues(result)
	}
	for _, what := range []string{"source", "result"} {
		x.windows.WithLabelValues(what)
	}
	// There from the start, so that a rate over the first events is right. What has a host's
	// label is there from when the host is first named (host).
	for _, reason := range reason.Labels() {
		for _, result := range []string{resultOK, resultFailed} {
			x.jobs.WithLabelValues("local", reason, "", result)
		}
	}
	for _, phase := range []string{"preprocess", "credit", "write", "compile", "return", "total"} {
		x.phases.WithLabelValues(phase)
	}
	return x
}

func (x *metrics) register(r prometheus.Registerer) {
	if r != nil {
		r.MustRegister(x.jobs, x.phases, x.traffic, x.fallbacks, x.retries, x.hedges, x.audits, x.quarantines, x.distrusts, x.twice, x.windows, x.boards, x.packing, x.digests, x.foresight, x.unforeseen, x)
		r.MustRegister(x.collectors()...)
	}
}

func (x *metrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range append(x.collectors(), x.jobs, x.phases, x.traffic, x.fallbacks, x.retries, x.hedges, x.audits, x.quarantines, x.distrusts, x.twice, x.windows, x.boards, x.packing, x.digests, x.foresight, x.unforeseen, x) {
		r.Unregister(c)
	}
}

// Results of commands, as label values.
const (
	resultOK      = "ok"
	resultFailed  = "failed"
	resultRetried = "retried"
)

// host has the counters of a host there before it has done anything.
func (x *metrics) host(addr string) {
	addr = x.hosts.of(addr)
	for _, result := range []string{resultOK, resultFailed, resultRetried} {
		x.jobs.WithLabelValues("remote", "", addr, result)
	}
	for _, direction := range []string{"out", "in"} {
		x.traffic.WithLabelValues(direction, addr)
	}
	x.quarantines.WithLabelValues(addr)
}

// hedged counts a second host that was first, or was not.
func (x *metrics) hedged(result string) { x.hedges.WithLabelValues(result).Inc() }

// bytes counts payload to and from a host.
func (x *metrics) bytes(host string, out, in uint64) {
	host = x.hosts.of(host)
	if out > 0 {
		x.traffic.WithLabelValues("out", host).Add(float64(out))
	}
	if in > 0 {
		x.traffic.WithLabelValues("in", host).Add(float64(in))
	}
}

// packed counts a source or a result that was packed.
func (x *metrics) packed(plain, packed int, direction string) {
	x.packing.WithLabelValues(direction, "plain").Add(float64(plain))
	x.packing.WithLabelValues(direction, "packed").Add(float64(packed))
}

// done counts a command that has ended.
func (x *metrics) done(r *report.JobRecord) {
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

// Describe implements prometheus.Collector.
func (x *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- descHosts
	ch <- descConnections
	ch <- descCredits
	ch <- descSlots
	ch <- descWaiting
	ch <- descLarge
	ch <- descViewAge
	for _, d := range []*prometheus.Desc{descRunning, descPlaces, descDemand, descRTT, descRate, descSpeed, descDrained} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (x *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), label)
	}
	s := x.m.Status()
	states := make(map[string]int)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		states[h.State]++
		x.host(h.Addr)
		if x.hosts.of(h.Addr) != h.Addr {
			continue // gauges of several hosts are no sum
		}
		gauge(descConnections, h.Links, h.Addr)
		gauge(descCredits, h.Credits, h.Addr)
		gauge(descRunning, h.Running, h.Addr)
		gauge(descPlaces, h.Jobs, h.Addr)
		gauge(descDemand, h.Demand, h.Addr)
		for _, x := range [...]struct {
			desc  *prometheus.Desc
			value float64
		}{{descRTT, float64(h.RTTUS) / 1e6}, {descRate, h.Rate}, {descSpeed, h.Speed}} {
			if x.value > 0 { // it is not known at once
				ch <- prometheus.MustNewConstMetric(x.desc, prometheus.GaugeValue, x.value, h.Addr)
			}
		}
		if h.Load != nil {
			ch <- prometheus.MustNewConstMetric(descViewAge, prometheus.GaugeValue, float64(h.LoadAgeMS)/1000, h.Addr)
		}
	}
	gauge(descHosts, states[report.StateUnused], report.StateUnused)
	for _, state := range farm.States() {
		gauge(descHosts, states[state.String()], state.String())
	}
	ch <- prometheus.MustNewConstMetric(descLarge, prometheus.GaugeValue, float64(x.m.memory.largeUsed.Load()))
	ch <- prometheus.MustNewConstMetric(descDrained, prometheus.GaugeValue, float64(len(s.Drained)))
	gauge(descSlots, s.Slots.Leased, "leased")
	gauge(descSlots, s.Slots.Free, "free")
	gauge(descWaiting, s.Waiting.Credit, "credit")
	gauge(descWaiting, s.Waiting.Preprocess, "preprocess")
	gauge(descWaiting, s.Waiting.Local, "local")
}
