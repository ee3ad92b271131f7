package connmgr

import (
	"encoding/json"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/wholefile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// learn records what a compile took.
func (m *Manager) learn(t *attempt.Task, r *job.Result, speed float64) {
	if m.past.learn(t, r, speed) {
		m.clients.Go(m.saveHistory)
	}
}

// saveHistory writes what compiles took. After the manager was replaced, the file belongs to its successor,
// and it does nothing.
func (m *Manager) saveHistory() {
	if !m.service.left.Load() {
		m.past.save()
	}
}

// saveHeaders writes how precompiled headers were made, and which compilers were watched. Like the history, the files belong to a successor.
func (m *Manager) saveHeaders() {
	if !m.service.left.Load() {
		m.known.Save()
		m.known.SaveWatched()
	}
}

// keepNow writes what the manager knows if account.due says so.
func (m *Manager) keepNow(now time.Time) {
	m.costs.flush()
	if m.o.Kept == "" || !m.account.due(now) {
		return
	}
	m.saveHeld()
	m.keep(report.Kept{Status: m.Status(), Stats: m.Stats()})
}

// keepLast writes what the manager knows at its end, while its connections still exist.
func (m *Manager) keepLast() {
	m.saveHeld()
	served, why := m.service.past()
	if m.o.Kept != "" && served && !m.service.left.Load() { // otherwise the file is the successor's
		m.keep(report.Kept{Ended: true, Why: why, Status: m.Status(), Stats: m.Stats()})
	}
}

// keep writes k for commands that ask when no manager runs. It replaces the file as a whole.
func (m *Manager) keep(k report.Kept) {
	k.At = time.Now()
	data, err := json.Marshal(&k)
	if err == nil {
		err = wholefile.Replace(m.o.Kept, data)
	}
	if err != nil {
		m.o.Log.Warn("keep the status for later", "file", m.o.Kept, "err", err)
	}
}
