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
			Help: "Jobs by how it was known what they read: by a look at the files (scan), as the compiler had said so before (memo), as it was asked (list), or as preprocessed text."},
			[]string{"how"}),
		doubts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_input_doubts_total",
			Help: "Jobs of which the manager did not know what they read, so that the compiler here was asked, by why."}, []string{"why"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_input_bytes_total",
			Help: "Bytes of files that jobs read beside their source: those that the host held, and those that were sent."}, []string{"result"}),
		lacks: prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_input_lacks_total",
			Help: "Jobs that were sent again as their host did not hold a file any more."}),
		filesN: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rdistcc_cm_input_files",
			Help: "Files of which it is known what they hold and name."}, func() float64 { return float64(from.Files()) }),
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

// Inputs counts a job by how it was known what it reads.
func (x *inputMetrics) Inputs(how string) { x.how.WithLabelValues(how).Inc() }

// Doubted counts a job by why it was not known what it reads.
func (x *inputMetrics) Doubted(why string) { x.doubts.WithLabelValues(why).Inc() }

// Carried counts the files that a job reads beside its source, in bytes: those that were sent to its host, and those that
// it held.
func (x *inputMetrics) Carried(sent, held uint64) {
	x.bytes.WithLabelValues("sent").Add(float64(sent))
	x.bytes.WithLabelValues("held").Add(float64(held))
}

// Lacked counts a job that is sent again, as its host did not hold a file any more.
func (x *inputMetrics) Lacked() { x.lacks.Inc() }
