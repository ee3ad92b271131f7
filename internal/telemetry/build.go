package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// NewBuildCollector returns a collector of PREFIX_build_info: 1, with the program's version and commit, and
// the number of the job protocol that it speaks, as labels.
func NewBuildCollector(prefix, version, revision string, protocol int) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "_build_info",
		Help:        "Always 1; the labels identify the build of the program and the version of the job protocol that it speaks.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "protocol": strconv.Itoa(protocol)}})
	g.Set(1)
	return g
}
