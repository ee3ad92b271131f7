package top

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// trendOver is how much of the past lines show.
const trendOver = time.Minute

// trend is what a manager had counted at times in the last minute, the oldest first.
type trend struct {
	pid    int // with since: which manager
	since  time.Time
	points []point
}

// point is what had been counted at a time: commands that had ended, compiles for which the cache was asked, and those that it had.
type point struct {
	at                time.Time
	done, asked, hits uint64
}

// add takes an answer into account. Those of another manager begin anew, and so does one whose counters or clock have gone back.
func (t *trend) add(s *report.Status, now time.Time) {
	p := point{at: now, asked: s.Cache.Asked, hits: s.Cache.AllHits()}
	for i := range s.Jobs {
		p.done += s.Jobs[i].OK + s.Jobs[i].Failed
	}
	if n := len(t.points); t.pid != s.PID || !t.since.Equal(s.Since) || n > 0 && !t.points[n-1].before(&p) {
		*t = trend{pid: s.PID, since: s.Since}
	}
	t.points = append(t.points, p)
	// One point may be older than the minute, from which on the first cell counts.
	for len(t.points) > 2 && now.Sub(t.points[1].at) >= trendOver {
		t.points = t.points[1:]
	}
}

// before reports whether q can come after p.
func (p *point) before(q *point) bool {
	return q.at.After(p.at) && q.done >= p.done && q.asked >= p.asked && q.hits >= p.hits
}

// at returns what had been counted at a time, in proportion between the two answers around it. ok is false before the first one.
func (t *trend) at(when time.Time) (done, asked, hits float64, ok bool) {
	last := len(t.points) - 1
	for i := last; i >= 0; i-- {
		p := &t.points[i]
		if p.at.After(when) {
			continue
		}
		done, asked, hits = float64(p.done), float64(p.asked), float64(p.hits)
		if i < last {
			q := &t.points[i+1]
			part := float64(when.Sub(p.at)) / float64(q.at.Sub(p.at))
			done += part * float64(q.done-p.done)
			asked += part * float64(q.asked-p.asked)
			hits += part * float64(q.hits-p.hits)
		}
		return done, asked, hits, true
	}
	return 0, 0, 0, false
}

// cells returns the last minute in n parts of the same length, which begin at whole multiples of it so that they only move when one
// is over: commands a second, and the share of compiles that the cache had; -1: not known, or it was not asked.
func (t *trend) cells(n int) (perSecond, share []float64) {
	perSecond, share = make([]float64, n), make([]float64, n)
	for i := range n {
		perSecond[i], share[i] = -1, -1
	}
	if len(t.points) < 2 {
		return perSecond, share
	}
	long, now := trendOver/time.Duration(n), t.points[len(t.points)-1].at
	last := now.Truncate(long)
	if now.Sub(last) < long/4 { // too short to tell much: the part before it goes on
		last = last.Add(-long)
	}
	for i := range n {
		from := last.Add(time.Duration(i-n+1) * long)
		to := from.Add(long)
		if i == n-1 {
			to = now
		}
		d0, a0, h0, ok := t.at(from)
		if !ok {
			continue
		}
		d1, a1, h1, _ := t.at(to)
		perSecond[i] = (d1 - d0) / to.Sub(from).Seconds()
		if a1-a0 > 1e-3 {
			share[i] = min((h1-h0)/(a1-a0), 1)
		}
	}
	return perSecond, share
}

// What lines are made of, from nothing to all. A terminal whose encoding is not UTF-8 gets the latter.
var (
	blocks = []rune("▁▂▃▄▅▆▇█")
	ascii  = []rune("_.-=+*#@")
)

// spark draws values from 0 to most as a line. A value below 0 is a blank.
func spark(values []float64, most float64, of []rune) string {
	line := make([]rune, len(values))
	for i, v := range values {
		line[i] = ' '
		if v >= 0 {
			step := 0
			if v > 0 && most > 0 { // little is more than nothing
				step = 1 + int(v/most*float64(len(of)-2)+0.5)
			}
			line[i] = of[min(step, len(of)-1)]
		}
	}
	return string(line)
}

// Widths of a line, in cells: they divide the minute into whole seconds.
var trendWidths = [...]int{60, 30, 20, 15, 12, 10}

// trendLine shows the last minute: what ended a second and, if the cache was asked, which part it had. It is empty where there is
// no room, or nothing to show yet.
func (m *Model) trendLine() Line {
	n := len(m.trend.points)
	if n < 2 {
		return nil
	}
	first, last := &m.trend.points[0], &m.trend.points[n-1]
	asked := last.asked - first.asked
	hits := figure.Percent(last.hits-first.hits, asked)
	of := blocks
	if m.plain {
		of = ascii
	}
	for _, n := range trendWidths {
		jobs, share := m.trend.cells(n)
		most := 0.0
		for _, v := range jobs {
			most = max(most, v)
		}
		l := Line{{Plain, "last minute "}, {Good, spark(jobs, most, of)}, {Plain, fmt.Sprintf(" up to %.1f jobs/s", most)}}
		if asked > 0 {
			l = append(l, Span{Plain, "  "}, Span{Good, spark(share, 1, of)}, Span{Plain, " cache hits " + hits})
		}
		if n == trendWidths[len(trendWidths)-1] { // the last resort
			l = Line{{Good, spark(jobs, most, of)}, {Plain, fmt.Sprintf(" %.1f/s", most)}}
			if asked > 0 {
				l = append(l, Span{Plain, "  "}, Span{Good, spark(share, 1, of)}, Span{Plain, " hits " + hits})
			}
		}
		if Width(l.String()) <= m.width {
			return l
		}
	}
	return nil
}
