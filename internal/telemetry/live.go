package telemetry

import "time"

// Live is what a page shows of the last minutes, beside its facts and tables: what ran in each place, and how much. A
// page with it is updated once a second in a browser that runs its script, as long as somebody looks at it.
//
// All its texts may come from peers. The page treats them as text, and the events cut them.
type Live struct {
	Lanes   []Lane
	Running []Bar   // what runs now
	Ended   []Bar   // what has ended since the last time
	Counts  []Count // by second and chart, since the last time
	Next    uint64  // continues where this ends
}

// Lane is a host with its places, or anything else in which things run one after the other.
type Lane struct {
	Name   string `json:"name"`
	Places int    `json:"places"` // how many may run at a time; more are shown if more do
	Note   string `json:"note,omitempty"`
	Tone   Tone   `json:"tone,omitempty"`
}

// Bar is something that runs in a place for a time.
type Bar struct {
	ID    string // the same while it runs and when it has ended
	Lane  string // name of its Lane
	Place int    // its place, from 0; -1: any that is free
	Text  string // such as a file
	More  string // one line of details
	Tone  Tone   // its outcome: ToneWarn, ToneBad
	Begin time.Time
	// Parts follow each other from Begin on. The last one of what runs is open.
	Parts []Part
}

// Part is a part of a bar.
type Part struct {
	Kind Kind
	Long time.Duration
}

// Kind is what happens in a part of a bar, or what a number in a chart counts. It decides about colour and form.
type Kind string

// Kinds.
const (
	KindWait    Kind = "wait"    // a place is not used: waits, or data are on their way
	KindCompile Kind = "compile" // on a host
	KindCached  Kind = "cached"
	KindHere    Kind = "here"    // on the build host, as it should be
	KindTrouble Kind = "trouble" // on the build host, because something went wrong
	KindFailed  Kind = "failed"
)

// Count is a number of a chart: how many in one second, or how many there are then.
type Count struct {
	Chart int // its index in LiveOptions.Charts
	At    time.Time
	// Values are one for each series of the chart. They are added to what the second has already, except in a chart
	// of levels.
	Values []int
}

// ChartMode says how the numbers of a chart are shown.
type ChartMode string

// Modes of charts.
const (
	ChartRate  ChartMode = "rate"  // per second, one series above the other
	ChartShare ChartMode = "share" // what part the first series is of the second, in percent
	ChartLevel ChartMode = "level" // as they are
)

// Chart describes one chart.
type Chart struct {
	Title  string    `json:"title"`
	Mode   ChartMode `json:"mode"`
	Series []Key     `json:"series"`
}

// Key is a kind with its name for people.
type Key struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

// LiveOptions say what a page shows live.
type LiveOptions struct {
	Title  string  // of the lanes
	Legend []Key   // of the lanes
	Charts []Chart // above them
	// Look returns the state now, and what has happened after from, which is 0 at first and later the Next of the
	// last answer.
	Look func(from uint64) Live
}
