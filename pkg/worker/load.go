package worker

import (
	"bytes"
	"cmp"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
)

// hostLoad is the machine's state. It is read once a tick, because that takes reading several files.
type hostLoad struct {
	loadAvg    uint32 // x 100
	memoryFree uint64 // bytes
	oomKills   uint64
	diskFree   uint64 // bytes, for the work area
	diskErr    error
	pressure   job.Pressure
}

func (s *Server) readHostLoad() {
	var h hostLoad
	if b, err := os.ReadFile(s.o.Proc + "/loadavg"); err == nil {
		first, _, _ := bytes.Cut(b, []byte(" "))
		if f, err := strconv.ParseFloat(string(first), 64); err == nil {
			h.loadAvg = uint32(min(f*100, math.MaxUint32))
		}
	}
	h.memoryFree = s.readMemory()
	h.oomKills = s.readOOMKills()
	var st unix.Statfs_t
	h.diskErr = unix.Statfs(s.o.WorkBase, &st)
	h.diskFree = st.Bavail * uint64(st.Bsize)
	h.pressure = job.Pressure{CPU: s.pressure("cpu"), Memory: s.pressure("memory"), IO: s.pressure("io")}
	s.load.Store(&h)
}

// tellMemoryLocked tells the ledger how much memory is free.
func (s *Server) tellMemoryLocked() {
	h := s.load.Load()
	s.lend.SetMemory(h.memoryFree, h.pressure.Memory)
}

// readMemory returns how many bytes programs could still use without swapping, on this machine and in the
// control groups around this process; 0 if not known.
func (s *Server) readMemory() (free uint64) {
	if b, err := os.ReadFile(s.o.Proc + "/meminfo"); err == nil {
		free = number(b, "MemAvailable:") << 10
	}
	if n, ok := s.groups.MemoryFree(); ok && (free == 0 || n < free) {
		free = n
	}
	return free
}

// readOOMKills returns how many processes the kernel has killed because memory ran out.
func (s *Server) readOOMKills() uint64 {
	b, err := os.ReadFile(s.o.Proc + "/vmstat")
	if err != nil {
		return 0
	}
	return number(b, "oom_kill ")
}

// number returns the number that follows a name in the text b, or 0 if the name is not there.
func number(b []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(b, []byte(name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.ParseUint(string(bytes.TrimSuffix(bytes.TrimSpace(line), []byte(" kB"))), 10, 54)
	if err != nil {
		return 0
	}
	return n
}

// pressure returns how long processes have waited for a resource (Linux PSI), in hundredths of a percent, or
// job.NoPressure if the kernel does not say.
func (s *Server) pressure(resource string) uint16 {
	b, err := os.ReadFile(s.o.Proc + "/pressure/" + resource)
	if err != nil {
		return job.NoPressure
	}
	_, rest, _ := bytes.Cut(b, []byte("some avg10="))
	word, _, _ := bytes.Cut(rest, []byte(" "))
	f, err := strconv.ParseFloat(string(word), 64)
	if err != nil {
		return job.NoPressure
	}
	return uint16(max(0, min(f*100, job.NoPressure-1)))
}

// loadLocked returns this host's load as messages carry it.
func (s *Server) loadLocked() job.Load {
	h := s.load.Load()
	free := 0
	if !s.draining { // a draining host grants none
		free = s.lend.Free(time.Now())
	}
	return job.Load{
		Jobs:       clip16(s.o.Jobs),
		Running:    clip16(s.lend.Running()),
		Queued:     clip16(s.lend.Queued()),
		Free:       clip16(free),
		Draining:   s.draining,
		LoadAvg:    h.loadAvg,
		MemoryFree: h.memoryFree,
	}
}

func clip16(n int) uint16 { return uint16(max(0, min(n, math.MaxUint16))) }

// tick calls look periodically until the server stops.
func (s *Server) tick() {
	every := min(time.Second, s.o.Heartbeat)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
			s.look(every)
		}
	}
}

// look does what is due in one tick.
func (s *Server) look(every time.Duration) {
	defer s.rescue(s.o.Log, nil)
	s.readHostLoad()
	idle, scan, victims := s.lookAround(every, s.fitStore())
	for _, t := range victims {
		t.stop(job.CauseCancelled)
	}
	if idle {
		s.slots.Trim(0)
		s.places.Trim()
		s.large.Trim()
	}
	if scan {
		s.serving.Go(s.rescan) // it may take seconds
	}
}

// lookAround is the part of look that needs the lock. stale says that trees may have to drop what they keep.
// idle reports that there are no connections, and scan that it is time to look for compilers. The caller
// stops victims.
func (s *Server) lookAround(every time.Duration, stale bool) (idle, scan bool, victims []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for c := range s.conns {
		c.checkLifeLocked(every)
	}
	s.tellMemoryLocked()
	s.checkFitLocked(now)
	s.canariesLocked(now)
	s.lend.Tick(now)
	s.reclaimLocked(now)
	s.rebalanceLocked()
	s.publishLocked()
	victims = s.yieldLocked(now)
	if s.lend.Queued() > 0 || stale {
		s.wake.Broadcast() // a job may get its memory now, and a tree may have to drop what it keeps
	}
	return len(s.conns) == 0, !s.draining && s.compilers.Due(now), victims
}

// Status is the state of a server, as a status page shows it.
type Status struct {
	Load       job.Load      `json:"load"`
	Large      int64         `json:"large_bytes"` // memory of sources and results beyond slots and sinks
	Tree       bool          `json:"tree"`        // jobs of the sources form are accepted
	Sandbox    SandboxStatus `json:"sandbox"`
	Store      StoreStatus   `json:"store"`
	Toolchains int           `json:"toolchains"` // number that clients are offered
	// Identifying says that some compilers have not been asked since the start.
	Identifying bool           `json:"identifying"`
	Tenants     int            `json:"tenants"` // number of tenants that the clients work for
	Clients     []ClientStatus `json:"clients"`
	Jobs        []JobStatus    `json:"underway"` // the oldest first
}

// StoreStatus describes the contents that the server keeps for tenants.
type StoreStatus struct {
	store.Stats
	Most int64 `json:"most_bytes"` // bytes kept per tenant at most; 0: none are kept
	// Trees is how many bytes trees keep from one job to the next.
	Trees int64 `json:"tree_bytes"`
}

// JobStatus describes one job that the server has now.
type JobStatus struct {
	Client string        `json:"client"` // the name that its manager gives itself
	Remote string        `json:"remote"` // the manager's address
	Source string        `json:"source"` // as the command names it; empty: not read yet
	Phase  string        `json:"phase"`  // fetches, waits, compiles or answers
	Age    time.Duration `json:"age_ns"`
}

// ClientStatus describes one connection.
type ClientStatus struct {
	Tenant   string    `json:"tenant"` // the tenant that it counts for
	Name     string    `json:"name"`   // the name that its manager gives itself
	Remote   string    `json:"remote"`
	Credits  int       `json:"credits"` // unspent
	InHand   int       `json:"in_hand"` // jobs queued or running
	Weight   int       `json:"weight"`  // of its manager
	Demand   int       `json:"demand"`  // of its manager; -1: it did not say
	Jobs     uint64    `json:"jobs"`
	Since    time.Time `json:"since"`
	BytesIn  uint64    `json:"bytes_in"`
	BytesOut uint64    `json:"bytes_out"`
}

// Status returns the current state.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Load: s.loadLocked(), Large: s.large.Used(), Tree: s.places.Trees, Sandbox: s.sandboxLocked(), Store: StoreStatus{Stats: s.storeStats(), Trees: s.places.Kept()},
		Toolchains: len(s.Toolchains()), Identifying: s.Identifying(), Tenants: s.lend.Tenants()}
	if s.keep != nil {
		st.Store.Most = s.keep.Most()
	}
	for c := range s.conns {
		if c.claim != nil {
			continue // it has not proven itself yet
		}
		q := ClientStatus{Tenant: c.lent.Tenant().Name(), Name: c.name, Remote: c.remote.String(), Credits: len(c.credits), InHand: len(c.tasks), Jobs: c.jobs, Since: c.since}
		if cl := c.lent.Client(); cl != nil {
			q.Weight, q.Demand = cl.Weight(), cl.Demand()
		}
		if c.qp != nil {
			qs := c.qp.Stats()
			q.BytesIn, q.BytesOut = qs.BytesReceived, qs.BytesSent
		}
		st.Clients = append(st.Clients, q)
		for _, t := range c.tasks {
			st.Jobs = append(st.Jobs, s.jobLocked(t))
		}
	}
	slices.SortFunc(st.Jobs, func(a, b JobStatus) int { return cmp.Compare(b.Age, a.Age) })
	return st
}

func (s *Server) jobLocked(t *task) JobStatus {
	j := JobStatus{Client: t.c.name, Remote: t.c.remote.String(), Phase: "fetches", Age: time.Since(t.queued)}
	switch {
	case t.lent.Runs():
		j.Phase = "compiles"
	case t.lent.Waits():
		j.Phase = "waits"
	case !t.started.IsZero():
		j.Phase = "answers"
	}
	if name := t.shown.Load(); name != nil {
		j.Source = *name
	}
	return j
}

// Ready returns nil if the server takes jobs, otherwise why not. It takes jobs while compilers are being
// identified: a client that knows of none yet waits for the list.
func (s *Server) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errDraining
	}
	if no := s.lend.Closed(); no != nil {
		return no
	}
	if list, more := s.compilers.Now(); len(list) == 0 && !more {
		return errNoToolchain
	}
	return nil
}
