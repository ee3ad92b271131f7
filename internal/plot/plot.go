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
	Series      []Series
	Marks       []Mark
}

// Series is one line through points.
type Series struct {
	Name string
	X, Y []float64 // of the same length, X rising
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

// WriteSVG draws the chart. Axes begin at 0; without YMax the highest point is at the top.
func (c *Chart) WriteSVG(w io.Writer) error {
	var xmax, ymax float64
	for _, s := range c.Series {
		for i := range s.X {
			xmax, ymax = math.Max(xmax, s.X[i]), math.Max(ymax, s.Y[i])
		}
	}
	if c.YMax > 0 {
		ymax = c.YMax
	}
	xmax, ymax = math.Max(xmax, 1e-9), math.Max(ymax, 1e-9)
	px := func(x float64) float64 { return left + x/xmax*(width-left-right) }
	py := func(y float64) float64 { return height - bottom - math.Min(y, ymax)/ymax*(height-top-bottom) }

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
	for _, v := range ticks(ymax) {
		line(left, py(v), width-right, py(v), "#dddddd")
		text(left-6, py(v)+4, "end", "", number(v))
	}
	for _, v := range ticks(xmax) {
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
			fmt.Fprintf(&b, "%.1f,%.1f ", px(s.X[k]), py(s.Y[k]))
		}
		b.WriteString(`"/>` + "\n")
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
