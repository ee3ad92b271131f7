package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// inputMetrics are the time series about what compiles read.
type inputMetrics struct {
	how    *prometheus.CounterVec
	doubts *prometheus.CounterVec
	bytes  *prometheus.CounterVec
	lacks  prometheus.Counter
	filesN prometheus.GaugeFunc
}

func newInputMetrics(from *Source) *inputMetrics {
	x := &inputMetrics{
		how: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_inputs_total",
			Help: "Jobs by how the manager knew what they read: from the files (scan), from an earlier list (memo), from the compiler (list), or not at all, as preprocessed text (text)."},
			[]string{"how"}),
		doubts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_input_doubts_total",
			Help: "Jobs whose inputs the manager did not know, so that the compiler on the build host was asked, by reason."}, []string{"why"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_input_bytes_total",
			Help: "Bytes of files that jobs read in addition to their source: already held by the host, or sent."}, []string{"result"}),
		lacks: prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_input_lacks_total",
			Help: "Jobs sent again because their host no longer held a file."}),
		filesN: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rdistcc_cm_input_files",
			Help: "Files whose contents and includes the manager knows."}, func() float64 { return float64(from.Files()) }),
	}
	for _, how := range report.InputWords {
		x.how.WithLabelValues(how)
	}
	for _, why := range from.Doubts {
		x.doubts.WithLabelValues(why)
	}
	for _, result := range []string{"held", "sent"} {
		x.bytes.WithLabelValues(result)
	}
	return x
}

func (x *inputMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{x.how, x.doubts, x.bytes, x.lacks, x.filesN}
}

// Inputs counts a job by how the manager knew what it reads, one of report.InputWords.
func (x *inputMetrics) Inputs(how string) { x.how.WithLabelValues(how).Inc() }

// Doubted counts a job by why the manager did not know what it reads, one of Source.Doubts.
func (x *inputMetrics) Doubted(why string) { x.doubts.WithLabelValues(why).Inc() }

// Carried counts the bytes of the files that a job reads in addition to its source: those that were sent to
// its host and those that the host held.
func (x *inputMetrics) Carried(sent, held uint64) {
	x.bytes.WithLabelValues("sent").Add(float64(sent))
	x.bytes.WithLabelValues("held").Add(float64(held))
}

// Lacked counts a job that is sent again because its host no longer held a file.
func (x *inputMetrics) Lacked() { x.lacks.Inc() }
