package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// What a terminal needs to be wide or high.
const (
	wide = 40 // columns for words in full
	high = 16 // rows for the title and the foot
	tall = 20 // rows for two lines of totals and of notes
)

// View returns what the screen shows: as many lines as it has at most, none wider than it is.
func (m *Model) View(now time.Time) Frame {
	if m.width < 1 || m.height < 1 {
		return nil
	}
	var f Frame
	if m.help {
		f = m.helpFrame()
	} else {
		head, foot := m.head(now), m.foot(now)
		// The heading and one row come first, then the foot, in which the user may be asked something.
		foot = foot[max(len(foot)-max(m.height-2, 1), 0):]
		head = head[max(len(head)-max(m.height-2-len(foot), 0), 0):]
		f = slices.Concat(head, m.body(max(m.height-len(head)-len(foot), 0), now))
		f = append(f, m.running(m.height-len(f)-len(foot))...)
		for len(f)+len(foot) < m.height {
			f = append(f, nil)
		}
		f = append(f, foot...)
	}
	f = f[:min(len(f), m.height)]
	for i := range f {
		f[i] = f[i].cut(m.width)
	}
	return f
}

// page returns how many rows of a list fit on the screen, about.
func (m *Model) page() int {
	head, foot := 3, 1
	if m.height >= high {
		head, foot = 5, 2
	}
	return max(m.height-head-foot, 1)
}

// head returns the title, trouble, the totals and the views.
func (m *Model) head(now time.Time) (lines Frame) {
	s := m.status
	if m.height >= high {
		title := Line{{Title, "rdistcc top"}}
		if s != nil && m.trouble == "" {
			title = title.add(Plain, fmt.Sprintf("  connection manager %s, process %d, up %s", cmp.Or(s.Version, "of unknown version"), s.PID, figure.Age(now.Sub(s.Since))))
		}
		if m.paused {
			title = title.add(Warn, "  paused")
		}
		lines = append(lines, title)
	} else if m.paused {
		lines = append(lines, Line{{Warn, "paused"}})
	}
	room := 2 // lines for each problem
	if s == nil {
		room = max(m.height-2, 1)
	}
	for _, p := range m.problems(now) {
		for _, l := range wrap(p, m.width, room) {
			style := Bad
			if !m.asked {
				style = Plain
			}
			lines = append(lines, Line{{style, l}})
		}
	}
	if s == nil {
		return lines
	}
	n := 1
	if m.height >= tall {
		n = 2
	}
	lines = append(lines, flow(m.totals(), m.width, n)...)
	if m.height >= high && m.trouble == "" {
		if l := m.trendLine(); l != nil {
			lines = append(lines, l)
		}
	}
	return append(lines, m.tabs())
}

// problems returns what is wrong with the manager or its settings, a line for each.
func (m *Model) problems(now time.Time) (list []string) {
	patience := 3*time.Second + 2*m.every
	switch {
	case !m.asked:
		return []string{"asking the connection manager"}
	case m.trouble != "":
		long := ""
		if d := now.Sub(m.troubled); d >= time.Second && m.status != nil {
			long = " (for " + figure.Age(d) + ")"
		}
		list = append(list, m.trouble+long)
	case !m.paused && now.Sub(m.heard) > patience:
		list = append(list, fmt.Sprintf("the connection manager has not answered for %s", figure.Age(now.Sub(m.heard))))
	}
	if m.status != nil {
		list = append(list, m.status.SettingNotes()...)
	}
	return list
}

// totals returns the figures of all hosts together, the most important first.
func (m *Model) totals() []Span {
	s := m.status
	short := m.width < wide
	say := func(long, brief string) Span {
		if short {
			return Span{Plain, brief}
		}
		return Span{Plain, long}
	}
	rate := "-"
	if r, ok := m.rates.jobs(); ok {
		rate = fmt.Sprintf("%.1f", r)
	}
	waiting := s.Waiting.Credit + s.Waiting.Preprocess + s.Waiting.Local
	parts := []Span{
		say(rate+" jobs/s", rate+"/s"),
		say(fmt.Sprintf("%d running", s.Running), fmt.Sprintf("%d run", s.Running)),
		say(fmt.Sprintf("%d waiting", waiting), fmt.Sprintf("%d wait", waiting)),
	}
	var all uint64
	places := make(map[string]uint64)
	for i := range s.Jobs {
		n := s.Jobs[i].OK + s.Jobs[i].Failed
		places[s.Jobs[i].Place] += n
		all += n
	}
	for _, place := range []string{report.PlaceRemote, report.PlaceCached, report.PlaceLocal} {
		n := places[place]
		parts = append(parts, Span{Plain, fmt.Sprintf("%d %s %s", n, place, figure.Percent(n, all))})
	}
	var out, in uint64
	for i := range s.Hosts {
		out, in = out+s.Hosts[i].Out, in+s.Hosts[i].In
	}
	outRate, inRate := m.rates.bytes()
	parts = append(parts,
		Span{Plain, fmt.Sprintf("sent %s, %s/s", figure.Bytes(out), figure.Bytes(uint64(outRate)))},
		Span{Plain, fmt.Sprintf("received %s, %s/s", figure.Bytes(in), figure.Bytes(uint64(inRate)))})
	if c := &s.Cache; c.Asked > 0 {
		parts = append(parts, Span{Plain, fmt.Sprintf("cache had %d of %d", c.AllHits(), c.Asked)})
	}
	return parts
}

// tabs names the views, and how the current one is sorted and filtered.
func (m *Model) tabs() Line {
	var l Line
	for i := range views {
		name := fmt.Sprintf("%s %d", views[i].name, len(views[i].rows(m)))
		switch {
		case i == m.current:
			l = l.add(Selected, "["+name+"]")
		case m.width >= wide:
			l = l.add(Plain, " "+name+" ")
		}
	}
	list := m.list()
	if m.width < wide {
		l = l.add(Plain, fmt.Sprintf(" %d/%d", m.current+1, len(views)))
	} else {
		l = l.add(Plain, "  by "+strings.ToLower(views[m.current].columns[list.sort].title))
		if list.reversed {
			l = l.add(Plain, ", reversed")
		}
	}
	if list.filter != "" && !m.typing {
		l = l.add(Warn, "  /"+list.filter)
	}
	return l
}

// body returns the list of the current view, in at most n lines.
func (m *Model) body(n int, now time.Time) (lines Frame) {
	if m.status == nil || n < 1 {
		return nil
	}
	v, list := &views[m.current], m.list()
	rows := m.rows()
	if len(rows) == 0 {
		none := v.none
		if list.filter != "" {
			none = "nothing has " + list.filter + " in it (esc ends the filter)"
		}
		for _, l := range wrap(none, m.width, n) {
			lines = append(lines, text(l))
		}
		return lines
	}
	mark := 2
	if m.width < wide {
		mark = 1
	}
	widths := fit(v.columns, rows, m.width-mark)
	blank := strings.Repeat(" ", mark)
	if n > 1 {
		lines = append(lines, slices.Concat(text(blank), heading(v.columns, widths, list)))
		n--
	}
	shown, selected := list.window(rows, n)
	for i := range shown {
		l := shown[i].line(v.columns, widths)
		switch {
		case i == selected:
			l = slices.Concat(text(">"+blank[1:]), l).in(Selected, m.width)
		case m.trouble != "":
			l = slices.Concat(text(blank), l).in(Faint, m.width)
		default:
			l = slices.Concat(text(blank), l)
		}
		lines = append(lines, l)
	}
	return lines
}

// running returns the files under way, the oldest first, in at most n lines, where the hosts have left these free.
func (m *Model) running(n int) (lines Frame) {
	const least = 3 // an empty line, the heading and a file
	if m.status == nil || views[m.current].name != "hosts" || m.list().filter != "" || m.typing || n < least {
		return nil
	}
	v := &views[viewFiles]
	by := list{sort: v.sort}
	rows := by.arrange(v.rows(m), v.columns)
	if len(rows) == 0 {
		return nil
	}
	mark := 2
	if m.width < wide {
		mark = 1
	}
	shown := rows[:min(len(rows), n-2)]
	widths := fit(v.columns, shown, m.width-mark)
	blank := text(strings.Repeat(" ", mark))
	lines = append(lines, nil, slices.Concat(blank, heading(v.columns, widths, &by)))
	for i := range shown {
		l := slices.Concat(blank, shown[i].line(v.columns, widths))
		if m.trouble != "" {
			l = l.in(Faint, m.width)
		}
		lines = append(lines, l)
	}
	return lines
}

// foot returns a note on the selected row, and what the user is asked, was told, or can do.
func (m *Model) foot(now time.Time) (lines Frame) {
	if m.height >= high {
		n := 1
		if m.height >= tall {
			n = 2
		}
		var note []string
		if rows := m.rows(); len(rows) > 0 {
			note = wrap(rows[m.list().find(rows)].note, m.width, n)
		}
		for i := range n {
			if i < len(note) {
				lines = append(lines, text(note[i]))
			} else {
				lines = append(lines, nil)
			}
		}
	}
	switch {
	case m.pending != nil:
		return append(lines, m.question())
	case m.typing:
		f := "/" + m.list().filter + "_"
		return append(lines, Line{{Title, cut(f, m.width, end)}})
	case m.said.text != "" && now.Sub(m.said.at) < sayFor:
		style := Good
		if m.said.bad {
			style = Bad
		}
		for _, l := range wrap(m.said.text, m.width, 2) {
			lines = append(lines, Line{{style, l}})
		}
		return lines
	}
	var keys Line
	for _, k := range []string{"tab view  s sort  r reverse  / filter  d drain  p pause  ? help  q quit", "tab view  / filter  ? help  q quit", "? help  q quit", "?"} {
		if Width(k) <= m.width {
			keys = Line{{Faint, k}}
			break
		}
	}
	return append(lines, keys)
}

// question asks for a yes, which has room on any screen.
func (m *Model) question() Line {
	o := m.pending
	what := map[string]string{"drain": ": nothing new from this machine goes there", "undrain": ": it gets jobs again"}[o.Verb]
	yesOrNo := " (y/n)?"
	if q := o.Verb + " " + o.Host + what + yesOrNo; Width(q) <= m.width {
		return Line{{Title, q}}
	}
	if m.width < wide {
		yesOrNo = " y/n?"
	}
	verb := o.Verb + " "
	return Line{{Title, verb + cut(m.brief(o.Host), max(m.width-len(verb)-len(yesOrNo), 1), ends) + yesOrNo}}
}
