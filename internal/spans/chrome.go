package spans

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Build is the build whose commands are shown.
type Build struct {
	Name         string
	Began, Ended time.Time
}

// event is one event of Chrome's trace event format: a complete one ("X"), or a name ("M"). Times are microseconds
// since the build began.
type event struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	TS   float64        `json:"ts"`
	Dur  float64        `json:"dur"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

// Groups of lanes; the hosts follow.
const (
	groupBuild = 1 // the commands, as the build has started them
	groupHere  = 2 // what ran on this machine
	groupHosts = 3
)

// WriteChrome writes a build in Chrome's trace event format, which Perfetto opens: a lane for each command under way,
// with its phases, for each place of each host, and for each command that ran on this machine at a time. It sorts jobs.
func WriteChrome(w io.Writer, b *Build, jobs []report.JobRecord) error {
	slices.SortStableFunc(jobs, func(x, y report.JobRecord) int { return x.Began.Compare(y.Began) })
	out := bufio.NewWriter(w)
	c := &chrome{w: out, b: b, e: json.NewEncoder(out)}
	c.e.SetEscapeHTML(false)
	_, c.err = out.WriteString(`{"displayTimeUnit":"ms","traceEvents":[` + "\n")
	c.name("process_name", groupBuild, 0, "build: "+b.Name)
	c.name("process_name", groupHere, 0, "here")

	var commands lanes
	places := map[int][]place{}
	hosts := map[string]int{}
	c.names(groupBuild, 0, "build")
	whole := Span{Name: b.Name, Begin: b.Began, End: later(b.Ended, b.Began)}
	c.span(&whole, "build", groupBuild, 0, nil)
	for i := range jobs {
		r := &jobs[i]
		s := Of(r)
		lane := 1 + commands.place(&s)
		if lane == len(commands.ends) {
			c.names(groupBuild, lane, fmt.Sprintf("command %d", lane))
		}
		c.span(&s, r.Place(), groupBuild, lane, args(r))
		for k := range s.Phases {
			c.span(&s.Phases[k], "phase", groupBuild, lane, nil)
		}
		group, name := groupHere, Runs
		if r.Place() == report.PlaceRemote {
			if hosts[r.Host] == 0 {
				hosts[r.Host] = groupHosts + len(hosts)
				c.name("process_name", hosts[r.Host], 0, r.Host)
			}
			group, name = hosts[r.Host], Compile
		}
		if p, ok := s.phase(name); ok {
			p.Name = s.Name
			places[group] = append(places[group], place{p, i})
		}
	}
	for group := groupHere; group < groupHosts+len(hosts); group++ {
		list := places[group]
		slices.SortStableFunc(list, func(x, y place) int { return cmp.Or(x.Begin.Compare(y.Begin), x.End.Compare(y.End)) })
		var l lanes
		for k := range list {
			lane := l.place(&list[k].Span)
			if lane == len(l.ends)-1 {
				c.names(group, lane, fmt.Sprintf("place %d", lane+1))
			}
			c.span(&list[k].Span, jobs[list[k].job].Place(), group, lane, args(&jobs[list[k].job]))
		}
	}
	if c.err == nil {
		_, c.err = out.WriteString("]}\n")
	}
	return cmp.Or(c.err, out.Flush())
}

// place is what ran in a place, and its index among the jobs.
type place struct {
	Span
	job int
}

// chrome writes events.
type chrome struct {
	w     *bufio.Writer
	b     *Build
	e     *json.Encoder
	some  bool
	named map[[2]int]bool
	err   error
}

func (c *chrome) event(e *event) {
	if c.err == nil && c.some {
		c.err = c.w.WriteByte(',')
	}
	c.some = true
	if c.err == nil {
		c.err = c.e.Encode(e)
	}
}

// name gives a group or a lane its name.
func (c *chrome) name(what string, group, lane int, name string) {
	c.event(&event{Name: what, Ph: "M", PID: group, TID: lane, Args: map[string]any{"name": name}})
}

// names gives a lane its name and its place among the others. It does so once.
func (c *chrome) names(group, lane int, name string) {
	key := [2]int{group, lane}
	if c.named[key] {
		return
	}
	if c.named == nil {
		c.named = make(map[[2]int]bool)
	}
	c.named[key] = true
	c.name("thread_name", group, lane, name)
	c.event(&event{Name: "thread_sort_index", Ph: "M", PID: group, TID: lane, Args: map[string]any{"sort_index": lane}})
}

func (c *chrome) span(s *Span, cat string, group, lane int, args map[string]any) {
	at := func(t time.Time) float64 { return float64(t.Sub(c.b.Began)) / 1e3 }
	c.event(&event{Name: s.Name, Cat: cat, Ph: "X", TS: at(s.Begin), Dur: float64(s.End.Sub(s.Begin)) / 1e3, PID: group, TID: lane, Args: args})
}

// args are what is shown of a command that is selected.
func args(r *report.JobRecord) map[string]any {
	all := map[string]any{"job": r.ID, "exit": r.Exit, "place": r.Place()}
	for name, v := range map[string]string{"compiler": r.Compiler, "output": r.Output, "directory": r.Cwd, "link": r.Link, "host": r.Host, "reason": r.Reason,
		"detail": r.Detail, "cache": r.Cached, "inputs": r.Inputs, "carrier": r.Carrier, "rule": r.Rule, "second host": r.Hedged} {
		if v != "" {
			all[name] = v
		}
	}
	for name, v := range map[string]uint64{"bytes_out": r.BytesOut, "bytes_in": r.BytesIn, "cpu_us": uint64(r.CPUUS), "attempts": uint64(r.Attempts)} {
		if v != 0 {
			all[name] = v
		}
	}
	return all
}
