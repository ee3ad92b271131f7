package costs

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The model: a unit takes
//
//	start + rate × its own text + the sum of what its headers take
//
// where a header takes the same in each unit that reads it. Units are many and differ in what they read, so this can be solved for
// what headers take; but not for all of them, as some are read together nearly always. So the model begins with a belief, that a header takes
// as long as its text is long, which it leaves only as far as the times of units say otherwise (a ridge regression, or the
// most likely values with normal priors). Nothing takes less than no time.
//
// How far a unit's time is from that is taken for chance, of three kinds, which are estimated from the units (noise.go). So units
// with little text of their own tell most of headers.

// Fit says how well the model describes the units.
type Fit struct {
	Start time.Duration `json:"start_ns"` // what each compile takes before it has read anything
	// PerMB is what a MB (10^6 bytes) of a unit's own text takes, and HeaderPerMB what one of a header takes where nothing else is known.
	PerMB       time.Duration `json:"per_mb_ns"`
	HeaderPerMB time.Duration `json:"header_per_mb_ns"`
	// Error is the median of how far the model is off for a unit that it was not fitted to, as a share of what that takes;
	// negative: there are too few units to say.
	Error float64 `json:"error"`
}

const (
	startMean, startScatter = 0.01, 0.01 // seconds: gcc and clang take 5 to 20 ms for an empty file
	scatterOfHeaders        = 3          // by how much a header may take longer than its text says, in parts of that
	scatterOfUnits          = 0.05       // or at least, in parts of what a unit takes on average: little text can bring about much work
	scatterOfRate           = 3
	folds                   = 5   // parts of units, each of which is left out once
	leastUnits              = 20  // for a word on the error
	mostSteps               = 200 // of solve
	mostHeld                = 8   // times that values below zero are held, before what is left of them is cut
	rounds                  = 3   // of estimates of the noise
	leastTouch              = 2e-3
	closely, roughly        = 1e-12, 1e-6 // when solve ends, as a share of the square of the first distance
	workForErrors           = 1.5e8       // multiplications for the errors of headers, at most about
	mostErrors              = 100         // headers whose error is worked out, at most
)

// model is what is fitted. Its values are in seconds. A column is a header that can matter (settle says which), and the last two are the rate
// and the start.
type model struct {
	took    []float64 // by unit
	own     []float64 // text of its own, by unit
	weight  []float64 // of its distance from what is predicted, by unit
	reads   [][]int32 // headers of a unit
	settled []float64 // by unit: what headers take that are no column

	size  []float64 // of a header: mean over units
	count []float64 // units of a header
	each  float64   // what a byte of a header is believed to take

	// by column
	header []int32   // which header it is; none for the last two
	common []int32   // columns of headers that most units read
	mean   []float64 // what is believed at first
	spread []float64 // how far it may be from that

	// rows are the columns of each unit that are not common, and lacks the common ones of which it has not read the header: a unit reads most
	// of what nearly all read, and what it does not is the shorter list.
	rows, lacks [][]int32
	near        *near // for the weights as they were last
}

func newModel(units, headers int) *model {
	return &model{took: make([]float64, units), own: make([]float64, units), reads: make([][]int32, units), weight: make([]float64, units), settled: make([]float64, units),
		size: make([]float64, headers), count: make([]float64, headers)}
}

// add says that unit reads so many bytes of a header.
func (m *model) add(unit, header int, size float64) {
	m.reads[unit] = append(m.reads[unit], int32(header))
	m.count[header]++
	m.size[header] += (size - m.size[header]) / m.count[header]
}

// unit says what a unit took, and how much text it has itself.
func (m *model) unit(i int, took, own float64) { m.took[i], m.own[i] = took, own }

// fit sets what headers cost, and returns the rest.
func (m *model) fit(headers []Header) Fit {
	f := Fit{Error: -1}
	units := len(m.took)
	if units == 0 {
		return f
	}
	for _, row := range m.reads {
		slices.Sort(row) // so that equal units give equal sums
	}
	m.settle(m.believe())
	var values []float64
	for range rounds {
		values = m.solve(nil, values, closely)
		m.weigh(values)
	}
	n := len(m.header)
	f.Start, f.PerMB, f.HeaderPerMB = seconds(values[n+1]), seconds(values[n]*1e6), seconds(m.each*1e6)
	for i := range headers {
		headers[i].CPU = seconds(m.each * m.size[i] * m.count[i])
	}
	order := make([]int, n) // columns
	for i, h := range m.header {
		order[i] = i
		headers[h].CPU = seconds(values[i] * m.count[h])
	}
	if units >= leastUnits {
		f.Error = m.foreign(values)
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(headers[m.header[b]].CPU, headers[m.header[a]].CPU), cmp.Compare(a, b))
		})
		s := m.system(nil)
		work := 0
		for i := range m.rows {
			work += 2 * (len(m.rows[i]) + len(m.lacks[i]))
		}
		for _, i := range order[:min(n, mostErrors, max(10, int(workForErrors)/(1+work*mostSteps/3)))] {
			h := m.header[i]
			headers[h].Error = seconds(2 * m.doubt(s, i) * m.count[h])
		}
	}
	return f
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), math.MaxInt64/1e10) * float64(time.Second))
}

// believe returns what is believed before the units are looked at one by one: what a byte of a unit's own text takes, by all units
// together, and what a unit takes on average. It sets the same of a header.
func (m *model) believe() (own, mean float64) {
	for _, t := range m.took {
		mean += t / float64(len(m.took))
	}
	for i, t := range m.took {
		m.weight[i] = 1 / max(t*t, mean*mean/100)
	}
	var oo, oh, hh, ot, ht, text, took float64 // sums of products: o own text, h that of headers, t time
	for i, t := range m.took {
		h := 0.0
		for _, g := range m.reads[i] {
			h += m.size[g]
		}
		o, t, w := m.own[i], max(t-startMean, 0), m.weight[i]
		oo, oh, hh, ot, ht = oo+w*o*o, oh+w*o*h, hh+w*h*h, ot+w*o*t, ht+w*h*t
		text, took = text+o+h, took+t
	}
	even := took / max(text, 1) // if all text took the same
	own, header := even, even
	if det := oo*hh - oh*oh; det > 1e-9*oo*hh {
		own, header = (ot*hh-ht*oh)/det, (ht*oo-ot*oh)/det
	}
	if own <= 0 || header <= 0 {
		own, header = even, even
	}
	m.each = header
	return own, mean
}

// settle makes columns of the headers that can matter, with what believe has returned. Others are taken at their text: those whose
// units take less than leastTouch of all time together, of which there may be tens of thousands.
func (m *model) settle(own, mean float64) {
	touch := make([]float64, len(m.size))
	total := 0.0
	for i, row := range m.reads {
		total += m.took[i]
		for _, h := range row {
			touch[h] += m.took[i]
		}
	}
	column := make([]int32, len(m.size))
	for h, size := range m.size {
		column[h] = -1
		if touch[h] < leastTouch*total {
			continue
		}
		column[h] = int32(len(m.header))
		m.header = append(m.header, int32(h))
		text := m.each * size
		spread := max(scatterOfHeaders*text, scatterOfUnits*mean)
		if m.count[h] == 1 { // what is particular to a unit is as likely its own
			spread = text/10 + 1e-9
		}
		m.mean, m.spread = append(m.mean, text), append(m.spread, spread)
	}
	m.mean, m.spread = append(m.mean, own, startMean), append(m.spread, scatterOfRate*own, startScatter)
	isCommon := make([]bool, len(m.header))
	for c, h := range m.header {
		if isCommon[c] = m.count[h] > float64(len(m.took))/2; isCommon[c] {
			m.common = append(m.common, int32(c))
		}
	}
	m.rows, m.lacks = make([][]int32, len(m.took)), make([][]int32, len(m.took))
	var rows, lacks []int32 // one after the other in memory
	for i, row := range m.reads {
		firstRow, firstLack := len(rows), len(lacks)
		has := 0 // of common, which is sorted as the row is
		for _, h := range row {
			switch c := column[h]; {
			case c < 0:
				m.settled[i] += m.each * m.size[h]
			case !isCommon[c]:
				rows = append(rows, c)
			default:
				for ; m.common[has] != c; has++ {
					lacks = append(lacks, m.common[has])
				}
				has++
			}
		}
		lacks = append(lacks, m.common[has:]...)
		m.rows[i], m.lacks[i] = rows[firstRow:len(rows):len(rows)], lacks[firstLack:len(lacks):len(lacks)]
	}
	m.reads = nil
	m.weigh(m.mean)
}

// predict returns what each unit takes by values.
func (m *model) predict(values []float64) []float64 {
	n := len(m.header)
	base, took := m.base(values), make([]float64, len(m.took))
	for i := range took {
		took[i] = m.settled[i] + values[n]*m.own[i] + values[n+1] + m.headers(i, values, base)
	}
	return took
}

// base returns the sum of what is common.
func (m *model) base(values []float64) (sum float64) {
	for _, c := range m.common {
		sum += values[c]
	}
	return sum
}

// headers returns the sum of the values of a unit's headers.
func (m *model) headers(i int, values []float64, base float64) float64 {
	for _, c := range m.rows[i] {
		base += values[c]
	}
	for _, c := range m.lacks[i] {
		base -= values[c]
	}
	return base
}

// spreadTo adds what each unit has of y to all its headers in q.
func (m *model) spreadTo(q, y []float64) {
	sum := 0.0
	for i, v := range y {
		sum += v
		for _, c := range m.rows[i] {
			q[c] += v
		}
		for _, c := range m.lacks[i] {
			q[c] -= v
		}
	}
	for _, c := range m.common {
		q[c] += sum
	}
}

// leastNoise is the least scatter of a unit's time, as a share of it.
const leastNoise = 0.002

// weigh sets the weights of units by how far they are from values.
func (m *model) weigh(values []float64) {
	// Each value that the units have settled has taken a part of the chance away.
	settled := 0.0
	precision := make([]float64, len(m.header))
	m.spreadTo(precision, m.weight)
	for g, p := range precision {
		s := p * m.spread[g] * m.spread[g]
		settled += s / (1 + s)
	}
	units := float64(len(m.took))
	lost := units / max(units-settled, units/4)
	// The squares of the distances are sums of parts. A square is off by as much as it is expected to be, so this takes the weights of before.
	var n normal
	parts := m.chance(values)
	predicted := m.predict(values)
	for i, t := range m.took {
		d := t - predicted[i]
		n.add(parts[i], d*d*lost, m.weight[i]*m.weight[i])
	}
	share := n.solve()
	share[byTime] = max(share[byTime], leastNoise*leastNoise)
	for i, p := range parts {
		m.weight[i] = 1 / (share[byOwn]*p[byOwn] + share[byTime]*p[byTime] + share[byHeaders]*p[byHeaders])
	}
}

// foreign returns the median of how far the model is off for units that it was not fitted to.
func (m *model) foreign(values []float64) float64 {
	var off []float64
	for fold := range folds {
		left := make([]bool, len(m.took))
		for i := range left {
			left[i] = scatter(uint64(i))%folds == uint64(fold)
		}
		v := m.solve(left, values, roughly)
		predicted := m.predict(v)
		for i, is := range left {
			if is {
				off = append(off, math.Abs(predicted[i]/m.took[i]-1))
			}
		}
	}
	slices.Sort(off)
	return off[len(off)/2]
}
