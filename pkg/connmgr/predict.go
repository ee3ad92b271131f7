package connmgr

import (
	"path/filepath"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/history"
	"github.com/rdistcc/rdistcc/pkg/job"
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
func (c *client) predict(t *attempt.Task) {
	source := t.Name
	if !filepath.IsAbs(source) {
		source = filepath.Join(t.Body.Cwd, source)
	}
	t.Key = history.Of(t.Toolchain, source, t.Body.Args)
	t.Cost = c.m.past.history.Predict(t.Key, t.Total())
	c.record.Predicted = t.Cost.Time
}

// learn remembers what a compile took that went well, on a host of that speed.
func (m *Manager) learn(t *attempt.Task, r *job.Result, speed float64) {
	m.past.history.Learn(t.Key, t.Total(), time.Duration(float64(r.CPU)*speed*float64(time.Microsecond)), r.MaxRSS)
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
