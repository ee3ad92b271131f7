package report

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Stats sums up all commands since the manager started.
type Stats struct {
	NotRunning *NotRunning `json:"not_running,omitempty"` // as in Status

	Version string      `json:"version"`
	Since   time.Time   `json:"since"`
	Jobs    []JobCount  `json:"jobs"` // by place, host and reason
	Hosts   []HostStats `json:"hosts"`

	Retries   uint64 `json:"retries"`    // attempts after the first
	Hedges    uint64 `json:"hedges"`     // jobs that a second host got because the first was slow
	HedgesWon uint64 `json:"hedges_won"` // of these, those that the second host answered first
	Troubles  uint64 `json:"troubles"`   // compiles that ran here because of trouble
	Gone      uint64 `json:"gone"`       // commands whose wrapper went away before they finished
	Twice     uint64 `json:"twice"`      // compiles that a host had done and that then ran here as well

	// Again counts the commands compiled twice among the last Remembered ones by reason, the most frequent
	// reason first.
	Again      []TwiceCount `json:"again,omitempty"`
	Remembered int          `json:"remembered"`

	// Audits counts the jobs that a second host compiled for comparison, by outcome (AuditWords).
	Audits map[string]uint64 `json:"audits,omitempty"`

	BytesOut uint64 `json:"bytes_out"` // of sources, before compression
	BytesIn  uint64 `json:"bytes_in"`

	Cache CacheCounts `json:"cache"`

	Phases     []Quantiles `json:"phases"` // of remote compiles
	Prediction Prediction  `json:"prediction"`
}

// HostStats is one host's part of Stats.
type HostStats struct {
	Host     string `json:"host"`
	OK       uint64 `json:"ok"`
	Failed   uint64 `json:"failed"` // attempts that gave no result
	BytesOut uint64 `json:"bytes_out"`
	BytesIn  uint64 `json:"bytes_in"`
}

// TwiceCount counts commands that were compiled on a host and then here, for one reason.
type TwiceCount struct {
	Reason string `json:"reason"`
	Jobs   int    `json:"jobs"`
	Source string `json:"source"` // of the newest such command
}

// Quantiles are those of one phase in microseconds, accurate to a tenth.
type Quantiles struct {
	Phase string `json:"phase"`
	Count uint64 `json:"count"`
	P50   uint64 `json:"p50_us"`
	P90   uint64 `json:"p90_us"`
	P99   uint64 `json:"p99_us"`
	Max   uint64 `json:"max_us"`
}

// Prediction says how well compile times were predicted: by the ratio of the CPU time that a compile took to
// the time that it was expected to take on that host.
type Prediction struct {
	Count   uint64  `json:"count"`   // compiles that were predicted
	Unknown uint64  `json:"unknown"` // remote compiles without a prediction
	Near    uint64  `json:"near"`    // off by at most a quarter: ratios from 0.8 to 1.25
	Twice   uint64  `json:"twice"`   // within a factor of two
	Median  float64 `json:"median"`  // of the ratios
}

// sums holds the figures behind Stats.
type sums struct {
	retries, hedges, won, troubles, gone uint64
	repeated                             uint64
	out, in                              uint64
	phases                               [len(phaseNames)]histogram
	ratio                                histogram // in millionths
	unknown, near, twice                 uint64
	audits                               map[string]uint64
	inputs                               InputCounts
	cache                                CacheCounts
}

// AddAudit counts an audit by its outcome, one of AuditWords.
func (b *Book) AddAudit(result string) {
	if b.sums.audits == nil {
		b.sums.audits = make(map[string]uint64)
	}
	b.sums.audits[result]++
}

// phaseNames are those of rdistcc_cm_phase_seconds.
var phaseNames = [...]string{"preprocess", "credit", "write", "queue", "compile", "return", "total"}

// phases returns the times of a record in microseconds, in the order of phaseNames.
func (r *JobRecord) phases() [len(phaseNames)]uint32 {
	return [...]uint32{r.PreprocessUS, r.CreditUS, r.WriteUS, r.QueueUS, r.CompileUS, r.ReturnUS, r.TotalUS}
}

// add counts a command that has ended.
func (s *sums) add(r *JobRecord) {
	again := max(int(r.Attempts), 1) - 1
	if r.Hedged != "" {
		s.hedges++
		again = max(again-1, 0) // the attempt on the second host was no retry
		if !r.Local && r.Host == r.Hedged {
			s.won++
		}
	}
	s.retries += uint64(again)
	if r.Trouble && r.Local {
		s.troubles++
	}
	if !r.Finished {
		s.gone++
	}
	if r.Twice {
		s.repeated++
	}
	s.inputs.add(r)
	s.cache.add(r)
	if r.Place() != PlaceRemote {
		return
	}
	s.out += r.BytesOut
	s.in += r.BytesIn
	for i, us := range r.phases() {
		s.phases[i].add(uint64(us))
	}
	switch ratio := r.Ratio(); {
	case ratio == 0:
		s.unknown++
	default:
		s.ratio.add(uint64(ratio * 1e6))
		if ratio >= 0.8 && ratio <= 1.25 {
			s.near++
		}
		if ratio >= 0.5 && ratio <= 2 {
			s.twice++
		}
	}
}

// Ratio returns actual over predicted CPU time, or 0 without a prediction.
func (r *JobRecord) Ratio() float64 {
	if r.Place() != PlaceRemote || r.Expected <= 0 || r.CPUUS == 0 {
		return 0
	}
	return float64(time.Duration(r.CPUUS)*time.Microsecond) / float64(r.Expected)
}

// histogram counts values in buckets that grow by 2^(1/8), so that a quantile is off by less than a tenth. It
// takes values from 1 to 2^32; the last bucket counts all larger ones.
type histogram struct {
	n       uint64
	max     uint64
	buckets [32*8 + 1]uint64
}

func (h *histogram) add(v uint64) {
	h.n++
	h.max = max(h.max, v)
	i := 0
	if v > 1 {
		i = int(math.Ceil(math.Log2(float64(v)) * 8))
	}
	h.buckets[min(i, len(h.buckets)-1)]++
}

// quantile returns the value that the fraction q of all values does not exceed, or 0 without any values.
func (h *histogram) quantile(q float64) uint64 {
	if h.n == 0 {
		return 0
	}
	rank, seen := uint64(math.Ceil(q*float64(h.n))), uint64(0)
	for i, c := range h.buckets {
		if seen += c; seen >= rank {
			return min(uint64(math.Round(math.Exp2(float64(i)/8))), h.max)
		}
	}
	return h.max
}

// again counts the remembered commands that were compiled twice by reason, the most frequent reason first.
func (b *Book) again() (list []TwiceCount) {
	at := make(map[string]int)
	for i := range min(b.n, maxRecent) { // the newest first
		r := &b.ring[(b.n-1-i)%maxRecent]
		if !r.Twice {
			continue
		}
		k, known := at[r.Reason]
		if !known {
			k = len(list)
			at[r.Reason] = k
			list = append(list, TwiceCount{Reason: r.Reason, Source: r.Source})
		}
		list[k].Jobs++
	}
	slices.SortStableFunc(list, func(x, y TwiceCount) int { return y.Jobs - x.Jobs })
	return list
}

// Stats returns the sums over all commands. The caller fills in Version, Since and Hosts.
func (b *Book) Stats() Stats {
	x := &b.sums
	s := Stats{Jobs: append([]JobCount{}, b.Counts()...), Hosts: []HostStats{},
		Retries: x.retries, Hedges: x.hedges, HedgesWon: x.won, Troubles: x.troubles, Gone: x.gone, Twice: x.repeated,
		Again: b.again(), Remembered: int(min(b.n, maxRecent)),
		BytesOut: x.out, BytesIn: x.in, Cache: b.Cache(), Audits: maps.Clone(x.audits)}
	for i := range x.phases {
		h := &x.phases[i]
		s.Phases = append(s.Phases, Quantiles{Phase: phaseNames[i], Count: h.n,
			P50: h.quantile(0.5), P90: h.quantile(0.9), P99: h.quantile(0.99), Max: h.max})
	}
	s.Prediction = Prediction{Count: x.ratio.n, Unknown: x.unknown, Near: x.near, Twice: x.twice, Median: float64(x.ratio.quantile(0.5)) / 1e6}
	return s
}
