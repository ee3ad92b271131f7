package connmgr

import "github.com/prometheus/client_golang/prometheus"

// inputMetrics are the time series about what compiles read.
type inputMetrics struct {
	how    *prometheus.CounterVec
	bytes  *prometheus.CounterVec
	lacks  prometheus.Counter
	filesN prometheus.GaugeFunc
}

// howWords are the ways to know what a compile reads.
var howWords = []string{"scan", "memo", "list", "text"}

func newInputMetrics(m *Manager) *inputMetrics {
	x := &inputMetrics{
		how: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_inputs_total",
			Help: "Jobs by how it was known what they read: by a look at the files (scan), as the compiler had said so before (memo), as it was asked (list), or as preprocessed text."},
			[]string{"how"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_input_bytes_total",
			Help: "Bytes of files that jobs read beside their source: those that the host held, and those that were sent."}, []string{"result"}),
		lacks: prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_input_lacks_total",
			Help: "Jobs that were sent again as their host did not hold a file any more."}),
		filesN: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rdistcc_cm_input_files",
			Help: "Files of which it is known what they hold and name."}, func() float64 { return float64(m.inputs.Stats().Files) }),
	}
	for _, how := range howWords {
		x.how.WithLabelValues(how)
	}
	for _, result := range []string{"held", "sent"} {
		x.bytes.WithLabelValues(result)
	}
	return x
}

func (x *inputMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{x.how, x.bytes, x.lacks, x.filesN}
}

// inputs counts a job by how it was known what it reads.
func (x *inputMetrics) inputs(how string) { x.how.WithLabelValues(how).Inc() }

// carried counts the files of a job.
func (x *inputMetrics) carried(sent, held uint64) {
	x.bytes.WithLabelValues("sent").Add(float64(sent))
	x.bytes.WithLabelValues("held").Add(float64(held))
}
