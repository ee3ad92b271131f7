package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/policy"
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
	slots    prometheus.Counter
	carriers *prometheus.CounterVec
	endings  *prometheus.CounterVec
	cancels  *prometheus.CounterVec
	limits   *prometheus.CounterVec
	panics   prometheus.Counter
	canaries *prometheus.CounterVec
	denials  *prometheus.CounterVec
	copies   *prometheus.CounterVec
	unshared *prometheus.CounterVec
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
		slots: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rdistccd_slot_registrations_total", Help: "Slots registered with the device for a client to write to.",
		}),
		carriers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_carriers_total", Help: "Jobs that arrived, by how their source travels: written into a slot, eager inside the message, or pulled by this host.",
		}, []string{"carrier"}),
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
		copies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_copies_total", Help: "Results of other hosts that managers have asked this host to keep, by what became of that.",
		}, []string{"result"}),
		unshared: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rdistccd_results_unshared_total", Help: "Results that are not kept for the group of their tenant, by reason.",
		}, []string{"why"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rdistccd_panics_total", Help: "Connections and jobs that met a bug in the daemon; its log has the stack.",
		}),
	}
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

// authNetwork is the cause for an address that is in no network of --allow.
const authNetwork = "network"

// Results of jobs, as label values; a job that failed on the host has its cause instead.
const (
	resultOK      = "ok"
	resultRefused = "refused"
	resultSignal  = "signal" // a signal ended the compiler
	resultFailed  = "failed" // the compiler's exit status is not 0
	resultJoined  = "joined" // nothing ran: it is the result of an equal job
)

// Results of canaries.
const (
	canaryPassed = "passed"
	canaryFailed = "failed"
)

// notShared counts a result that is not kept for a group.
func (m *Metrics) notShared(why string) {
	if m != nil {
		m.unshared.WithLabelValues(why).Inc()
	}
}

func (m *Metrics) panicked() {
	if m != nil {
		m.panics.Inc()
	}
}

func (m *Metrics) limited(limit string) {
	if m != nil {
		m.limits.WithLabelValues(limit).Inc()
	}
}

// carried counts a job that has arrived.
func (m *Metrics) carried(c job.Carrier) {
	if m != nil {
		m.carriers.WithLabelValues(c.String()).Inc()
	}
}

// window counts a transfer by RDMA Read: what is "source" or "result".
func (m *Metrics) window(what string) {
	if m != nil {
		m.windows.WithLabelValues(what).Inc()
	}
}

func (m *Metrics) slotRegistered() {
	if m != nil {
		m.slots.Inc()
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

// denial counts a compile that was ended, or whose output was cut.
func (m *Metrics) denial(cause string) {
	if m != nil {
		m.denials.WithLabelValues(cause).Inc()
	}
}

// copied counts a Keep.
func (m *Metrics) copied(c copyResult) {
	if m != nil {
		m.copies.WithLabelValues(string(c)).Inc()
	}
}

// canary counts a canary.
func (m *Metrics) canary(result string) {
	if m != nil {
		m.canaries.WithLabelValues(result).Inc()
	}
}

// answered counts one answer.
func (m *Metrics) answered(t *task, r *job.Result) {
	if m == nil {
		return
	}
	result := outcome(r)
	if result == resultRefused {
		m.refused(r.Cause)
	}
	m.jobs.WithLabelValues(result, policy.Label(t.language)).Inc()
	if !r.Joined && (r.CPU != 0 || r.Wall != 0) {
		m.seconds.Observe(float64(r.Wall) / 1e6)
		m.cpu.Observe(float64(r.CPU) / 1e6)
		m.memory.Observe(float64(r.MaxRSS))
	}
}

// outcome returns what became of a job, in the words of rdistccd_jobs_total.
func outcome(r *job.Result) string {
	switch {
	case r.Status == job.StatusRefused:
		return resultRefused
	case r.Status == job.StatusFailed:
		return r.Cause.String()
	case r.Signal != 0:
		return resultSignal
	case r.Exit != 0:
		return resultFailed
	case r.Joined:
		return resultJoined
	}
	return resultOK
}

func (m *Metrics) connectionEnded(e ending) {
	if m != nil {
		m.endings.WithLabelValues(string(e)).Inc()
	}
}

// cancelled counts jobs that a Cancel named, by where they were.
func (m *Metrics) cancelled(queued, running, unknown int) {
	if m != nil {
		m.cancels.WithLabelValues("queued").Add(float64(queued))
		m.cancels.WithLabelValues("running").Add(float64(running))
		m.cancels.WithLabelValues("unknown").Add(float64(unknown))
	}
}

// ending is why a connection ended: the label of a metric.
type ending string

const (
	endedClosed     ending = "closed"     // by either side, gracefully or not
	endedProtocol   ending = "protocol"   // the client violated the job protocol
	endedStream     ending = "stream"     // the client violated iWARP, and was sent a Terminate
	endedTerminated ending = "terminated" // the client sent a Terminate
	endedSilent     ending = "silent"     // no sign of life for Options.Silence
	endedUnread     ending = "unread"     // no answer to our RDMA Reads for Options.WindowTime
	endedPanic      ending = "panic"      // a bug of ours
	endedUnproven   ending = "unproven"   // no proof of the pre-shared key; AuthFailed was called
	endedCrowded    ending = "crowded"    // proven, but there was no place left
	endedHoarding   ending = "hoarding"   // memory was short, and its slots without a job held the most
)

var endings = []ending{endedClosed, endedProtocol, endedStream, endedTerminated, endedSilent, endedUnread, endedPanic, endedUnproven, endedCrowded, endedHoarding}
