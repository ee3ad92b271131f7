package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// cacheMetrics are the time series about the cache of results.
type cacheMetrics struct {
	looks *prometheus.CounterVec
	saved prometheus.Counter
}

func newCacheMetrics(from *Source) *cacheMetrics {
	x := &cacheMetrics{
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rdistcc_cm_cache_total",
			Help: "Looks for results in each tier of the cache: hit, second (a hit by what the compile had read), miss, error (also of writes), or joined with an equal job under way."},
			[]string{"tier", "result"}),
		saved: prometheus.NewCounter(prometheus.CounterOpts{Name: "rdistcc_cm_cache_saved_cpu_seconds_total",
			Help: "CPU time that the compiles of hits had taken."}),
	}
	for _, tier := range from.Tiers {
		for _, outcome := range from.CacheOutcomes {
			x.looks.WithLabelValues(tier, outcome)
		}
	}
	return x
}

func (x *cacheMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{x.looks, x.saved}
}

// Cached counts an event of a tier of the cache, one of Source.CacheOutcomes.
func (x *cacheMetrics) Cached(tier, outcome string) { x.looks.WithLabelValues(tier, outcome).Inc() }

// SavedCPU counts what the compile of a hit had taken.
func (x *cacheMetrics) SavedCPU(d time.Duration) { x.saved.Add(d.Seconds()) }
