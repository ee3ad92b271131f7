package connmgr

import (
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// request is a job that waits for the scheduler's word.
type request struct {
	id     uint64                 // tells the scheduler's runs apart
	job    scheduler.Job          // guarded by farm.mu from pick on
	ready  chan grant             // capacity 1
	why    []scheduler.Considered // of the last word; guarded by farm.mu while it waits
	rule   string                 // and which rule made it, for people; as why
	second chan grant             // capacity 1: of a further host, as the one that has the job is slow
	early  bool                   // it is not made yet: the word is due once a host is there, and takes no credit
}

// grant is the scheduler's word: a connection with one of its credits, or a decision
// that no host gets the job.
type grant struct {
	req      *request
	host     *host
	conn     *conn // one of host's, or nil: none gets the job
	credit   job.Credit
	decision scheduler.Decision
}

// newRequest is a job that has not been asked for yet; id tells it apart from all others.
func newRequest(id uint64, j scheduler.Job) *request {
	return &request{id: id, job: j, ready: make(chan grant, 1), second: make(chan grant, 1)}
}
