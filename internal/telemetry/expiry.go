package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// expiryCollector shows when a program's certificate expires.
type expiryCollector struct {
	desc    *prometheus.Desc
	expires func() time.Time
}

// NewExpiryCollector returns a collector of PREFIX_certificate_expiry_timestamp_seconds, the result of
// expires in seconds since 1970. Without a certificate that is the zero time, and there is no series, so
// that an alert on it cannot fire.
func NewExpiryCollector(prefix string, expires func() time.Time) prometheus.Collector {
	return expiryCollector{prometheus.NewDesc(prefix+"_certificate_expiry_timestamp_seconds",
		"When this program's certificate, or the CA that it hangs on, expires, in seconds since 1970.", nil, nil), expires}
}

func (c expiryCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c expiryCollector) Collect(ch chan<- prometheus.Metric) {
	if t := c.expires(); !t.IsZero() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(t.Unix()))
	}
}
