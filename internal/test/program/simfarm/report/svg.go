package main

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// Colours of the rules, distinguishable in grey too.
var colours = []string{"#1b5e9e", "#c0504d", "#9bbb59", "#8064a2", "#7f7f7f"}

// canvas is an SVG picture being drawn, in pixels.
type canvas struct {
	w, h int
	b    strings.Builder
}

func newCanvas(w, h int) *canvas {
	c := &canvas{w: w, h: h}
	fmt.Fprintf(&c.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", w, h, w, h)
	c.rect(0, 0, float64(w), float64(h), "#ffffff")
	return c
}

func (c *canvas) rect(x, y, w, h float64, fill string) {
	fmt.Fprintf(&c.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, w, h, fill)
}

func (c *canvas) line(x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(&c.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
}

// text is anchored at its start, middle or end.
func (c *canvas) text(x, y float64, anchor, s string) {
	fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}

func (c *canvas) path(points [][2]float64, colour string) {
	c.b.WriteString(`<polyline fill="none" stroke-width="1.5" stroke="` + colour + `" points="`)
	for _, p := range points {
		fmt.Fprintf(&c.b, "%.1f,%.1f ", p[0], p[1])
	}
	c.b.WriteString("\"/>\n")
}

func (c *canvas) bytes() []byte { return []byte(c.b.String() + "</svg>\n") }

// legend shows the names of the rules in a row.
func (c *canvas) legend(x, y float64, names []string) {
	for i, n := range names {
		c.rect(x, y-9, 10, 10, colours[i%len(colours)])
		c.text(x+14, y, "start", n)
		x += 30 + 7*float64(len(n))
	}
}

// bars draws groups of bars with values from 1 on; those above most are cut and labelled.
func bars(title string, groups, names []string, values [][]float64, most float64) []byte {
	const rowHeight, left, top, right = 9.0, 110.0, 50.0, 60.0
	group := rowHeight*float64(len(names)) + 8
	c := newCanvas(900, int(top+group*float64(len(groups))+30))
	width := float64(c.w) - left - right
	x := func(v float64) float64 { return left + (min(v, most)-0.9)/(most-0.9)*width }
	c.text(left, 18, "start", title)
	c.legend(left, 38, names)
	bottom := float64(c.h) - 24
	for v := 1.0; v <= most+0.01; v += 0.1 {
		if math.Mod(math.Round(v*10), 2) == 0 {
			c.line(x(v), top, x(v), bottom, "#dddddd")
			c.text(x(v), bottom+16, "middle", fmt.Sprintf("%.1f", v))
		}
	}
	for g, name := range groups {
		y := top + group*float64(g) + 4
		c.text(left-8, y+rowHeight*float64(len(names))/2+4, "end", name)
		for i, v := range values[g] {
			c.rect(x(0.9), y, max(x(v)-x(0.9), 1), rowHeight-1, colours[i%len(colours)])
			if v > most {
				fmt.Fprintf(&c.b, `<text x="%.1f" y="%.1f" font-size="9">%.1f</text>`+"\n", x(most)+4, y+rowHeight-1, v)
			}
			y += rowHeight
		}
	}
	c.line(x(1), top, x(1), bottom, "#000000")
	return c.bytes()
}

// curves draws fractions of 1 over time, one line for each name.
func curves(title string, names []string, values [][]float64, step time.Duration) []byte {
	const left, top, right, below = 50.0, 50.0, 20.0, 40.0
	c := newCanvas(900, 300)
	n := 1
	for _, v := range values {
		n = max(n, len(v))
	}
	total := time.Duration(n) * step
	width, height := float64(c.w)-left-right, float64(c.h)-top-below
	x := func(t time.Duration) float64 { return left + float64(t)/float64(total)*width }
	y := func(v float64) float64 { return top + (1-v)*height }
	c.text(left, 18, "start", title)
	c.legend(left, 38, names)
	for v := 0.0; v <= 1.01; v += 0.25 {
		c.line(left, y(v), left+width, y(v), "#dddddd")
		c.text(left-6, y(v)+4, "end", fmt.Sprintf("%.0f %%", v*100))
	}
	tick := time.Second
	for _, t := range []time.Duration{2, 5, 10, 20, 50, 100, 200, 500, 1000} {
		if total/tick > 10 {
			tick = t * time.Second
		}
	}
	for t := time.Duration(0); t <= total; t += tick {
		c.line(x(t), top+height, x(t), top+height+4, "#000000")
		c.text(x(t), top+height+18, "middle", fmt.Sprintf("%.0f s", t.Seconds()))
	}
	for i, v := range values {
		var points [][2]float64
		for k, u := range v {
			points = append(points, [2]float64{x(time.Duration(k) * step), y(u)})
		}
		c.path(points, colours[i%len(colours)])
	}
	return c.bytes()
}
