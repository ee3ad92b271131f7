package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// cacheMetrics are the time series about the cache of results.
type cacheMetrics struct {
	looks  *prometheus.CounterVec
	waits  *prometheus.CounterVec
	saved  prometheus.Counter
	copies *prometheus.CounterVec
}

func newCacheMetrics(from *Source) *cacheMetrics {
	x := &cacheMetrics{
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_cache_total",
			Help: "Looks for results in each tier of the cache: hit, second (a hit by what the compile had read), miss, untrusted (nobody has signed it whose signature counts), error (also of writes), or joined with an equal job under way."},
			[]string{"tier", "result"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_cache_waits_total",
			Help: "Waits for results that hosts were making for other managers: made, lost (there is none, or the host is gone), or late (it was better to compile)."},
			[]string{"result"}),
		saved: prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_cache_saved_cpu_seconds_total",
			Help: "CPU time that the compiles of hits had taken."}),
	}
	x.copies = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_copies_total",
		Help: "Copies of results for further hosts (cache.replicas), by whether the host was asked to keep it."}, []string{"result"})
	for _, result := range []string{copySent, copyDropped} {
		x.copies.WithLabelValues(result)
	}
	for _, tier := range from.Tiers {
		for _, outcome := range from.CacheOutcomes {
			x.looks.WithLabelValues(tier, outcome)
		}
	}
	for _, end := range from.WaitEnds {
		x.waits.WithLabelValues(end)
	}
	return x
}

func (x *cacheMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{x.looks, x.waits, x.saved, x.copies}
}

// Cached counts an event of a tier of the cache, one of Source.CacheOutcomes.
func (x *cacheMetrics) Cached(tier, outcome string) { x.looks.WithLabelValues(tier, outcome).Inc() }

// Waited counts a wait for what a host was making for another manager, by its end, one of Source.WaitEnds.
func (x *cacheMetrics) Waited(end string) { x.waits.WithLabelValues(end).Inc() }

// SavedCPU counts what the compile of a hit had taken.
func (x *cacheMetrics) SavedCPU(d time.Duration) { x.saved.Add(d.Seconds()) }

// Words for what became of a copy of a result for a further host.
const (
	copySent    = "sent"
	copyDropped = "dropped"
)

// Copied counts a copy of a result for a further host: sent says whether that was asked to keep it.
func (x *cacheMetrics) Copied(sent bool) {
	result := copyDropped
	if sent {
		result = copySent
	}
	x.copies.WithLabelValues(result).Inc()
}
