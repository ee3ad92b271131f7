package main

import (
	"bytes"
	"fmt"
	"html"
	"time"
)

// Dimensions of the plot, in pixels except for the bucket.
const (
	bucket = 500 * time.Millisecond
	wide   = 1100.0
	left   = 90.0
	lane   = 64.0
	gap    = 26.0
)

// plot draws how busy each host was over time, its faults, and what ran here.
func plot(r *result) []byte {
	var b bytes.Buffer
	lanes := append(append([]string{}, r.names...), "here")
	span := r.took + time.Second
	x := func(t time.Time) float64 {
		return left + (wide-left-10)*float64(t.Sub(r.began))/float64(span)
	}
	height := 50 + float64(len(lanes)+1)*(lane+gap)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">`+"\n", wide, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%.0f" y="16" font-size="13">seed %d: %d compiles in %.0f s, %d faults. Places in use at each host over time; bars and ticks are faults.</text>`+"\n",
		left, r.plan.seed, len(r.jobs), r.took.Seconds(), len(r.strikes))
	for i, name := range lanes {
		top := 40 + float64(i)*(lane+gap)
		label, most := fmt.Sprintf("host %d", i+1), float64(places)
		if name == "here" {
			label, most = name, 2*places
		}
		fmt.Fprintf(&b, `<text x="8" y="%.1f">%s</text><rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#f4f4f4"/>`+"\n",
			top+lane/2, label, left, top, wide-left-10, lane)
		fmt.Fprintf(&b, `<path fill="#4878a8" d="M%.1f %.1f`, left, top+lane)
		for at := time.Duration(0); at < span; at += bucket {
			used := min(r.used(name, r.began.Add(at))/most, 1)
			y := top + lane*(1-used)
			fmt.Fprintf(&b, `L%.1f %.1fL%.1f %.1f`, x(r.began.Add(at)), y, x(r.began.Add(min(at+bucket, span))), y)
		}
		fmt.Fprintf(&b, "L%.1f %.1fZ\"/>\n", wide-10, top+lane)
		for _, s := range r.strikes {
			here := kinds[s.kind].at != atHost
			if here != (name == "here") || !here && s.host != i {
				continue
			}
			from, to := x(s.from), max(x(s.to), x(s.from)+2)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="6" fill="%s"><title>%s</title></rect>`+"\n",
				from, top+lane+2, to-from, colour(s.kind), html.EscapeString(s.String()))
		}
	}
	base := 40 + float64(len(lanes))*(lane+gap)
	step := (span / 10).Round(time.Second)
	for at := time.Duration(0); at < span; at += max(step, time.Second) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f">%.0f s</text>`+"\n", x(r.began.Add(at)), base, at.Seconds())
	}
	col, row := 0.0, base+18
	for k := range numKinds {
		fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="10" height="8" fill="%s"/><text x="%.1f" y="%.1f">%s</text>`+"\n",
			left+col, row-8, colour(k), left+col+14, row, html.EscapeString(k.String()))
		if col += 160; col > wide-left-150 {
			col, row = 0, row+15
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// used returns how many places of a host were in use on average in the bucket from at on.
func (r *result) used(name string, at time.Time) float64 {
	end := at.Add(bucket)
	var sum time.Duration
	for i := range r.jobs {
		o := &r.jobs[i]
		if o.host != name && !(name == "here" && o.host == "") {
			continue
		}
		from, to := o.from, o.to
		if from.Before(at) {
			from = at
		}
		if to.After(end) {
			to = end
		}
		sum += max(to.Sub(from), 0)
	}
	return float64(sum) / float64(bucket)
}

func colour(k kind) string {
	return fmt.Sprintf("hsl(%d, 75%%, 45%%)", int(k)*360/int(numKinds))
}
