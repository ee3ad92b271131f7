package network

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/lab/plot"
)

// usage is how much of a farm builds used.
type usage struct {
	took        time.Duration // from the first command's start to the last one's end
	ideal       time.Duration // what slots that are never idle would take
	utilisation float64       // compile time by slots and makespan; 0 to 1
}

func (u usage) String() string {
	return fmt.Sprintf("makespan %.1f s, ideal %.1f s, ratio %.3f; utilisation %.1f %%",
		u.took.Seconds(), u.ideal.Seconds(), u.took.Seconds()/u.ideal.Seconds(), 100*u.utilisation)
}

// measure judges builds of equal jobs on slots places.
func measure(all []compiled, slots int, each time.Duration) usage {
	first, last, sum := math.Inf(1), 0.0, 0.0
	for i := range all {
		c := &all[i]
		first, last = min(first, c.Start), max(last, c.Start+c.MS.Total)
		if c.Where == "remote" {
			sum += float64(each) / 1e6
		}
	}
	u := usage{took: time.Duration((last - first) * 1e6), ideal: time.Duration((len(all)+slots-1)/slots) * each}
	u.utilisation = sum / float64(slots) / (last - first)
	return u
}

// picture draws how many of a farm's places compiled over time, into a file of the
// directory that RDISTCC_PLOTS names.
func picture(t *testing.T, name, title string, slots int, series map[string][]compiled, marks ...plot.Mark) {
	t.Helper()
	dir := os.Getenv("RDISTCC_PLOTS")
	if dir == "" {
		return
	}
	first, last := math.Inf(1), 0.0
	for _, all := range series {
		for i := range all {
			first, last = min(first, all[i].Start), max(last, all[i].Start+all[i].MS.Total)
		}
	}
	c := plot.Chart{Title: title, X: "seconds", Y: "% of the farm's places compiling", YMax: 100, Marks: marks}
	const bins = 200
	width := (last - first) / bins
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for k := range series {
			if !yield(k) {
				return
			}
		}
	}) {
		s := plot.Series{Name: key}
		var busy [bins]float64
		for i := range series[key] {
			if c := &series[key][i]; c.Where == "remote" {
				from, to := c.span()
				for k := max(0, int((from-first)/width)); k < bins && first+float64(k)*width < to; k++ {
					lo, hi := first+float64(k)*width, first+float64(k+1)*width
					busy[k] += max(0, min(hi, to)-max(lo, from)) / width
				}
			}
		}
		for k, v := range busy {
			s.X, s.Y = append(s.X, (float64(k)+0.5)*width/1e3), append(s.Y, 100*v/float64(slots))
		}
		c.Series = append(c.Series, s)
	}
	f, err := os.Create(filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(name)+".svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.WriteSVG(f); err != nil {
		t.Error(err)
	}
}

// holds is what a process holds.
type holds struct {
	resident    int64 // bytes
	descriptors int
}

func (h holds) String() string {
	return fmt.Sprintf("%d MiB, %d descriptors", h.resident>>20, h.descriptors)
}

// held reads it; a process that has ended holds nothing.
func held(p farm.Process) (h holds) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	for line := range strings.Lines(string(status)) {
		var kib int64
		// Not memory of slots: that is shared with the wrappers, and bounded by itself.
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			h.resident = kib << 10
		}
	}
	names, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	h.descriptors = len(names)
	return h
}

// peak watches processes until stop is called, which returns the most that one of
// them held.
func peak(processes ...farm.Process) (stop func() holds) {
	end, result := make(chan struct{}), make(chan holds)
	go func() {
		var most holds
		tick := time.NewTicker(max(200*time.Millisecond, time.Duration(len(processes))*25*time.Millisecond)) // not much of the processor
		defer tick.Stop()
		for {
			for _, p := range processes {
				h := held(p)
				most.resident, most.descriptors = max(most.resident, h.resident), max(most.descriptors, h.descriptors)
			}
			select {
			case <-tick.C:
			case <-end:
				result <- most
				return
			}
		}
	}()
	return func() holds { close(end); return <-result }
}
