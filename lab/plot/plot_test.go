package plot

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// TestWriteSVG: the picture is well-formed, has every series and escapes names.
func TestWriteSVG(t *testing.T) {
	c := Chart{Title: "a < b", X: "s", Y: "%", YMax: 100, Marks: []Mark{{1, "cut"}},
		Series: []Series{{Name: "one", X: []float64{0, 1, 2}, Y: []float64{0, 50, 200}}, {Name: "two", X: []float64{0, 2}, Y: []float64{100, 0}}}}
	var b strings.Builder
	if err := c.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 || !strings.Contains(b.String(), "a &lt; b") {
		t.Errorf("%d lines in %s", lines, b.String())
	}
	if err := (&Chart{}).WriteSVG(io.Discard); err != nil {
		t.Error(err)
	}
}

func TestTicks(t *testing.T) {
	for _, most := range []float64{1, 100, 37, 0.004, 7, 123456} {
		if at := ticks(most); len(at) < 3 || len(at) > 8 || at[0] != 0 || at[len(at)-1] > most*1.001 {
			t.Errorf("ticks to %v: %v", most, at)
		}
	}
}

// TestLogAxes: a decade takes the same space anywhere, error bars are drawn, and what has no logarithm is left out.
func TestLogAxes(t *testing.T) {
	x := []float64{0, 1, 10, 100}
	c := Chart{LogX: true, LogY: true, Series: []Series{{Name: "one", X: x, Y: []float64{5, 1, 10, 100},
		Lo: []float64{5, 0, 9, 90}, Hi: []float64{5, 2, 11, 110}}}}
	var b strings.Builder
	if err := c.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "<circle"); n != 3 {
		t.Errorf("%d points of 3 that have a place", n)
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error(b.String())
	}
	a := axis{log: true}
	a.see(1)
	a.see(100)
	a.round()
	if got := a.at(10); got < 0.49 || got > 0.51 {
		t.Errorf("10 is at %v between 1 and 100", got)
	}
	if err := (&Chart{LogX: true, LogY: true}).WriteSVG(io.Discard); err != nil {
		t.Error(err)
	}
}

func TestLogTicks(t *testing.T) {
	for _, r := range [][2]float64{{1, 100}, {64, 1 << 24}, {3, 4}, {1e-3, 1e9}} {
		a := axis{log: true, lo: r[0], hi: r[1]}
		a.round()
		if at := a.ticks(); len(at) < 1 || len(at) > 9 {
			t.Errorf("%v: ticks %v", r, at)
		}
	}
}
