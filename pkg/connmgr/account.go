package connmgr

import (
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

// account is of the commands that have ended, and of how far a file tells of them (keep.go). It
// is safe for concurrent use.
type account struct {
	mu   sync.Mutex
	book report.Book
	kept kept
}

// add takes the account of a command.
func (a *account) add(r *report.JobRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.book.Add(r)
}

// addAudit counts what an audit came to.
func (a *account) addAudit(result string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.book.AddAudit(result)
}

// tell adds to a status what the account says.
func (a *account) tell(s *report.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Jobs = a.book.Counts()
	for _, c := range s.Jobs {
		if c.Reason == reason.NoHosts {
			s.NoHosts += c.OK + c.Failed
		}
	}
	s.Inputs = a.book.Inputs()
	s.Recent = a.book.Recent()
}

// stats returns what came of all commands so far.
func (a *account) stats() report.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.Stats()
}

// why looks for the last jobs of a file, by its names.
func (a *account) why(names []string, since time.Time) report.Why {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.Why(names, since)
}

// due reports whether what the manager knows is to be written down: it was not for keepEvery,
// and something has come of it since. It counts as written then.
func (a *account) due(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := now.Sub(a.kept.last) >= keepEvery && !(a.kept.known && a.kept.jobs == a.book.Noted())
	if due {
		a.kept = kept{now, a.book.Noted(), true}
	}
	return due
}

// keepEvery is how often a manager that compiles writes down what it knows: one that is
// killed cannot do it at its end.
const keepEvery = time.Minute

// kept is what account.due goes by.
type kept struct {
	last  time.Time
	jobs  uint64 // commands that the file tells of
	known bool   // it is this manager's
}
