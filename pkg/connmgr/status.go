package connmgr

import (
	"cmp"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/sandbox"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Status is what a manager shows of itself, as JSON over the control socket.
type Status struct {
	Version string       `json:"version"`
	PID     int          `json:"pid"`
	Since   time.Time    `json:"since"`
	Hosts   []HostStatus `json:"hosts"`
	// ListFrom names the file or flag of the manager's own host list; empty: there is none.
	ListFrom string `json:"list_from,omitempty"`
	// ListError says why that list cannot be used.
	ListError string        `json:"list_error,omitempty"`
	Drained   []string      `json:"drained,omitempty"` // hosts that were drained by hand, on a list or not
	NoHosts   uint64        `json:"no_hosts"`          // compiles done here because no host was configured
	Jobs      []JobCount    `json:"jobs"`
	Running   int           `json:"running"` // commands under way
	Slots     SlotStatus    `json:"slots"`
	Waiting   WaitingStatus `json:"waiting"`
	Recent    []JobRecord   `json:"recent"` // the newest first
}

// HostStatus is one host's part of Status.
type HostStatus struct {
	Addr    string `json:"addr"`
	State   string `json:"state"` // unused, connecting, up, draining, down; source: what hosts are looked for by
	Error   string `json:"error,omitempty"`
	Links   int    `json:"connections"`
	Credits int    `json:"credits"` // unspent
	Running int    `json:"running"` // our jobs on it
	OK      uint64 `json:"ok"`
	Failed  uint64 `json:"failed"` // attempts that gave no result
	Out     uint64 `json:"bytes_out"`
	In      uint64 `json:"bytes_in"`
	Jobs    int    `json:"jobs"`       // compiles at a time that the host allows
	Tools   int    `json:"toolchains"` // that it can run
	Tree    bool   `json:"tree"`       // it shows private trees: it takes the sources form
	Drained bool   `json:"drained"`    // by hand: nothing new goes there
	// Sandbox is how well the host confines compiles: off, partial, confined, full; empty: not
	// known yet. Measures name what it does for that.
	Sandbox  string   `json:"sandbox,omitempty"`
	Measures []string `json:"measures,omitempty"`
	RTTUS    int64    `json:"rtt_us,omitempty"`
	Rate     float64  `json:"rate,omitempty"`  // bytes a second on the way there
	Speed    float64  `json:"speed,omitempty"` // beside a core of speed 1, as its jobs showed; 0 = not yet
	Depth    int      `json:"depth"`           // jobs worth having at it, or on the way, beyond Jobs
	Demand   int      `json:"demand"`          // jobs that it was told we have use for
	// OnTrial: it takes one job at a time until one went well. PauseMS is until it is
	// dialled again, or takes jobs again; DoubtMS until its quarantine ends, for Doubt.
	OnTrial bool      `json:"on_trial,omitempty"`
	PauseMS int64     `json:"pause_ms,omitempty"`
	DoubtMS int64     `json:"doubt_ms,omitempty"`
	Doubt   string    `json:"doubt,omitempty"`
	Load    *job.Load `json:"load,omitempty"`
	// LoadFrom is where Load comes from (board, result, heartbeat, welcome), LoadAgeMS
	// its age in milliseconds.
	LoadFrom  string        `json:"load_from,omitempty"`
	LoadAgeMS int64         `json:"load_age_ms,omitempty"`
	Pressure  *job.Pressure `json:"pressure,omitempty"` // as the board last had it

	state hostState
}

// Note is what its user should know of a host: why it is not up, gets no jobs, or what
// it cannot do.
func (s *HostStatus) Note() string {
	pause := func(ms int64) string {
		return (time.Duration(ms+999) * time.Millisecond).Truncate(time.Second).String()
	}
	switch {
	case s.Drained:
		return "drained by hand: rdistcc undrain ends that"
	case s.DoubtMS > 0:
		return "in quarantine for " + pause(s.DoubtMS) + ": " + s.Doubt
	case s.State != "up" && s.PauseMS >= 1000 && s.Error != "":
		return s.Error + "; again in " + pause(s.PauseMS)
	case s.State != "up":
		return s.Error
	case s.PauseMS > 0:
		return "left alone for " + pause(s.PauseMS) + ": its jobs failed"
	case s.OnTrial:
		return "on trial, one job at a time: its jobs failed"
	case !s.Tree:
		return "shows no private trees"
	}
	return ""
}

// JobCount counts commands by where they ran and why.
type JobCount struct {
	Place  string `json:"place"` // remote or local
	Reason string `json:"reason,omitempty"`
	Host   string `json:"host,omitempty"`
	OK     uint64 `json:"ok"`
	Failed uint64 `json:"failed"`
}

// SlotStatus counts slots.
type SlotStatus struct {
	Max    int `json:"max"`
	Leased int `json:"leased"`
	Free   int `json:"free"`
}

// WaitingStatus counts commands that wait.
type WaitingStatus struct {
	Credit     int `json:"credit"`
	Preprocess int `json:"preprocess"`
	Local      int `json:"local"`
}

// JobRecord is the account of one command.
type JobRecord struct {
	ID       uint64    `json:"id"`
	Began    time.Time `json:"began"`
	Compiler string    `json:"compiler,omitempty"`
	Source   string    `json:"source,omitempty"`
	Output   string    `json:"output,omitempty"`
	Cwd      string    `json:"cwd,omitempty"`
	Local    bool      `json:"local"`
	Host     string    `json:"host,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Detail   string    `json:"detail,omitempty"`
	Trouble  bool      `json:"trouble,omitempty"`
	Exit     uint8     `json:"exit"`
	Finished bool      `json:"finished"` // the wrapper said so; otherwise it went away
	Attempts uint8     `json:"attempts,omitempty"`

	PreprocessUS uint32 `json:"preprocess_us,omitempty"`
	CreditUS     uint32 `json:"credit_us,omitempty"`
	WriteUS      uint32 `json:"write_us,omitempty"`
	QueueUS      uint32 `json:"queue_us,omitempty"`
	CompileUS    uint32 `json:"compile_us,omitempty"`
	CPUUS        uint32 `json:"cpu_us,omitempty"` // of the compile at the host
	ReturnUS     uint32 `json:"return_us,omitempty"`
	TotalUS      uint32 `json:"total_us,omitempty"`
	BytesOut     uint64 `json:"bytes_out,omitempty"`
	BytesIn      uint64 `json:"bytes_in,omitempty"`

	// How its host was chosen. Build tells builds apart; Predicted is what the compile
	// was expected to take on a host of speed 1, 0 when nothing was known; Considered
	// are the hosts of the last choice; Hedged is the second host of a straggler.
	Build      uint64        `json:"build,omitempty"`
	Predicted  time.Duration `json:"predicted_ns,omitempty"`
	Considered []Considered  `json:"considered,omitempty"`
	Hedged     string        `json:"hedged,omitempty"`
	Expected   time.Duration `json:"expected_ns,omitempty"` // processor time, as Predicted, by the speed of the host that did it

	remote bool // a host gave a result
}

// Considered is one host in the choice for a job: when it was expected to be done
// there, counted from then, or why it could not go there.
type Considered struct {
	Host   string        `json:"host"`
	Finish time.Duration `json:"finish_ns,omitempty"`
	Why    string        `json:"why,omitempty"`
}

// consider takes the scheduler's view of the hosts.
func (r *JobRecord) consider(list []scheduler.Considered) {
	r.Considered = r.Considered[:0:0]
	for _, x := range list {
		r.Considered = append(r.Considered, Considered(x))
	}
}

// note takes the figures of a result.
func (r *JobRecord) note(x *ipc.Result) {
	r.remote = true
	r.Host, r.Attempts = x.Host, x.Attempts
	r.CreditUS, r.WriteUS, r.QueueUS, r.CompileUS, r.ReturnUS = x.CreditUS, x.WriteUS, x.QueueUS, x.CompileUS, x.ReturnUS
	r.BytesOut, r.BytesIn = x.BytesOut, x.BytesIn
}

// maxRecent is how many commands are remembered, of which Status shows the newest, and
// maxConsidered how many hosts of each one's choice.
const (
	maxRecent     = 2048
	maxShown      = 256
	maxConsidered = 16
)

// recentJobs is a ring of accounts, and their sums.
type recentJobs struct {
	ring [maxRecent]JobRecord
	n    uint64 // ever noted
	sums map[jobKey]*JobCount
}

type jobKey struct {
	local  bool
	reason string // its label
	host   string
}

func (j *recentJobs) add(r *JobRecord) {
	if len(r.Considered) > maxConsidered {
		r.Considered = slices.Clone(r.Considered[:maxConsidered])
	}
	j.ring[j.n%maxRecent] = *r
	j.n++
	k := jobKey{local: r.Local}
	if r.Local {
		k.reason = reasonLabel(r.Reason)
	} else {
		k.host = r.Host
	}
	if j.sums == nil {
		j.sums = make(map[jobKey]*JobCount)
	}
	c := j.sums[k]
	if c == nil {
		c = &JobCount{Place: "remote", Reason: k.reason, Host: k.host}
		if k.local {
			c.Place = "local"
		}
		j.sums[k] = c
	}
	if r.Exit == 0 && r.Finished {
		c.OK++
	} else {
		c.Failed++
	}
}

// counts are the sums, remote ones first.
func (j *recentJobs) counts() (list []JobCount) {
	for _, c := range j.sums {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b JobCount) int {
		return cmp.Or(cmp.Compare(b.Place, a.Place), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// logJob counts and logs a command that has ended.
func (c *client) logJob() {
	r := &c.record
	if r.ID == 0 {
		return // a question, or nothing at all
	}
	if !r.Finished {
		r.Local = !r.remote
		if r.Reason == "" && r.Local {
			r.Reason = "manager"
		}
	}
	if r.Local {
		r.Host = ""
	}
	c.m.mu.Lock()
	if r.Predicted > 0 && !r.Local {
		r.Expected = time.Duration(float64(r.Predicted) / max(c.m.sched.Speed(r.Host, c.toolchain.ID), 0.01))
	}
	c.m.recent.add(r)
	c.m.sums.add(r)
	c.m.mu.Unlock()
	c.m.metrics.done(r)
	attrs := []any{"job", r.ID, "source", r.Source, "exit", r.Exit, "total_us", r.TotalUS}
	if !r.Finished {
		attrs = append(attrs, "wrapper", "gone")
	}
	if r.Local {
		attrs = append(attrs, "place", "local", "reason", r.Reason)
		if r.Detail != "" {
			attrs = append(attrs, "detail", r.Detail)
		}
	} else {
		attrs = append(attrs, "place", "remote", "host", r.Host, "out", r.BytesOut, "in", r.BytesIn,
			"preprocess_us", r.PreprocessUS, "credit_us", r.CreditUS, "write_us", r.WriteUS,
			"queue_us", r.QueueUS, "compile_us", r.CompileUS, "return_us", r.ReturnUS)
	}
	c.m.o.Log.Log(c.m.ctx, slog.LevelInfo, "job", attrs...)
}

// Status is the manager's state of now.
func (m *Manager) Status() Status {
	own := m.o.Hosts()
	s := Status{Version: m.o.Version, PID: os.Getpid(), Since: m.started, ListFrom: own.Where}
	if own.Err != nil {
		s.ListError = own.Err.Error()
	}
	free := m.sources.Stats()
	s.Slots = SlotStatus{Max: free.Max, Free: free.Free, Leased: free.Total - free.Free}
	_, s.Waiting.Preprocess = m.cpp.Load()
	_, s.Waiting.Local = m.local.Load()

	m.mu.Lock()
	defer m.mu.Unlock()
	s.Waiting.Credit = len(m.waiting)
	for c := range m.open {
		if c.counts {
			s.Running++
		}
	}
	known := m.snapshotLocked()
	for _, h := range m.hosts {
		s.Hosts = append(s.Hosts, h.statusLocked(known))
	}
	slices.SortFunc(s.Hosts, func(a, b HostStatus) int { return cmp.Compare(a.Addr, b.Addr) })
	s.Jobs = m.recent.counts()
	for _, c := range s.Jobs {
		if c.Reason == "no-hosts" {
			s.NoHosts += c.OK + c.Failed
		}
	}
	for i := range min(m.recent.n, maxShown) {
		s.Recent = append(s.Recent, m.recent.ring[(m.recent.n-1-i)%maxRecent])
	}
	for addr := range m.drains.on {
		s.Drained = append(s.Drained, addr)
	}
	slices.Sort(s.Drained)
	return s
}

// snapshotLocked is what the scheduler knows of the hosts.
func (m *Manager) snapshotLocked() map[string]scheduler.Status {
	list := m.sched.Snapshot(time.Now())
	known := make(map[string]scheduler.Status, len(list))
	for _, s := range list {
		known[s.Addr] = s
	}
	return known
}

// statusLocked is h's state; known is snapshotLocked's.
func (h *host) statusLocked(known map[string]scheduler.Status) HostStatus {
	s := HostStatus{Addr: h.addr, State: h.state.String(), state: h.state,
		OK: h.jobs.ok, Failed: h.jobs.failed, Out: h.jobs.out, In: h.jobs.in, Drained: h.m.drains.on[h.addr]}
	k := known[h.addr]
	s.RTTUS, s.Rate, s.Speed = k.Link.RTT.Microseconds(), k.Link.Rate, k.Speed
	s.OnTrial, s.PauseMS, s.DoubtMS, s.Doubt = k.HalfOpen, k.Retry.Milliseconds(), k.Quarantine.Milliseconds(), k.Doubt
	if s.state == hostUp {
		s.Depth = h.m.sched.Depth(h.addr)
	}
	if h.lastErr != nil {
		s.Error = h.lastErr.Error()
	}
	if l := h.link; l != nil {
		load := l.view.load
		s.Links, s.Credits, s.Running, s.Load = len(h.links), h.unspentLocked(), h.runningLocked(), &load
		s.LoadFrom, s.LoadAgeMS, s.Pressure = l.view.from, time.Since(l.view.at).Milliseconds(), l.view.pressure
		measures := sandbox.Set(l.welcome.Sandbox)
		s.Sandbox, s.Measures = measures.Level().String(), measures.Names()
		s.Jobs, s.Tools, s.Tree, s.Demand = int(l.welcome.Jobs), len(l.ids), l.welcome.Tree, max(l.demand.jobs, 0)
	}
	return s
}
