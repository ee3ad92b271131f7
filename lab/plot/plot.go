// Package plot draws line charts as SVG, for documents: plain text that a browser
// shows, and that differs in a few lines when a figure does.
package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
)

// Chart is one picture.
type Chart struct {
	Title, X, Y string // X and Y name the axes, with their units
	YMax        float64
	LogX, LogY  bool // logarithmic axes; what is not positive is left out
	Series      []Series
	Marks       []Mark
}

// Series is one line through points.
type Series struct {
	Name   string
	X, Y   []float64 // of the same length, X rising
	Lo, Hi []float64 // ends of each point's error bar, as many as points; or nil
}

// Mark is a labelled point in time.
type Mark struct {
	X    float64
	Name string
}

// The picture's size and the space for the curves, in pixels.
const (
	width, height            = 820, 320
	left, right, top, bottom = 60, 20, 36, 46
)

// Colours that can be distinguished in print as well.
var colours = []string{"#1b6ca8", "#c8553d", "#3a7d44", "#8f6bb3", "#b8860b", "#5f5f5f"}

// WriteSVG draws the chart. Linear axes begin at 0; without YMax the highest point is at the top.
// Logarithmic ones begin at the lowest point, rounded down to a tick.
func (c *Chart) WriteSVG(w io.Writer) error {
	xs, ys := axis{log: c.LogX}, axis{log: c.LogY}
	for _, s := range c.Series {
		for i := range s.X {
			xs.see(s.X[i])
			ys.see(s.Y[i])
			if i < len(s.Hi) && i < len(s.Lo) {
				ys.see(s.Hi[i])
				ys.see(s.Lo[i])
			}
		}
	}
	if c.YMax > 0 {
		ys.hi = c.YMax
	}
	xs.round()
	ys.round()
	px := func(x float64) float64 { return left + xs.at(x)*(width-left-right) }
	py := func(y float64) float64 { return height - bottom - ys.at(y)*(height-top-bottom) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	text := func(x, y float64, anchor, more, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(s))
	}
	line := func(x1, y1, x2, y2 float64, stroke string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, stroke)
	}
	text(width/2, 18, "middle", ` font-weight="bold"`, c.Title)
	text(width/2, height-8, "middle", "", c.X)
	text(14, height/2, "middle", fmt.Sprintf(` transform="rotate(-90 14 %d)"`, height/2), c.Y)
	for _, v := range ys.ticks() {
		line(left, py(v), width-right, py(v), "#dddddd")
		text(left-6, py(v)+4, "end", "", number(v))
	}
	for _, v := range xs.ticks() {
		line(px(v), height-bottom, px(v), height-bottom+4, "black")
		text(px(v), height-bottom+18, "middle", "", number(v))
	}
	line(left, height-bottom, width-right, height-bottom, "black")
	line(left, top, left, height-bottom, "black")
	for _, m := range c.Marks {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#999999" stroke-dasharray="4 3"/>`+"\n", px(m.X), top, px(m.X), height-bottom)
		text(px(m.X)+3, top+10, "start", ` fill="#666666" font-size="10"`, m.Name)
	}
	for i, s := range c.Series {
		colour := colours[i%len(colours)]
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, colour)
		for k := range s.X {
			if xs.shows(s.X[k]) && ys.shows(s.Y[k]) {
				fmt.Fprintf(&b, "%.1f,%.1f ", px(s.X[k]), py(s.Y[k]))
			}
		}
		b.WriteString(`"/>` + "\n")
		for k := range s.X {
			if k >= len(s.Lo) || k >= len(s.Hi) || !xs.shows(s.X[k]) || !ys.shows(s.Y[k]) {
				continue
			}
			x := px(s.X[k])
			line(x, py(max(s.Lo[k], ys.lo)), x, py(s.Hi[k]), colour)
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="2.2" fill="%s"/>`+"\n", x, py(s.Y[k]), colour)
		}
		if len(c.Series) > 1 {
			y := float64(top + 14*i + 8)
			line(width-right-150, y, width-right-130, y, colour)
			text(width-right-125, y+4, "start", "", s.Name)
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// axis is the range of one axis.
type axis struct {
	log    bool
	lo, hi float64 // lo of a linear one is 0
}

// shows reports whether a value has a place on the axis.
func (a *axis) shows(v float64) bool { return !a.log || v > 0 }

// see makes room for a value.
func (a *axis) see(v float64) {
	if !a.shows(v) || math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	a.hi = max(a.hi, v)
	if a.log && (a.lo == 0 || v < a.lo) {
		a.lo = v
	}
}

// round gives an axis without values some range, and ends a logarithmic one at steps of 1, 2, 5.
func (a *axis) round() {
	a.hi = math.Max(a.hi, 1e-9)
	if !a.log {
		return
	}
	if a.lo == 0 {
		a.lo = a.hi / 10
	}
	if below := steps(a.lo/10, a.lo); len(below) > 0 {
		a.lo = below[len(below)-1]
	}
	if a.lo >= a.hi {
		a.hi = a.lo * 2
	}
}

// at returns where on the axis a value is, from 0 to 1.
func (a *axis) at(v float64) float64 {
	v = min(v, a.hi)
	if a.log {
		return math.Log(max(v, a.lo)/a.lo) / math.Log(a.hi/a.lo)
	}
	return v / a.hi
}

func (a *axis) ticks() []float64 {
	if !a.log {
		return ticks(a.hi)
	}
	at := steps(a.lo, a.hi)
	for every := 2; len(at) > 9; every++ { // over many decades, tens and then fewer
		decades := at[:0]
		for _, v := range at {
			if d := math.Log10(v); math.Abs(d-math.Round(d)) < 1e-6 && (every == 2 || int(math.Round(d))%(every-1) == 0) {
				decades = append(decades, v)
			}
		}
		at = decades
	}
	return at
}

// steps returns 1, 2 and 5 times the powers of ten from lo to hi.
func steps(lo, hi float64) (at []float64) {
	for d := math.Pow(10, math.Floor(math.Log10(lo))); d <= hi*1.0001; d *= 10 {
		for _, f := range []float64{1, 2, 5} {
			if v := d * f; v >= lo*0.9999 && v <= hi*1.0001 {
				at = append(at, v)
			}
		}
	}
	return at
}

// ticks returns about six round numbers from 0 to most.
func ticks(most float64) (at []float64) {
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{0.1, 0.2, 0.5, 1} {
		if most/(step*f) <= 7 {
			step *= f
			break
		}
	}
	for i := 0; float64(i)*step <= most*1.0001; i++ {
		at = append(at, float64(i)*step)
	}
	return at
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
