package connmgr

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// stage is where a command stands, for people who ask. wrappers.mu guards it.
type stage struct {
	name  string // of its source, else its output, else its program
	began time.Time
	phase string
	here  bool
	hosts []string // that have it now
}

// begin marks c as a command that keeps an idle manager alive. source, output and
// program are its files, as it names them; those that it has not are empty.
func (c *client) begin(source, output, program string) {
	c.id = c.m.ids.Add(1)
	c.record.ID, c.record.Began = c.id, time.Now()
	c.record.Compiler, c.record.Source, c.record.Output = program, source, output
	c.m.wrappers.mu.Lock()
	c.counts = true
	c.stage = stage{name: cmp.Or(source, output, filepath.Base(program)), began: c.record.Began, phase: report.PhaseWaits}
	c.m.wrappers.mu.Unlock()
}

// enter notes what c does from now on, on the way to a host or back: none has it.
func (c *client) enter(phase string) {
	c.m.wrappers.mu.Lock()
	c.stage.phase, c.stage.hosts = phase, nil
	c.m.wrappers.mu.Unlock()
}

// enterHere notes that c is the build host's own to do.
func (c *client) enterHere(phase string) {
	c.m.wrappers.mu.Lock()
	c.stage.phase, c.stage.here, c.stage.hosts = phase, true, nil
	c.m.wrappers.mu.Unlock()
}

// sent notes that a host has the job; taken, that it has not any more.
func (c *client) sent(host string) {
	c.m.wrappers.mu.Lock()
	c.stage.phase, c.stage.hosts = report.PhaseCompiles, append(c.stage.hosts, host)
	c.m.wrappers.mu.Unlock()
}

func (c *client) taken(host string) {
	c.m.wrappers.mu.Lock()
	defer c.m.wrappers.mu.Unlock()
	if i := slices.Index(c.stage.hosts, host); i >= 0 {
		c.stage.hosts = slices.Delete(c.stage.hosts, i, i+1)
	}
	if len(c.stage.hosts) == 0 {
		c.stage.phase = report.PhaseWaits
	}
}

// underway lists the commands under way, the oldest first.
func (w *wrappers) underway(now time.Time) []report.Underway {
	list := []report.Underway{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		if s := &c.stage; c.counts {
			list = append(list, report.Underway{ID: c.id, Source: s.name, Phase: s.phase, Here: s.here,
				Hosts: slices.Clone(s.hosts), AgeMS: now.Sub(s.began).Milliseconds()})
		}
	}
	slices.SortFunc(list, func(a, b report.Underway) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
