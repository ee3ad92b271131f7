package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// view is one of the things to look at.
type view struct {
	name    string
	sort    int // the column that it is sorted by at first
	columns []column
	rows    func(m *Model) []row
	none    string // what an empty one says
}

const (
	viewFiles = 1
	viewCount = 3
)

var views = [viewCount]view{
	{name: "hosts", columns: []column{
		{title: "HOST", keep: ends},
		{title: "STATE", least: 10, rank: 1},
		{title: "USED", number: true, rank: 2},
		{title: "QUEUE", number: true, rank: 4},
		{title: "MINE", number: true, rank: 9},
		{title: "JOBS/S", number: true, rank: 3},
		{title: "RTT", number: true, least: 7, rank: 6},
		{title: "SPEED", number: true, rank: 7},
		{title: "RATE", number: true, least: 10, rank: 10},
		{title: "LOAD", number: true, least: 6, rank: 11},
		{title: "DONE", number: true, least: 7, rank: 12},
		{title: "FAILED", number: true, rank: 13},
		{title: "VERSION", least: 8, rank: 8},
		{title: "NOTE", least: 14, rank: 5, rest: true},
	}, rows: (*Model).hostRows, none: "no hosts are configured: all jobs are compiled here"},
	{name: "files", sort: 3, columns: []column{
		{title: "FILE", keep: end},
		{title: "HOST", least: 12, rank: 2},
		{title: "PHASE", least: 9, rank: 3},
		{title: "AGE", number: true, least: 6, rank: 1},
		{title: "IN PHASE", number: true, rank: 4},
	}, rows: (*Model).fileRows, none: "nothing is under way"},
	{name: "reasons", sort: 1, columns: []column{
		{title: "REASON"},
		{title: "JOBS", number: true, least: 7, rank: 1},
		{title: "SHARE", number: true, least: 5, rank: 2},
		{title: "FAILED", number: true, rank: 3},
		{title: "LAST", least: 8, rank: 4, keep: end, rest: true},
	}, rows: (*Model).reasonRows, none: "no command has run here"},
}

// rows returns what the current view shows, in order.
func (m *Model) rows() []row {
	if m.status == nil {
		return nil
	}
	v := &views[m.current]
	return m.list().arrange(v.rows(m), v.columns)
}

func word(s string, style Style) cell { return cell{text: s, style: style} }

func number(n int) cell { return cell{text: strconv.Itoa(n), num: float64(n)} }

// unless returns a cell with a dash if nothing is known, which is less than any number.
func unless(unknown bool, num float64, format func() string) cell {
	if unknown {
		return cell{text: "-", num: -1}
	}
	return cell{text: format(), num: num}
}

func (m *Model) hostRows() (rows []row) {
	hosts := m.hosts()
	for i := range hosts {
		h := &hosts[i]
		style := Plain
		switch {
		case h.Drained, h.DoubtMS > 0, h.OnTrial, h.State == "draining", h.State == "connecting", h.State == "starting":
			style = Warn
		case h.State == "down", h.State == "source":
			style = Bad
		case h.State == "up" && !h.Usable():
			style = Warn
		case h.State == "up":
			style = Good
		}
		used, queue := h.Running, 0
		if h.Load != nil {
			used, queue = max(used, int(h.Load.Running)), int(h.Load.Queued)
		}
		perSecond, known := m.rates.host(h.Addr)
		note := h.Note()
		last := note
		if h.Refused != "" && !strings.Contains(note, h.Refused) {
			last = strings.TrimPrefix(note+"; ", "; ") + "refused a job: " + h.Refused
		}
		rows = append(rows, row{id: h.Addr, note: h.Addr + ": " + cmp.Or(last, h.Word()), cells: []cell{
			{text: m.brief(h.Addr)},
			word(h.Word(), style),
			unless(h.Jobs == 0, float64(used)/float64(max(h.Jobs, 1)), func() string { return fmt.Sprintf("%d/%d", used, h.Jobs) }),
			unless(h.Load == nil, float64(queue), func() string { return strconv.Itoa(queue) }),
			number(h.Running),
			unless(!known, perSecond, func() string { return fmt.Sprintf("%.1f", perSecond) }),
			unless(h.RTTUS == 0, float64(h.RTTUS), func() string { return figure.Micros(uint64(h.RTTUS)) }),
			unless(h.Speed == 0, h.Speed, func() string { return fmt.Sprintf("%.2f", h.Speed) }),
			unless(h.Rate == 0, h.Rate, func() string { return figure.Bytes(uint64(h.Rate)) + "/s" }),
			load(h),
			number(int(h.OK)),
			number(int(h.Failed)),
			word(cmp.Or(h.Version, "-"), Plain),
			word(note, Plain),
		}})
	}
	return rows
}

// usualPort ends most addresses of hosts.
const usualPort = ":7632"

// brief returns the address of a host, on a narrow terminal without the port that most have.
func (m *Model) brief(addr string) string {
	if m.width < wide {
		return strings.TrimSuffix(addr, usualPort)
	}
	return addr
}

func load(h *report.HostStatus) cell {
	if h.Load == nil {
		return cell{text: "-", num: -1}
	}
	n := float64(h.Load.LoadAvg) / 100
	return cell{text: fmt.Sprintf("%.2f", n), num: n}
}

func (m *Model) fileRows() (rows []row) {
	for i := range m.status.Underway {
		u := &m.status.Underway[i]
		rows = append(rows, row{id: strconv.FormatUint(u.ID, 10), note: u.Source + ": " + phases[u.Phase], cells: []cell{
			{text: u.Source},
			word(u.Place(), Plain),
			word(u.Phase, Plain),
			{text: figure.Milliseconds(u.AgeMS), num: float64(u.AgeMS)},
			{text: figure.Milliseconds(u.PhaseMS), num: float64(u.PhaseMS)},
		}})
	}
	return rows
}

// phases explains the phases of a command.
var phases = map[string]string{
	report.PhaseWaits:    "it waits for a host, or for its turn on this machine",
	report.PhaseLists:    "what it reads is listed and collected here",
	report.PhaseCompiles: "a host compiles it",
	report.PhaseReturns:  "its result is being taken",
	report.PhaseRuns:     "it runs on this machine",
}

func (m *Model) reasonRows() (rows []row) {
	var all uint64
	for i := range m.status.Jobs {
		all += m.status.Jobs[i].OK + m.status.Jobs[i].Failed
	}
	last := make(map[string]*report.JobRecord) // by the label of its reason
	for i := range m.status.Recent {
		if r := &m.status.Recent[i]; r.Local && last[reason.Label(r.Reason)] == nil {
			last[reason.Label(r.Reason)] = r
		}
	}
	for i := range m.status.Jobs {
		j := &m.status.Jobs[i]
		if j.Place != report.PlaceLocal {
			continue
		}
		n := j.OK + j.Failed
		full, file := j.Reason, "-"
		if r := last[j.Reason]; r != nil {
			full, file = cmp.Or(r.Reason, full), cmp.Or(r.Source, r.Output, r.Compiler, "-")
		}
		note := full + ": " + reason.Explain(full)
		if r := last[j.Reason]; r != nil && r.Detail != "" {
			note += " (" + r.Detail + ")"
		}
		if remedy := reason.Remedy(full); remedy != "" {
			note += "; " + remedy
		}
		style := Plain
		if w, _, ok := reason.Find(full); ok && w.Farm {
			style = Warn
		}
		rows = append(rows, row{id: j.Reason, note: note, cells: []cell{
			word(cmp.Or(j.Reason, "-"), style),
			number(int(n)),
			{text: figure.Percent(n, all), num: float64(n)},
			number(int(j.Failed)),
			word(file, Plain),
		}})
	}
	return rows
}
