package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/spans"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Lanes beside those of hosts.
const (
	laneHere  = "this machine"
	laneCache = "cache"
)

// Charts of the page, by index.
const (
	chartEnded = iota
	chartHits
	chartNow
)

// shows says what the status page shows as it changes.
func (d *daemon) shows() *telemetry.LiveOptions {
	return &telemetry.LiveOptions{
		Title: "Places",
		Legend: []telemetry.Key{
			{Kind: telemetry.KindCompile, Name: "compiles on a host"}, {Kind: telemetry.KindWait, Name: "on its way, or queued there"},
			{Kind: telemetry.KindCached, Name: "from the cache"}, {Kind: telemetry.KindHere, Name: "runs here"},
			{Kind: telemetry.KindTrouble, Name: "runs here because of trouble"}, {Kind: telemetry.KindFailed, Name: "failed"},
		},
		Charts: []telemetry.Chart{
			chartEnded: {Title: "Commands done", Mode: telemetry.ChartRate, Series: []telemetry.Key{
				{Kind: telemetry.KindCompile, Name: "hosts"}, {Kind: telemetry.KindCached, Name: "cache"},
				{Kind: telemetry.KindHere, Name: "here"}, {Kind: telemetry.KindTrouble, Name: "trouble"}}},
			chartHits: {Title: "Cache hits", Mode: telemetry.ChartShare, Series: []telemetry.Key{
				{Kind: telemetry.KindCached, Name: "hits"}, {Kind: telemetry.KindWait, Name: "asked"}}},
			chartNow: {Title: "Under way", Mode: telemetry.ChartLevel, Series: []telemetry.Key{
				{Kind: telemetry.KindCompile, Name: "on hosts"}, {Kind: telemetry.KindHere, Name: "here"}, {Kind: telemetry.KindTrouble, Name: "waiting"}}},
		},
		Look: func(from uint64) telemetry.Live {
			s := d.m.Status()
			l := lookAt(&s, time.Now())
			l.Next = d.m.EachEnded(from, func(r *report.JobRecord) { addEnded(&l, r) })
			return l
		},
	}
}

// lookAt returns the lanes and what is under way.
func lookAt(s *report.Status, now time.Time) telemetry.Live {
	l := telemetry.Live{Lanes: []telemetry.Lane{}}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		lane := telemetry.Lane{Name: h.Addr, Places: h.Jobs}
		if lane.Tone = tone(h.Word()); lane.Tone != telemetry.ToneGood {
			lane.Note = h.Word()
		} else if h.Load != nil && int(h.Load.Running) > h.Running {
			lane.Note = fmt.Sprintf("%d of others", int(h.Load.Running)-h.Running)
		}
		l.Lanes = append(l.Lanes, lane)
	}
	// Of a large farm, those are shown that take part.
	slices.SortStableFunc(l.Lanes, func(a, b telemetry.Lane) int { return cmp.Compare(rank(a), rank(b)) })
	l.Lanes = append([]telemetry.Lane{{Name: laneHere}, {Name: laneCache}}, l.Lanes...)
	levels := make([]int, 3)
	for i := range s.Underway {
		u := &s.Underway[i]
		b := telemetry.Bar{ID: strconv.FormatUint(u.ID, 10), Place: -1, Text: u.Source, More: "job " + strconv.FormatUint(u.ID, 10),
			Begin: now.Add(-time.Duration(u.PhaseMS) * time.Millisecond), Parts: []telemetry.Part{{Kind: telemetry.KindCompile}}}
		switch {
		case len(u.Hosts) > 0:
			levels[0]++
			for j, host := range u.Hosts {
				if b.Lane = host; j > 0 { // it ends with the first
					b.ID += " again"
				}
				l.Running = append(l.Running, b)
			}
		case u.Here && u.Phase == report.PhaseRuns:
			levels[1]++
			b.Lane, b.Parts[0].Kind = laneHere, telemetry.KindHere
			l.Running = append(l.Running, b)
		default:
			levels[2]++
		}
	}
	l.Counts = append(l.Counts, telemetry.Count{Chart: chartNow, At: now, Values: levels})
	return l
}

func rank(l telemetry.Lane) int {
	switch l.Tone {
	case telemetry.ToneGood:
		return 0
	case telemetry.ToneWarn:
		return 1
	}
	return 2
}

// addEnded adds a command that has ended.
func addEnded(l *telemetry.Live, r *report.JobRecord) {
	b := telemetry.Bar{ID: strconv.FormatUint(r.ID, 10), Place: -1, Text: spans.Name(r), More: "job " + strconv.FormatUint(r.ID, 10)}
	span := spans.Of(r)
	add := func(kind telemetry.Kind, names ...string) {
		for _, p := range span.Phases {
			if slices.Contains(names, p.Name) {
				if len(b.Parts) == 0 {
					b.Begin = p.Begin
				}
				b.Parts = append(b.Parts, telemetry.Part{Kind: kind, Long: p.End.Sub(p.Begin)})
			}
		}
	}
	series := 0
	switch r.Place() {
	case report.PlaceLocal:
		b.Lane, series = laneHere, 2
		kind := telemetry.KindHere
		if r.Trouble {
			kind, series = telemetry.KindTrouble, 3
		}
		add(kind, spans.Runs)
		b.More += ": " + cmp.Or(r.Detail, reason.Explain(r.Reason))
	case report.PlaceCached:
		b.Lane, series = laneCache, 1
		add(telemetry.KindCached, spans.Look)
	default:
		b.Lane = r.Host
		add(telemetry.KindWait, spans.Write, spans.Queue)
		add(telemetry.KindCompile, spans.Compile)
		add(telemetry.KindWait, spans.Return)
	}
	switch {
	case !r.Finished:
		b.Tone = telemetry.ToneBad
		b.More += "; it was ended"
	case r.Exit != 0:
		b.Tone = telemetry.ToneBad
		b.More += fmt.Sprintf("; exit status %d", r.Exit)
	}
	if len(b.Parts) > 0 {
		l.Ended = append(l.Ended, b)
	}
	values := make([]int, 4)
	values[series] = 1
	l.Counts = append(l.Counts, telemetry.Count{Chart: chartEnded, At: r.Ended, Values: values})
	if r.Asked || r.Cached != "" {
		hit := 0
		if r.Place() == report.PlaceCached {
			hit = 1
		}
		l.Counts = append(l.Counts, telemetry.Count{Chart: chartHits, At: r.Ended, Values: []int{hit, 1}})
	}
}

// reasons is the page of the reasons why commands run here, to which the status page links.
func (d *daemon) reasons() telemetry.Page {
	p := d.page()
	p.Facts, p.Notes, p.Tables = nil, nil, []telemetry.Table{reasonTable()}
	return p
}

func reasonTable() telemetry.Table {
	t := telemetry.Table{Title: "Why commands run here (docs/troubleshooting.md)", Columns: []string{"reason", "what it means", "what to do"}}
	seen := make(map[string]bool)
	for _, w := range reason.Words {
		first := telemetry.Cell{Text: w.Reason}
		if id := reason.Label(w.Reason); !seen[id] {
			seen[id], first.ID = true, id
		}
		t.Rows = append(t.Rows, []telemetry.Cell{first, {Text: w.Means}, {Text: cmp.Or(w.Remedy, "-")}})
	}
	return t
}
