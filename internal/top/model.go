// Package top is what `rdistcc top` shows on a terminal and what its keys do: the hosts, the commands under way, and the
// reasons why commands ran on this machine.
//
// A Model is fed with answers of the connection manager, keys and sizes, and returns a Frame. It does no I/O and is
// told the time, so tests compare whole frames. Package display runs it on a terminal.
//
// Everything that comes from a manager passes Clean before it can be shown: names of hosts, versions and messages of
// daemons, and names of files are not to be trusted with a terminal.
package top

import (
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Answer is what came of asking the connection manager for its status.
type Answer struct {
	// Status is nil if there was no answer, or that of the last manager if none runs now.
	Status *report.Status
	// Trouble says, in a line for the user, why there is no status of a running manager. It is empty if there is.
	Trouble string
}

// Order is a change that the user has confirmed.
type Order struct {
	Verb string // drain or undrain
	Host string
}

// Action is what a key asks of the program around a Model. The zero value asks nothing.
type Action struct {
	Quit  bool
	Ask   bool // ask the manager now
	Order *Order
}

// Model is the state of the display. New makes one.
type Model struct {
	width, height int
	every         time.Duration // between two answers

	status   *report.Status // the last one, cleaned; nil: none yet
	asked    bool           // there was an answer, with a status or without
	heard    time.Time      // when a manager answered last
	trouble  string         // from the last Answer
	troubled time.Time      // since when there has been trouble
	rates    rates
	trend    trend
	plain    bool // the terminal has no characters but those of ASCII

	current int // index in lists
	lists   [viewCount]list
	paused  bool
	help    bool
	scroll  int    // of the help
	typing  bool   // a filter
	pending *Order // waits for a yes
	said    message
}

// message is a line about what an order has done.
type message struct {
	text string
	bad  bool
	at   time.Time
}

// sayFor is how long a message is shown.
const sayFor = 6 * time.Second

// New returns a Model that expects an answer every so often. Its lines are drawn with blocks, or, if plain, with characters of ASCII.
func New(every time.Duration, plain bool) *Model {
	m := &Model{every: every, plain: plain}
	for i := range m.lists {
		m.lists[i].sort = views[i].sort
	}
	return m
}

// Resize tells the size of the terminal in cells.
func (m *Model) Resize(width, height int) { m.width, m.height = width, height }

// Paused reports whether the display stands still: then the manager need not be asked.
func (m *Model) Paused() bool { return m.paused }

// Take shows an answer. The Model owns the status from then on.
func (m *Model) Take(a Answer, now time.Time) {
	m.asked = true
	a.Trouble = Text(a.Trouble)
	if a.Status != nil {
		Clean(a.Status)
		m.status = a.Status
	}
	if a.Trouble == "" && a.Status != nil {
		m.heard, m.trouble = now, ""
		m.rates.add(a.Status, now)
		m.trend.add(a.Status, now)
		return
	}
	if m.trouble == "" {
		m.troubled = now
	}
	m.trouble = a.Trouble
	m.rates = rates{}
}

// Say shows what became of an order.
func (m *Model) Say(text string, bad bool, now time.Time) {
	m.said = message{text: Text(text), bad: bad, at: now}
}

// Type takes text that was pasted: it is part of a filter, or nothing.
func (m *Model) Type(text string) {
	if m.typing {
		m.list().filter = (m.list().filter + Text(text))
		m.list().filter = m.list().filter[:min(len(m.list().filter), maxFilter)]
	}
}

// maxFilter bounds a filter, in bytes.
const maxFilter = 200

func (m *Model) list() *list { return &m.lists[m.current] }

// Key handles a key: the text that it types, or its name, such as up, pgdown, enter, esc, tab or ctrl+c.
func (m *Model) Key(key string) Action {
	switch {
	case key == "ctrl+c":
		return Action{Quit: true}
	case m.pending != nil:
		o := m.pending
		m.pending = nil
		if key == "y" || key == "Y" {
			return Action{Order: o}
		}
		return Action{}
	case m.typing:
		m.edit(key)
		return Action{}
	case m.help:
		return m.helpKey(key)
	}
	l := m.list()
	switch key {
	case "q":
		return Action{Quit: true}
	case "?", "h", "f1":
		m.help, m.scroll = true, 0
	case "tab", "right":
		m.current = (m.current + 1) % len(views)
	case "shift+tab", "left":
		m.current = (m.current + len(views) - 1) % len(views)
	case "1", "2", "3":
		m.current = int(key[0] - '1')
	case "s":
		l.sortBy(len(views[m.current].columns), +1)
	case "S":
		l.sortBy(len(views[m.current].columns), -1)
	case "r":
		l.reversed = !l.reversed
	case "/":
		m.typing = true
	case "esc":
		l.filter = ""
	case "p", " ":
		m.paused = !m.paused
		return Action{Ask: !m.paused}
	case "d", "u":
		m.order(key == "u")
	default:
		l.move(key, m.rows(), m.page())
	}
	return Action{}
}

// edit handles a key while a filter is typed.
func (m *Model) edit(key string) {
	l := m.list()
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, l.filter = false, ""
	case "backspace":
		r := []rune(l.filter)
		l.filter = string(r[:max(len(r)-1, 0)])
	case "ctrl+u":
		l.filter = ""
	case "up", "down", "pgup", "pgdown":
		l.move(key, m.rows(), m.page())
	default:
		if len([]rune(key)) == 1 {
			m.Type(key)
		}
	}
}

// order asks the user to confirm a drain of the selected host, or its end.
func (m *Model) order(undrain bool) {
	if views[m.current].name != "hosts" {
		m.current = 0 // where a host can be selected
		return
	}
	id := m.list().selected(m.rows())
	for _, h := range m.hosts() {
		if h.Addr != id || h.State == "source" {
			continue
		}
		m.pending = &Order{Verb: "drain", Host: h.Addr}
		if undrain || h.Drained {
			m.pending.Verb = "undrain"
		}
		return
	}
}

// hosts returns the hosts, with those that were drained by hand and are on no list now.
func (m *Model) hosts() []report.HostStatus {
	if m.status == nil {
		return nil
	}
	list := m.status.Hosts
	on := make(map[string]bool, len(list))
	for i := range list {
		on[list[i].Addr] = true
	}
	for _, addr := range m.status.Drained {
		if !on[addr] {
			list = append(list[:len(list):len(list)], report.HostStatus{Addr: addr, State: "off", Drained: true})
		}
	}
	return list
}

// matches reports whether a row has the filter in one of its texts, whatever the case of letters. Numbers are no texts.
func matches(r *row, columns []column, filter string) bool {
	if filter == "" {
		return true
	}
	filter = strings.ToLower(filter)
	for i := range r.cells {
		if !columns[i].number && strings.Contains(strings.ToLower(r.cells[i].text), filter) {
			return true
		}
	}
	return false
}
