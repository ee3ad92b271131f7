package connmgr

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/history"
)

// past knows what earlier compiles took. It is safe for concurrent use.
type past struct {
	// set once in openPast
	file    string // empty: nothing is kept on disk
	log     *slog.Logger
	began   time.Time
	history *history.Store

	hungry hungry
	saved  atomic.Int64 // when the last save of history began: nanoseconds since began
}

const (
	// maxHistory bounds how many compiles are remembered, about 100 bytes each: enough for several large
	// projects with a few sets of options.
	maxHistory = 50_000
	// saveEvery bounds how much a manager forgets when it is killed.
	saveEvery = time.Minute
)

// openPast reads what earlier compiles took.
func openPast(file string, log *slog.Logger) *past {
	p := &past{file: file, log: log, began: time.Now()}
	var err error
	if p.history, err = history.Open(file, maxHistory); err != nil {
		log.Warn("history of compiles", "file", file, "err", err)
	}
	return p
}

// predict sets what t is expected to take, from earlier compiles of the same source with the same words, or
// from its size.
func (p *past) predict(t *attempt.Task) {
	source := t.Name
	if !filepath.IsAbs(source) {
		source = filepath.Join(t.Body.Cwd, source)
	}
	t.Key = history.Of(t.Toolchain, source, t.Body.Args)
	t.Cost = p.history.Predict(t.Key, t.Total())
}

// memory returns what earlier compiles took at their peak, in bytes; 0: that is not known.
func (p *past) memory(k history.Key) uint64 {
	if cost := p.history.Predict(k, 0); cost.Known {
		return cost.Memory
	}
	return 0
}

// learn records what a successful compile took, on a host of that speed. It reports whether the history is to
// be saved now.
func (p *past) learn(t *attempt.Task, r *job.Result, speed float64) (due bool) {
	p.history.Learn(t.Key, t.Total(), time.Duration(float64(r.CPU)*speed*float64(time.Microsecond)), r.MaxRSS)
	if p.file == "" {
		return false
	}
	now := time.Since(p.began)
	saved := p.saved.Load()
	return now-time.Duration(saved) >= saveEvery && p.saved.CompareAndSwap(saved, int64(now))
}

// save writes what was learned, for the next manager.
func (p *past) save() {
	if p.file == "" {
		return
	}
	if err := p.history.Save(); err != nil {
		p.log.Warn("save the history of compiles", "file", p.file, "err", err)
	}
}
