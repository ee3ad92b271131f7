package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

func cpus() int { return runtime.NumCPU() }

// samples keeps every raw figure, one JSON object per line.
type samples struct {
	path string
	f    *os.File
	enc  *json.Encoder
}

// sample is one figure of one side in one round. Unused fields are left out.
type sample struct {
	Figure    string  `json:"figure"`
	Side      string  `json:"side"`
	Round     int     `json:"round"`
	WallMS    float64 `json:"wall_ms,omitempty"`
	CPUMS     float64 `json:"cpu_ms,omitempty"`
	HostMS    float64 `json:"host_cpu_ms,omitempty"` // the daemon with its compiler
	ManagerMS float64 `json:"manager_cpu_ms,omitempty"`
	ClientMS  float64 `json:"client_cpu_ms,omitempty"` // the command and what it waited for
	GBps      float64 `json:"gb_per_s,omitempty"`
	GBpCPU    float64 `json:"gb_per_cpu_s,omitempty"`
	P50US     float64 `json:"p50_us,omitempty"`
}

func newSamples(dir string) (*samples, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "samples-"+time.Now().UTC().Format("20060102-150405")+".jsonl")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &samples{path: path, f: f, enc: json.NewEncoder(f)}, nil
}

func (s *samples) add(x sample) { _ = s.enc.Encode(x) } // close reports a full disk

func (s *samples) close() error { return s.f.Close() }

// median returns the median of a list; 0 for an empty one.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func mean(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// diff subtracts base from v round by round.
func diff(v, base []float64) []float64 {
	d := make([]float64, min(len(v), len(base)))
	for i := range d {
		d[i] = v[i] - base[i]
	}
	return d
}

// table is what is printed at the end.
type table struct{ rows []row }

type row struct{ id, what, ours, rival, ratio, goal string }

// ratio adds a line with two figures and their quotient.
func (t *table) ratio(id, what, unit string, ours, rival float64, goal string) {
	q := "-"
	if rival != 0 {
		q = fmt.Sprintf("%.2f", ours/rival)
	}
	t.rows = append(t.rows, row{id, what, fmt.Sprintf("%.2f %s", ours, unit), fmt.Sprintf("%.2f %s", rival, unit), q, goal})
}

// note adds a line of text, such as why a figure is missing.
func (t *table) note(id, what, ours, rival, goal string) {
	t.rows = append(t.rows, row{id, what, ours, rival, "-", goal})
}

func (t *table) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "#\twhat\trdistcc\tdistcc, TCP or the cache named\tratio\tgoal")
	for _, r := range t.rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", r.id, r.what, r.ours, r.rival, r.ratio, r.goal)
	}
	_ = tw.Flush()
}
