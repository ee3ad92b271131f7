package connmgr

import (
	"path/filepath"
	"time"

	"github.com/rdistcc/rdistcc/internal/history"
)

const (
	// maxHistory bounds what is remembered of compiles, about 100 bytes each: several
	// large projects with a few sets of options.
	maxHistory = 50_000
	// saveEvery bounds what a killed manager forgets.
	saveEvery = time.Minute
)

// openHistory reads what earlier compiles took.
func (m *Manager) openHistory() {
	var err error
	if m.past.history, err = history.Open(m.o.History, maxHistory); err != nil {
		m.o.Log.Warn("history of compiles", "file", m.o.History, "err", err)
	}
}

// predict says what t will take, by earlier compiles of the same source with the
// same words, or by its size.
func (c *client) predict(t *task) {
	source := t.name
	if !filepath.IsAbs(source) {
		source = filepath.Join(t.body.Cwd, source)
	}
	t.key = history.Of(t.toolchain, source, t.body.Args)
	t.cost = c.m.past.history.Predict(t.key, t.total())
	c.record.Predicted = t.cost.Time
}

// learn remembers what a compile took that went well, on a host of that speed.
func (m *Manager) learn(a *attempt, speed float64) {
	r := a.out.result
	if r == nil || r.Exit != 0 || r.CPU == 0 {
		return
	}
	m.past.history.Learn(a.key, a.total(), time.Duration(float64(r.CPU)*speed*float64(time.Microsecond)), r.MaxRSS)
	if m.o.History == "" {
		return
	}
	now := time.Since(m.started)
	if saved := m.past.saved.Load(); now-time.Duration(saved) >= saveEvery && m.past.saved.CompareAndSwap(saved, int64(now)) {
		m.clients.Go(m.saveHistory)
	}
}

// saveHistory writes what was learned. Without it the next manager knows less. The file
// of a manager that was replaced is its successor's.
func (m *Manager) saveHistory() {
	if m.o.History == "" || m.service.left.Load() {
		return
	}
	if err := m.past.history.Save(); err != nil {
		m.o.Log.Warn("save the history of compiles", "file", m.o.History, "err", err)
	}
}
