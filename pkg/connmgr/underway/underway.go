// Package underway is the commands that one connection manager serves now, and where each of them
// stands, for people who ask.
package underway

import (
	"cmp"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Table is all connections of wrappers. It is safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	open    map[*Command]struct{}
	lastUse time.Time // a command came or went
}

// New returns a table without a connection.
func New() *Table { return &Table{open: make(map[*Command]struct{}), lastUse: time.Now()} }

// Command is one connection of a wrapper's: a compile or a local command from Begin on, before that
// and without it a question.
type Command struct {
	t    *Table // set once in Add
	conn io.Closer

	// guarded by t.mu
	counts bool // Begin was called
	id     uint64
	name   string
	began  time.Time
	phase  string // one of package report's
	here   bool
	hosts  []string // that have it now
}

// Add begins with c, whose connection is conn.
func (t *Table) Add(c *Command, conn io.Closer) {
	c.t, c.conn = t, conn
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[c] = struct{}{}
}

// Remove ends with c.
func (t *Table) Remove(c *Command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
	if c.counts {
		t.lastUse = time.Now()
	}
}

// HangUp closes the connections of all.
func (t *Table) HangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		_ = c.conn.Close() // closing twice is all that can go wrong
	}
}

// Idle returns how long no command has been under way.
func (t *Table) Idle() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if c.counts {
			return 0
		}
	}
	return time.Since(t.lastUse)
}

// List returns the commands under way, the oldest first.
func (t *Table) List(now time.Time) []report.Underway {
	list := []report.Underway{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if c.counts {
			list = append(list, report.Underway{ID: c.id, Source: c.name, Phase: c.phase, Here: c.here,
				Hosts: slices.Clone(c.hosts), AgeMS: now.Sub(c.began).Milliseconds()})
		}
	}
	slices.SortFunc(list, func(a, b report.Underway) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Begin marks c as a command, which people know by name, the file that it is about.
func (c *Command) Begin(id uint64, name string, began time.Time) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.counts, c.id, c.name, c.began, c.phase = true, id, name, began, report.PhaseWaits
}

// Enter notes what c does from now on, on the way to a host or back: none has it.
func (c *Command) Enter(phase string) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.phase, c.hosts = phase, nil
}

// EnterHere notes that c is the build host's own to do.
func (c *Command) EnterHere(phase string) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.phase, c.here, c.hosts = phase, true, nil
}

// Sent notes that a host has the job.
func (c *Command) Sent(host string) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.phase, c.hosts = report.PhaseCompiles, append(c.hosts, host)
}

// Taken notes that a host has it no more.
func (c *Command) Taken(host string) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if i := slices.Index(c.hosts, host); i >= 0 {
		c.hosts = slices.Delete(c.hosts, i, i+1)
	}
	if len(c.hosts) == 0 {
		c.phase = report.PhaseWaits
	}
}
