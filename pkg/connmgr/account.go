package connmgr

import (
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// account keeps the record of commands that have ended, and of how much of that is on disk (keep.go). It is
// safe for concurrent use.
type account struct {
	mu   sync.Mutex
	book report.Book
	kept kept
}

// add adds the record of a command.
func (a *account) add(r *report.JobRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.book.Add(r)
}

// addAudit counts the result of an audit.
func (a *account) addAudit(result string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.book.AddAudit(result)
}

// tell adds what the account knows to a status.
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
	s.Cache = a.book.Cache()
	s.Recent = a.book.Recent()
}

// stats returns the totals of all commands so far.
func (a *account) stats() report.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.Stats()
}

// why returns the last jobs of a file, found by its names.
func (a *account) why(names []string, since time.Time) report.Why {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.Why(names, since)
}

// ofBuild returns commands of a build, as Book.OfBuild.
func (a *account) ofBuild(build, from uint64) report.BuildJobs {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.OfBuild(build, from)
}

// eachEnded calls see for commands that have ended, as Book.EachEnded.
func (a *account) eachEnded(from uint64, see func(*report.JobRecord)) (next uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.EachEnded(from, see)
}

// noted returns how many commands the account has.
func (a *account) noted() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.Noted()
}

// due reports whether the account is to be written to disk: it was not for keepEvery, and something was added
// since. If it is due, it then counts as written.
func (a *account) due(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := now.Sub(a.kept.last) >= keepEvery && !(a.kept.known && a.kept.jobs == a.book.Noted())
	if due {
		a.kept = kept{now, a.book.Noted(), true}
	}
	return due
}

// keepEvery is how often a busy manager writes its account to disk, because one that is killed cannot do so
// at its end.
const keepEvery = time.Minute

// kept is the state of account.due.
type kept struct {
	last  time.Time
	jobs  uint64 // commands that the file includes
	known bool   // the file is this manager's
}
