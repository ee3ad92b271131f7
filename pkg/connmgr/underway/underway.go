// Package underway keeps the commands that a connection manager is serving and the phase of each, for status
// displays.
package underway

import (
	"cmp"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Table holds all connections of wrappers. It is safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	open    map[*Command]struct{}
	lastUse time.Time // when a command last ended, or when the table was made
}

// New returns an empty table.
func New() *Table { return &Table{open: make(map[*Command]struct{}), lastUse: time.Now()} }

// Command is one connection of a wrapper. From Begin on, it is a compile or a local command; without Begin,
// it is a question, such as status.
type Command struct {
	t    *Table // set once in Add
	conn Conn

	// guarded by t.mu
	counts bool // Begin was called
	id     uint64
	build  uint64 // 0: not known
	name   string
	began  time.Time
	phase  string    // one of report.Phase...
	since  time.Time // when that phase began
	here   bool
	wants  bool     // it runs here, and would not if there were more hosts
	hosts  []string // the hosts that have it now
}

// Conn is the connection of a wrapper.
type Conn interface {
	io.Closer
	Gone() bool // reports whether the wrapper has hung up
}

// Add adds c, whose connection is conn.
func (t *Table) Add(c *Command, conn Conn) {
	c.t, c.conn = t, conn
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[c] = struct{}{}
}

// Remove removes c.
func (t *Table) Remove(c *Command) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
	if c.counts {
		t.lastUse = time.Now()
	}
}

// HangUp closes all connections.
func (t *Table) HangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		_ = c.conn.Close() // it fails only if it is closed already
	}
}

// Settle waits until the commands whose wrappers have hung up are removed, and with that recorded: who asks about a command that
// has ended is not told of the one before. It waits for most at longest.
func (t *Table) Settle(most time.Duration) {
	for end := time.Now().Add(most); t.leaving() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// leaving reports whether there are commands whose wrappers have hung up.
func (t *Table) leaving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if c.counts && c.conn.Gone() {
			return true
		}
	}
	return false
}

// Idle returns how long no command has been under way; 0 if one is.
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
				Hosts: slices.Clone(c.hosts), AgeMS: now.Sub(c.began).Milliseconds(), PhaseMS: now.Sub(c.since).Milliseconds()})
		}
	}
	slices.SortFunc(list, func(a, b report.Underway) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// CountBuild returns how many commands of a build are under way.
func (t *Table) CountBuild(build uint64) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if c.counts && c.build == build {
			n++
		}
	}
	return n
}

// CountWanting returns how many commands run on the build host because hosts had no place (Command.Wants).
func (t *Table) CountWanting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if c.counts && c.wants && c.here {
			n++
		}
	}
	return n
}

// Begin marks c as a command. name is what the user knows it by, such as its source.
func (c *Command) Begin(id uint64, name string, began time.Time) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.counts, c.id, c.name, c.began = true, id, name, began
	c.enterLocked(report.PhaseWaits)
	c.since = began
}

// BelongsTo records the build that c belongs to.
func (c *Command) BelongsTo(build uint64) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.build = build
}

// Enter records that c enters phase, on the way to a host or back, and that no host has it.
func (c *Command) Enter(phase string) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.hosts = nil
	c.enterLocked(phase)
}

// EnterHere records that c enters phase on the build host, which is to run it.
func (c *Command) EnterHere(phase string) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.here, c.hosts = true, nil
	c.enterLocked(phase)
}

// Wants records that c, which is to run on the build host, would run on a host if there were more of them.
func (c *Command) Wants() {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.wants = true
}

// Sent records that a host has the job.
func (c *Command) Sent(host string) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.hosts = append(c.hosts, host)
	c.enterLocked(report.PhaseCompiles)
}

// Taken records that a host no longer has the job.
func (c *Command) Taken(host string) {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if i := slices.Index(c.hosts, host); i >= 0 {
		c.hosts = slices.Delete(c.hosts, i, i+1)
	}
	if len(c.hosts) == 0 {
		c.enterLocked(report.PhaseWaits)
	}
}

// enterLocked records that c is in phase from now on, unless it was before.
func (c *Command) enterLocked(phase string) {
	if c.phase != phase {
		c.phase, c.since = phase, time.Now()
	}
}
