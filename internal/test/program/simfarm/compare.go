package simfarm

import (
	"math"
	"slices"
	"time"
)

// Row is the result of a rule in a case, over all seeds.
type Row struct {
	Case, About string
	Rule        string
	Makespan    time.Duration // geometric mean
	Ratio       float64       // relative to the oracle's makespan, geometric mean of the seeds' ratios
	P50         time.Duration // of a job's latency, geometric means of the seeds' percentiles
	P95, P99    time.Duration
	Latency     []time.Duration // of the jobs of the first seed, sorted
	Local       float64         // jobs per seed that were done on clients' cores
	Hedges      float64
	Sent        float64 // bytes of jobs on the wire
	Lacks       float64 // jobs whose host had dropped what they name
	Stuck       int
	Use         []float64 // utilisation of the first seed, by Case.Sample
	Sample      time.Duration
}

// Compare runs the cases of a scale with all rules, each with the seeds 1 to seeds. Rows of a case follow
// each other in the order of Rules; if hosts have stores, one for Untold comes after them. want, if not
// nil, selects cases. progress, if not nil, is called after each run.
func Compare(s Scale, seeds int, want func(name string) bool, progress func(name, rule string, seed uint64, took time.Duration)) ([]Row, error) {
	var rows []Row
	index := map[[2]string]int{}
	counts := map[[2]string]float64{}
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		cases, err := Cases(s, seed)
		if err != nil {
			return nil, err
		}
		for _, c := range cases {
			if want != nil && !want(c.Name) {
				continue
			}
			rules := Rules
			if c.Stores != nil {
				rules = append(slices.Clone(Rules), Untold)
			}
			outs := make([]*Outcome, len(rules))
			for i, rule := range rules {
				began := time.Now()
				if outs[i], err = Run(c, rule, seed); err != nil {
					return nil, err
				}
				if progress != nil {
					progress(c.Name, rule, seed, time.Since(began))
				}
			}
			best := outs[slices.Index(Rules, Oracle)].Makespan
			for _, o := range outs {
				k := [2]string{c.Name, o.Rule}
				i, ok := index[k]
				if !ok {
					i = len(rows)
					index[k] = i
					rows = append(rows, Row{Case: c.Name, About: c.About, Rule: o.Rule, Use: o.Use, Sample: c.Sample, Latency: o.Latency,
						Makespan: 1, Ratio: 1, P50: 1, P95: 1, P99: 1})
				}
				rows[i].add(o, best, counts[k])
				counts[k]++
			}
		}
	}
	return rows, nil
}

// add adds another seed's outcome to the means of n seeds.
func (r *Row) add(o *Outcome, oracle time.Duration, n float64) {
	mean := func(old, v float64) float64 {
		return math.Exp((math.Log(max(old, 1e-9))*n + math.Log(max(v, 1e-9))) / (n + 1))
	}
	d := func(old *time.Duration, v time.Duration) { *old = time.Duration(mean(float64(*old), float64(v))) }
	d(&r.Makespan, o.Makespan)
	d(&r.P50, o.Percentile(0.50))
	d(&r.P95, o.Percentile(0.95))
	d(&r.P99, o.Percentile(0.99))
	r.Ratio = mean(r.Ratio, float64(o.Makespan)/float64(max(oracle, 1)))
	r.Local = (r.Local*n + float64(o.Local)) / (n + 1)
	r.Hedges = (r.Hedges*n + float64(o.Hedges)) / (n + 1)
	r.Sent = (r.Sent*n + float64(o.Sent)) / (n + 1)
	r.Lacks = (r.Lacks*n + float64(o.Lacks)) / (n + 1)
	r.Stuck += o.Stuck
}

// BestSimple returns the best ratio of the simple rules in a case.
func BestSimple(rows []Row, name string) (rule string, ratio float64) {
	ratio = math.Inf(1)
	for i := range rows {
		r := &rows[i]
		if r.Case == name && slices.Contains(Simple, r.Rule) && r.Ratio < ratio {
			rule, ratio = r.Rule, r.Ratio
		}
	}
	return rule, ratio
}
