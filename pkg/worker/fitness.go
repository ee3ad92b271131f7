package worker

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// restTime is how long the host takes no work after it has run out of processes or descriptors.
const restTime = time.Second

// checkFitLocked checks whether the host can work at all, and recalls or grants credits if that has changed.
func (s *Server) checkFitLocked(now time.Time) {
	h := s.load.Load()
	disk, memory := uint64(s.o.DiskFloor), uint64(lend.MemoryFloor)
	if s.lend.Closed() != nil { // a quarter more, so that the state does not flap
		disk, memory = disk+disk/4, memory+memory/4
	}
	var no *job.Refusal
	switch {
	case s.cage.lost != nil:
		no = s.cage.lost
	case s.clusterTrouble() != nil:
		no = s.clusterTrouble()
	case now.Before(s.rest):
		no = s.lend.Closed()
	case h.diskErr != nil:
		no = job.Refuse(job.CauseDisk, "work directory: %v", h.diskErr)
	case h.diskFree < disk:
		no = job.Refuse(job.CauseDisk, "%d bytes free in %s, fewer than limits.disk-floor", h.diskFree, s.o.WorkBase)
	case h.memoryFree > 0 && h.memoryFree < memory:
		no = job.Refuse(job.CauseMemory, "%d bytes of memory free", h.memoryFree)
	}
	s.setFitLocked(no)
}

// clusterTrouble returns why the cluster, if there is one, can do no jobs now.
func (s *Server) clusterTrouble() *job.Refusal {
	if s.o.Cluster == nil {
		return nil
	}
	return s.o.Cluster.Trouble()
}

// setFitLocked makes the host take no work because of no, or take work if no is nil.
func (s *Server) setFitLocked(no *job.Refusal) {
	was := s.lend.Closed()
	s.lend.Close(no)
	switch {
	case was == nil && no != nil:
		s.o.Log.Warn("no work taken", "cause", no.Cause.String(), "detail", no.Detail)
	case was != nil && no == nil:
		s.o.Log.Info("work taken again")
	default:
		return
	}
	s.rebalanceLocked()
	s.publishLocked()
}

// noted acts on what the reason why a job could not be done says about the host.
func (s *Server) noted(t *task, err error) {
	disk := run.Failed(err).Cause == job.CauseDisk
	if disk {
		s.readHostLoad() // without the lock, because it may take a while
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case run.Scarce(err):
		s.rest = time.Now().Add(restTime)
		s.setFitLocked(job.Refuse(job.CauseFull, "%v", err))
	case disk:
		s.tellMemoryLocked()
		s.checkFitLocked(time.Now())
	case run.Unstartable(err):
		s.compilers.Withdraw(t.job.Toolchain.ID)
		for c := range s.conns {
			c.listToolchainsLocked()
		}
	}
}
