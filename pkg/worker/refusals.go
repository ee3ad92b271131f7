package worker

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Refusal counts what was refused for one cause.
type Refusal struct {
	What  string // "job or connection", "peer" or "limit"
	Cause string // as in the metrics
	Count uint64
}

// Refusals returns what the server has refused since its start, the most frequent first.
func (m *Metrics) Refusals() (list []Refusal, err error) {
	for _, c := range []struct {
		what string
		from prometheus.Collector
	}{
		{"job or connection", m.refusals}, // rdistccd_refusals_total
		{"peer", m.auth},                  // rdistccd_auth_failures_total
		{"limit", m.limits},               // rdistccd_client_limits_total
	} {
		r := prometheus.NewRegistry()
		if err := r.Register(c.from); err != nil {
			return nil, err
		}
		families, err := r.Gather()
		if err != nil {
			return nil, err
		}
		for _, f := range families {
			for _, x := range f.GetMetric() {
				if n := uint64(x.GetCounter().GetValue()); n > 0 {
					list = append(list, Refusal{c.what, x.GetLabel()[0].GetValue(), n})
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Refusal) int { return cmp.Compare(b.Count, a.Count) })
	return list, nil
}
