package buildpage

import (
	"fmt"
	"path"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/figure"
)

// treemap shows headers as areas, each as large as what it costs over all units.
type treemap struct {
	Width, Height int
	Areas         []area
	Rest          string // what the headers that are too small to be drawn cost together
}

type area struct {
	X, Y, Width, Height float64
	Name, Title         string
	System              bool
	Wide                bool // its name fits
}

const (
	mapWidth  = 1000
	mapHeight = 360
	maxAreas  = 150
)

// treemapOf lays out headers, the costliest first: each strip along the shorter side takes as many as make its areas most like squares
// (squarified treemaps, after Bruls, Huizing and van Wijk). It returns nil if nothing is known of what they cost.
func treemapOf(dir string, c *costs.Report) *treemap {
	var all, drawn time.Duration
	var heads []*costs.Header
	for i := range c.Headers {
		h := &c.Headers[i]
		all += max(h.CPU, 0)
		if h.CPU > 0 && len(heads) < maxAreas {
			heads = append(heads, h)
			drawn += h.CPU
		}
	}
	if drawn == 0 {
		return nil
	}
	m := &treemap{Width: mapWidth, Height: mapHeight}
	if rest := all - drawn; rest > 0 {
		m.Rest = figure.Digits(rest)
	}
	scale := mapWidth * mapHeight / float64(drawn) // area of a nanosecond
	x, y, w, h := 0.0, 0.0, float64(mapWidth), float64(mapHeight)
	for len(heads) > 0 {
		side := min(w, h)
		n, sum := 1, float64(heads[0].CPU)*scale
		worst := ratio(sum, float64(heads[0].CPU)*scale, side)
		for ; n < len(heads); n++ {
			more := sum + float64(heads[n].CPU)*scale
			now := max(ratio(more, float64(heads[0].CPU)*scale, side), ratio(more, float64(heads[n].CPU)*scale, side))
			if now > worst {
				break
			}
			sum, worst = more, now
		}
		thick := sum / side
		at := 0.0
		for _, head := range heads[:n] {
			long := float64(head.CPU) * scale / thick
			a := area{X: x, Y: y + at, Width: thick, Height: long}
			if w < h {
				a = area{X: x + at, Y: y, Width: long, Height: thick}
			}
			at += long
			a.Name = path.Base(head.Name())
			a.System = head.System()
			a.Wide = a.Width > 7*float64(len([]rune(a.Name)))+6 && a.Height > 16
			others := ""
			if k := len(head.Files) - 1; k > 0 {
				others = fmt.Sprintf(" and %s always read with it", figure.Count(k, "other"))
			}
			a.Title = fmt.Sprintf("%s%s: %s over %s", figure.Near(dir, head.Name()), others, figure.Digits(head.CPU), figure.Count(head.Units, "unit"))
			m.Areas = append(m.Areas, a)
		}
		if w < h {
			y, h = y+thick, h-thick
		} else {
			x, w = x+thick, w-thick
		}
		heads = heads[n:]
	}
	return m
}

// ratio returns how far from a square an area is, in a strip of areas that are sum together along a side.
func ratio(sum, one, side float64) float64 {
	thick := sum / side
	long := one / thick
	return max(thick/long, long/thick)
}
