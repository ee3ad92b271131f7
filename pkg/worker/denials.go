package worker

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/pkg/sandbox"
)

// Reasons of denials that are not a sandbox.Excess: the words of a metric.
const (
	deniedTime   = "time"
	deniedOutput = "output"
	deniedDisk   = "disk"
)

// denials are all words of the metric.
func denials() []string {
	list := []string{deniedTime, deniedOutput, deniedDisk}
	for x := sandbox.ExcessMemory; x <= sandbox.ExcessDenied; x++ {
		list = append(list, denial(x))
	}
	slices.Sort(list)
	return list
}

// denial is an excess in a word.
func denial(x sandbox.Excess) string {
	if x == sandbox.ExcessDenied {
		return "seccomp"
	}
	return x.String()
}

// denial counts a compile that was ended, or cut.
func (m *Metrics) denial(cause string) {
	if m != nil {
		m.denials.WithLabelValues(cause).Inc()
	}
}

// Results of canaries.
const (
	canaryPassed = "passed"
	canaryFailed = "failed"
)

func (m *Metrics) canary(result string) {
	if m != nil {
		m.canaries.WithLabelValues(result).Inc()
	}
}

// measures is a gauge for each measure of package sandbox: 1 where it holds.
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
