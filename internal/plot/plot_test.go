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
		Series: []Series{{"one", []float64{0, 1, 2}, []float64{0, 50, 200}}, {"two", []float64{0, 2}, []float64{100, 0}}}}
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
