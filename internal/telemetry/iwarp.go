package telemetry

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// iwarpCollector shows a device's statistics as metrics.
type iwarpCollector struct {
	stats func() iwarp.DeviceStats
}

var (
	iwarpFPDUs      = prometheus.NewDesc("iwarp_fpdus_total", "MPA frames.", []string{"direction"}, nil)
	iwarpBytes      = prometheus.NewDesc("iwarp_bytes_total", "Bytes of MPA frames, framing included.", []string{"direction"}, nil)
	iwarpCRCErrors  = prometheus.NewDesc("iwarp_crc_errors_total", "MPA frames with a wrong CRC.", []string{"direction"}, nil)
	iwarpTerminates = prometheus.NewDesc("iwarp_terminates_total", "RDMAP Terminate messages, by their contents.", []string{"direction", "layer", "type", "code"}, nil)
	iwarpRefused    = prometheus.NewDesc("iwarp_startups_refused_total", "Connections given up before there was a stream, by cause.", []string{"cause"}, nil)
	iwarpQPs        = prometheus.NewDesc("iwarp_qps", "Queue pairs.", nil, nil)
	iwarpMRs        = prometheus.NewDesc("iwarp_memory_regions", "Registered memory regions.", nil, nil)
	iwarpHalfOpen   = prometheus.NewDesc("iwarp_half_open", "Connections whose start-up is not finished.", nil, nil)
	iwarpRegistered = prometheus.NewDesc("iwarp_registered_bytes", "Bytes of registered memory.", nil, nil)
)

// NewIWARPCollector returns a collector of the iwarp_ metrics; stats is a device's Stats.
func NewIWARPCollector(stats func() iwarp.DeviceStats) prometheus.Collector {
	return iwarpCollector{stats}
}

func (c iwarpCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{iwarpFPDUs, iwarpBytes, iwarpCRCErrors, iwarpTerminates, iwarpRefused, iwarpQPs, iwarpHalfOpen, iwarpMRs, iwarpRegistered} {
		ch <- d
	}
}

func (c iwarpCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	counter(iwarpFPDUs, s.FPDUsSent, "sent")
	counter(iwarpFPDUs, s.FPDUsReceived, "received")
	counter(iwarpBytes, s.BytesSent, "sent")
	counter(iwarpBytes, s.BytesReceived, "received")
	counter(iwarpCRCErrors, s.CRCErrors, "received")
	sums := make(map[terminate]uint64)
	for _, t := range knownTerminates {
		sums[t] = 0
	}
	for k, n := range s.Terminates {
		sums[terminateLabels(k)] += n
	}
	for t, n := range sums {
		counter(iwarpTerminates, n, t.direction, t.layer, t.kind, t.code)
	}
	for why, n := range s.Refused { // each exists from the start, as it may be rare
		counter(iwarpRefused, n, iwarp.StartupRefusal(why).String())
	}
	gauge(iwarpQPs, float64(s.QPs))
	gauge(iwarpHalfOpen, float64(s.HalfOpen))
	gauge(iwarpMRs, float64(s.MRs))
	gauge(iwarpRegistered, float64(s.RegisteredBytes))
}

// terminate holds a Terminate as label values.
type terminate struct{ direction, layer, kind, code string }

// other stands for numbers that no RFC defines: a peer may send any of them, and must not be able to create
// new time series.
const other = "other"

// knownTerminates exist from the start, in both directions: a rate over a series that appears with its
// first count misses that count.
var knownTerminates = func() (list []terminate) {
	for _, k := range []struct {
		layer, kind uint8
		codes       string
	}{ // as RFC 6580 registers them
		{0, 0, "\x00"},
		{0, 1, "\x00\x01\x02\x03\x04\x09\xff"},
		{0, 2, "\x05\x06\x07\x08\x09\xff"},
		{1, 0, "\x00"},
		{1, 1, "\x00\x01\x02\x03\x04"},
		{1, 2, "\x01\x02\x03\x04\x05\x06"},
		{2, 0, "\x01\x02\x03\x04\x05\x06\x07"},
	} {
		for _, code := range []byte(k.codes) {
			for _, sent := range []bool{true, false} {
				list = append(list, terminateLabels(iwarp.TerminateKey{Sent: sent, Layer: k.layer, Type: k.kind, Code: code}))
			}
		}
	}
	return append(list, terminate{"sent", other, other, other}, terminate{"received", other, other, other})
}()

// terminateLabels names layer and error type as RFC 5040 §4.8 does; the code stays a number, as its meaning
// depends on both.
func terminateLabels(k iwarp.TerminateKey) terminate {
	t := terminate{direction: "received", layer: other, kind: other, code: other}
	if k.Sent {
		t.direction = "sent"
	}
	layers := []struct {
		name  string
		kinds []string
	}{
		{"rdmap", []string{"catastrophic", "protection", "operation"}},
		{"ddp", []string{"catastrophic", "tagged", "untagged", "llp"}},
		{"llp", []string{"mpa"}},
	}
	if int(k.Layer) >= len(layers) {
		return t
	}
	l := layers[k.Layer]
	t.layer = l.name
	if int(k.Type) >= len(l.kinds) {
		return t
	}
	t.kind = l.kinds[k.Type]
	const lastCode, unspecified = 0x0a, 0xff // of all tables of RFC 5040, 5041, 5044, 6581 and 7306
	if k.Code <= lastCode || k.Code == unspecified {
		t.code = fmt.Sprintf("0x%02x", k.Code)
	}
	return t
}
