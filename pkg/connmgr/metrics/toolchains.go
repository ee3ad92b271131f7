package metrics

import "github.com/prometheus/client_golang/prometheus"

// toolchainMetrics are the time series about compilers of this machine that hosts are sent.
type toolchainMetrics struct {
	sent  *prometheus.CounterVec
	bytes prometheus.Counter
}

func newToolchainMetrics() *toolchainMetrics {
	x := &toolchainMetrics{
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_toolchains_sent_total",
			Help: "Compilers of this machine that were sent to hosts which lacked them: ok, or failed, when the host may also have refused."}, []string{"result"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_toolchain_bytes_total", Help: "Bytes that went to hosts for that."}),
	}
	for _, result := range []string{resultOK, resultFailed} {
		x.sent.WithLabelValues(result)
	}
	return x
}

func (x *toolchainMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{x.sent, x.bytes}
}

// ToolchainSent counts a compiler that a host was sent, with so many bytes, or could not be.
func (x *toolchainMetrics) ToolchainSent(ok bool, bytes uint64) {
	result := resultOK
	if !ok {
		result = resultFailed
	}
	x.sent.WithLabelValues(result).Inc()
	x.bytes.Add(float64(bytes))
}
