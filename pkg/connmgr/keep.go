package connmgr

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// learn remembers what a compile took.
func (m *Manager) learn(t *attempt.Task, r *job.Result, speed float64) {
	if m.past.learn(t, r, speed) {
		m.clients.Go(m.saveHistory)
	}
}

// saveHistory writes what compiles took. The file of a manager that was replaced is its
// successor's.
func (m *Manager) saveHistory() {
	if !m.service.left.Load() {
		m.past.save()
	}
}

// keepNow and then: where something has come of it since.
func (m *Manager) keepNow(now time.Time) {
	if m.o.Kept == "" || !m.account.due(now) {
		return
	}
	m.keep(report.Kept{Status: m.Status(), Stats: m.Stats()})
}

// keepLast is what the manager knew at its end, as long as its connections are there.
func (m *Manager) keepLast() {
	served, why := m.service.past()
	if m.o.Kept != "" && served && !m.service.left.Load() { // a successor's is worth more
		m.keep(report.Kept{Ended: true, Why: why, Status: m.Status(), Stats: m.Stats()})
	}
}

// keep writes k for those who ask when no manager runs. The file is always whole.
func (m *Manager) keep(k report.Kept) {
	k.At = time.Now()
	data, err := json.Marshal(&k)
	if err == nil {
		err = writeWhole(m.o.Kept, data)
	}
	if err != nil {
		m.o.Log.Warn("keep the status for later", "file", m.o.Kept, "err", err)
	}
}

// writeWhole puts a file in the place of another, or leaves that one.
func writeWhole(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it may have been the rename that failed
	}
	return err
}
