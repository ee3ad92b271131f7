package main

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/pkg/worker"
)

// places is the name of the lane of this host.
const places = "places"

// shows says what the status page shows as it changes.
func (d *daemon) shows() *telemetry.LiveOptions {
	return &telemetry.LiveOptions{
		Title: "Places",
		Legend: []telemetry.Key{{Kind: telemetry.KindCompile, Name: "compiles"}, {Kind: telemetry.KindWait, Name: "waits"},
			{Kind: telemetry.KindFailed, Name: "failed"}},
		Charts: []telemetry.Chart{
			{Title: "Jobs answered", Mode: telemetry.ChartRate, Series: []telemetry.Key{
				{Kind: telemetry.KindCompile, Name: "done"}, {Kind: telemetry.KindCached, Name: "joined"}, {Kind: telemetry.KindFailed, Name: "failed"}, {Kind: telemetry.KindTrouble, Name: "refused"}}},
			{Title: "Now", Mode: telemetry.ChartLevel, Series: []telemetry.Key{
				{Kind: telemetry.KindCompile, Name: "compiling"}, {Kind: telemetry.KindHere, Name: "waiting"}}},
		},
		Look: d.look,
	}
}

// look returns what runs in the places, and what has ended.
func (d *daemon) look(from uint64) telemetry.Live {
	st, now := d.w.Status(), time.Now()
	l := telemetry.Live{
		Lanes:  []telemetry.Lane{{Name: places, Places: int(st.Load.Jobs)}},
		Counts: []telemetry.Count{{Chart: 1, At: now, Values: []int{int(st.Load.Running), int(st.Load.Queued)}}},
	}
	for i := range st.Jobs {
		j := &st.Jobs[i]
		if j.Place == 0 {
			continue // it waits; the table has it
		}
		l.Running = append(l.Running, telemetry.Bar{ID: runningID(j, now), Lane: places, Place: j.Place - 1, Text: cmp.Or(j.Source, "job"), More: "for " + j.Client,
			Begin: now.Add(-j.Taken), Parts: []telemetry.Part{{Kind: telemetry.KindCompile}}})
	}
	l.Next = d.w.EachEnded(from, func(j *worker.EndedJob) {
		series := 0
		b := telemetry.Bar{ID: strconv.FormatUint(j.N, 10), Lane: places, Place: j.Place - 1, Text: cmp.Or(j.Source, "job"), More: "for " + j.Client,
			Begin: j.Queued, Parts: []telemetry.Part{{Kind: telemetry.KindWait, Long: j.Started.Sub(j.Queued)}, {Kind: telemetry.KindCompile, Long: j.Ended.Sub(j.Started)}}}
		switch j.Outcome {
		case worker.OutcomeOK:
		case worker.OutcomeJoined:
			series = 1
		case worker.OutcomeRefused:
			series = 3
		default:
			series, b.Tone = 2, telemetry.ToneBad
			b.More += ": " + j.Outcome
			if j.Outcome == worker.OutcomeFailed {
				b.More += fmt.Sprintf(", exit status %d", j.Exit)
			}
			if j.Detail != "" {
				b.More += ": " + j.Detail
			}
		}
		if j.Place > 0 {
			l.Ended = append(l.Ended, b)
		}
		values := make([]int, 4)
		values[series] = 1
		l.Counts = append(l.Counts, telemetry.Count{Chart: 0, At: j.Ended, Values: values})
	})
	return l
}

// runningID names a job while it runs: a place has one at a time.
func runningID(j *worker.JobStatus, now time.Time) string {
	return fmt.Sprintf("place %d since %d", j.Place, now.Add(-j.Taken).UnixMilli())
}
