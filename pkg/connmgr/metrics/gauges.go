package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

var (
	descHosts       = prometheus.NewDesc("rdistcc_cm_hosts", "Hosts named by any host list, by the state of their connection.", []string{"state"}, nil)
	descConnections = prometheus.NewDesc("rdistcc_cm_connections", "Live connections to hosts.", []string{"host"}, nil)
	descCredits     = prometheus.NewDesc("rdistcc_cm_credits", "Unspent credits: jobs that can be placed at once.", []string{"host"}, nil)
	descSlots       = prometheus.NewDesc("rdistcc_cm_slots", "Slots of shared memory: leased to a wrapper, or kept ready.", []string{"state"}, nil)
	descLarge       = prometheus.NewDesc("rdistcc_cm_large_bytes", "Memory of sources beyond what slots keep, of copies of other users' sources, and of results too big for a sink.", nil, nil)
	descViewAge     = prometheus.NewDesc("rdistcc_cm_view_age_seconds", "Age of the last known load of a host.", []string{"host"}, nil)
	descRunning     = prometheus.NewDesc("rdistcc_cm_running", "This manager's jobs on a host or on the way there.", []string{"host"}, nil)
	descPlaces      = prometheus.NewDesc("rdistcc_cm_places", "Compiles that a connected host runs at a time, for all managers.", []string{"host"}, nil)
	descDemand      = prometheus.NewDesc("rdistcc_cm_demand", "Jobs that this manager told a host it could use places for.", []string{"host"}, nil)
	descWanted      = prometheus.NewDesc("rdistcc_cm_wanted_places", "Places on hosts that would serve all jobs of this manager at once.", nil, nil)
	descRTT         = prometheus.NewDesc("rdistcc_cm_link_rtt_seconds", "Round trip to a host, as TCP measures it.", []string{"host"}, nil)
	descRate        = prometheus.NewDesc("rdistcc_cm_link_bytes_per_second", "Measured rate of the link to a host, in bytes a second.", []string{"host"}, nil)
	descSpeed       = prometheus.NewDesc("rdistcc_cm_host_speed", "Speed of one core of a host, learned from compiles, relative to the average.", []string{"host"}, nil)
	descDrained     = prometheus.NewDesc("rdistcc_cm_drained", "Hosts drained with rdistcc drain.", nil, nil)
	descCache       = prometheus.NewDesc("rdistcc_cm_cache_bytes", "Bytes of results in a tier of this machine, estimated between two counts.", []string{"tier"}, nil)
	descWaiting     = prometheus.NewDesc("rdistcc_cm_waiting", "Commands waiting for a credit or for a turn on the build host.", []string{"for"}, nil)
)

// Describe implements prometheus.Collector.
func (x *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- descHosts
	ch <- descConnections
	ch <- descCredits
	ch <- descSlots
	ch <- descWaiting
	ch <- descLarge
	ch <- descCache
	ch <- descViewAge
	for _, d := range []*prometheus.Desc{descRunning, descPlaces, descDemand, descWanted, descRTT, descRate, descSpeed, descDrained} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (x *Metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), label)
	}
	s := x.from.Status()
	states := make(map[string]int)
	for i := range s.Hosts {
		h := &s.Hosts[i]
		states[h.State]++
		x.Host(h.Addr)
		if x.hosts.of(h.Addr) != h.Addr {
			continue // gauges of several hosts cannot be added up
		}
		gauge(descConnections, h.Links, h.Addr)
		gauge(descCredits, h.Credits, h.Addr)
		gauge(descRunning, h.Running, h.Addr)
		gauge(descPlaces, h.Jobs, h.Addr)
		gauge(descDemand, h.Demand, h.Addr)
		for _, x := range [...]struct {
			desc  *prometheus.Desc
			value float64
		}{{descRTT, float64(h.RTTUS) / 1e6}, {descRate, h.Rate}, {descSpeed, h.Speed}} {
			if x.value > 0 { // not known at first
				ch <- prometheus.MustNewConstMetric(x.desc, prometheus.GaugeValue, x.value, h.Addr)
			}
		}
		if h.Load != nil {
			ch <- prometheus.MustNewConstMetric(descViewAge, prometheus.GaugeValue, float64(h.LoadAgeMS)/1000, h.Addr)
		}
	}
	gauge(descHosts, states[report.StateUnused], report.StateUnused)
	for _, state := range x.from.States {
		gauge(descHosts, states[state], state)
	}
	for tier, n := range s.Cache.Bytes {
		ch <- prometheus.MustNewConstMetric(descCache, prometheus.GaugeValue, float64(n), tier)
	}
	ch <- prometheus.MustNewConstMetric(descLarge, prometheus.GaugeValue, float64(x.from.Large()))
	ch <- prometheus.MustNewConstMetric(descDrained, prometheus.GaugeValue, float64(len(s.Drained)))
	ch <- prometheus.MustNewConstMetric(descWanted, prometheus.GaugeValue, float64(x.from.Demand().Wanted))
	gauge(descSlots, s.Slots.Leased, "leased")
	gauge(descSlots, s.Slots.Free, "free")
	gauge(descWaiting, s.Waiting.Credit, "credit")
	gauge(descWaiting, s.Waiting.Preprocess, "preprocess")
	gauge(descWaiting, s.Waiting.Local, "local")
}
