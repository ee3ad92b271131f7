package worker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// denial counts a compile that was ended, or whose output was cut.
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

// canary counts a canary.
func (m *Metrics) canary(result string) {
	if m != nil {
		m.canaries.WithLabelValues(result).Inc()
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
