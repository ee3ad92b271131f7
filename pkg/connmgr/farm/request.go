package farm

import (
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Request is a job that waits for the scheduler's word, or has had it and may get a further
// one.
type Request struct {
	ID uint64 // tells it apart from all others
	// Job is the caller's until it asks for the first word. From then on it is not changed by
	// the caller, who reads nothing of it but what is never written: not Tried, Again and Lost.
	Job scheduler.Job

	// guarded by Farm.mu, but for why and rule, which are the caller's between two words

	ready  chan Grant             // capacity 1
	second chan Grant             // capacity 1: of a further host, as the one that has the job is slow
	why    []scheduler.Considered // of the last word
	rule   string                 // and which rule made it
	early  bool                   // it is not made yet: the word is due once a host is there, and takes no credit
}

// NewRequest returns a job that has not been asked for yet.
func NewRequest(id uint64, j scheduler.Job) *Request {
	return &Request{ID: id, Job: j, ready: make(chan Grant, 1), second: make(chan Grant, 1)}
}

// Considered returns what the last word weighed, and a line for a person about the rule
// that made it; empty where the decision has words of its own. The slice is not changed.
func (r *Request) Considered() (list []scheduler.Considered, rule string) { return r.why, r.rule }

// Second delivers a further host for a job that is late where it is, between Join and Leave.
// What comes from it is due an attempt, or GiveBack.
func (r *Request) Second() <-chan Grant { return r.second }

// Grant is the scheduler's word: a connection with one of its credits, or a decision that no
// host gets the job. A credit is due an attempt, of which Ended tells, or GiveBack.
type Grant struct {
	Req      *Request
	Host     *Host // nil: none gets the job
	Credit   job.Credit
	Decision scheduler.Decision // of a job that no host gets
	conn     *conn              // one of Host's
}

// Link returns the connection that the credit is of.
func (g *Grant) Link() *link.Link { return g.conn.Link }
