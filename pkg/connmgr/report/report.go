// Package report is what a connection manager tells of itself: the answers to rdistcc's
// questions (Status, Stats, Why, Places, Drained), as JSON over the control socket and as
// words for the status page, and the Book that they are taken from.
//
// Nothing in it knows of hosts that can be dialled, of connections or of the manager: a
// program that asks imports this package and not that.
package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// Status is what a manager shows of itself, as JSON over the control socket.
type Status struct {
	// NotRunning says that no manager runs: this is what the last one knew. nil: it runs.
	NotRunning *NotRunning `json:"not_running,omitempty"`

	Version string       `json:"version"`
	PID     int          `json:"pid"`
	Since   time.Time    `json:"since"`
	Hosts   []HostStatus `json:"hosts"`
	// ListFrom names the file or flag of the manager's own host list; empty: there is none.
	ListFrom string `json:"list_from,omitempty"`
	// ListError says why that list cannot be used, as its file is now. ListKept: what it was
	// before is in force.
	ListError string `json:"list_error,omitempty"`
	ListKept  bool   `json:"list_kept,omitempty"`
	// Config is what the settings come from; nil: the manager does not say.
	Config  *Configuration `json:"config,omitempty"`
	Drained []string       `json:"drained,omitempty"` // hosts that were drained by hand, on a list or not
	NoHosts uint64         `json:"no_hosts"`          // compiles done here because no host was configured
	Jobs    []JobCount     `json:"jobs"`
	Inputs  InputCounts    `json:"inputs"`
	Running int            `json:"running"` // commands under way
	// Underway are these, the oldest first.
	Underway []Underway    `json:"underway"`
	Slots    SlotStatus    `json:"slots"`
	Waiting  WaitingStatus `json:"waiting"`
	Recent   []JobRecord   `json:"recent"` // the newest first
}

// Kept is what a manager writes down for when it does not run any more: at its end, and
// now and then before.
type Kept struct {
	At time.Time `json:"at"`
	// Ended says that it was written at the end, Why what for. Otherwise the manager went on,
	// and was killed if none runs.
	Ended  bool   `json:"ended"`
	Why    string `json:"why,omitempty"`
	Status Status `json:"status"`
	Stats  Stats  `json:"stats"`
}

// KeptFile returns the file with the Kept of the manager that serves a socket; both are
// paths.
func KeptFile(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".kept" }

// NotRunning says in an answer that it is the last manager's, and none runs.
type NotRunning struct {
	Kept  time.Time `json:"kept"`  // when the answer was written down
	Ended bool      `json:"ended"` // that was at its end; otherwise it was killed some time later
	Why   string    `json:"why,omitempty"`
}

// Last returns the answers of a manager that runs no more; both say so.
func (k *Kept) Last() (*Status, *Stats) {
	status, stats := k.Status, k.Stats
	gone := &NotRunning{Kept: k.At, Ended: k.Ended, Why: k.Why}
	status.NotRunning, stats.NotRunning = gone, gone
	return &status, &stats
}

// Configuration is what a manager knows of its settings.
type Configuration struct {
	File    string   `json:"file,omitempty"`    // empty: there is none
	Error   string   `json:"error,omitempty"`   // why the file as it is now was not taken; what was in force stays
	Restart []string `json:"restart,omitempty"` // keys that have other values in the file than in force, until another manager starts
}

// Reloaded is the answer to reload.
type Reloaded struct {
	Configuration
	Changed []string `json:"changed,omitempty"` // keys whose new values are in force now
	// The manager's own host list after that, as in Status.
	ListFrom  string `json:"list_from,omitempty"`
	ListError string `json:"list_error,omitempty"`
	ListKept  bool   `json:"list_kept,omitempty"`
}

// StateUnused is the state of a host that no job has asked for yet: nothing has dialled it.
const StateUnused = "unused"

// HostStatus is one host's part of Status.
type HostStatus struct {
	Addr    string `json:"addr"`
	State   string `json:"state"` // unused, connecting, starting, up, draining, down; source: what hosts are looked for by
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
	// Identifying: it is still finding out which compilers it has.
	Identifying bool `json:"identifying,omitempty"`
	Tree        bool `json:"tree"`    // it shows private trees: it takes the sources form
	Drained     bool `json:"drained"` // by hand: nothing new goes there
	// Sandbox is how well the host confines compiles: off, partial, confined, full; empty: not
	// known yet. Measures name what it does for that.
	Sandbox  string   `json:"sandbox,omitempty"`
	Measures []string `json:"measures,omitempty"`
	RTTUS    int64    `json:"rtt_us,omitempty"`
	Rate     float64  `json:"rate,omitempty"`  // bytes a second on the way there
	Speed    float64  `json:"speed,omitempty"` // beside a core of speed 1, as its jobs showed; 0 = not yet
	Depth    int      `json:"depth"`           // jobs worth having at it, or on the way, beyond Jobs
	Demand   int      `json:"demand"`          // jobs that it was told we have use for
	// HeldFiles is how many of our files it holds, as far as that is believed; HeldBytes are
	// those that jobs did not need to send there.
	HeldFiles int    `json:"held_files,omitempty"`
	HeldBytes uint64 `json:"held_bytes,omitempty"`
	// OnTrial: it takes one job at a time until one went well. PauseMS is until it is
	// dialled again, or takes jobs again; DoubtMS until its quarantine ends, for Doubt.
	OnTrial bool   `json:"on_trial,omitempty"`
	PauseMS int64  `json:"pause_ms,omitempty"`
	DoubtMS int64  `json:"doubt_ms,omitempty"`
	Doubt   string `json:"doubt,omitempty"`
	// Compilers are the families and versions that the host has, Lacks those that jobs of
	// this machine have asked for and it has not. Foreign: it has none that was asked for.
	Compilers []string `json:"compilers,omitempty"`
	Lacks     []string `json:"lacks,omitempty"`
	Foreign   bool     `json:"foreign,omitempty"`
	// Refused is why it refused the last job that it was sent; empty: it did not.
	Refused string    `json:"refused,omitempty"`
	Load    *job.Load `json:"load,omitempty"`
	// LoadFrom is where Load comes from (board, result, heartbeat, welcome), LoadAgeMS
	// its age in milliseconds.
	LoadFrom  string        `json:"load_from,omitempty"`
	LoadAgeMS int64         `json:"load_age_ms,omitempty"`
	Pressure  *job.Pressure `json:"pressure,omitempty"` // as the board last had it
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
	case s.State == "starting":
		return "takes connections, and has not said yet what it can do"
	case s.State == "draining":
		return cmp.Or(s.Error, "is going down: it finishes what it has")
	case s.State == "connecting":
		return cmp.Or(s.Error, "no answer yet")
	case s.State != "up":
		return s.Error
	case s.Identifying && (s.Foreign || s.Tools == 0):
		return identifies
	case s.Foreign && len(s.Compilers) > 0:
		return fmt.Sprintf("has none of the compilers used here (%s): it has %s", strings.Join(s.Lacks, ", "), strings.Join(s.Compilers, ", "))
	case s.Foreign:
		return fmt.Sprintf("has none of the compilers used here (%s)", strings.Join(s.Lacks, ", "))
	case s.Tools == 0:
		return "has no compilers; its log says where it looked"
	case s.PauseMS > 0:
		return "left alone for " + pause(s.PauseMS) + ": its jobs failed"
	case s.OnTrial:
		return "on trial, one job at a time: its jobs failed"
	case s.Refused != "":
		return s.Refused
	case s.Credits+s.Running == 0 && s.Load != nil && s.Load.Running == 0 && s.Load.Queued == 0 && s.Load.MemoryFree > 0 && s.Load.MemoryFree < littleMemory:
		return fmt.Sprintf("takes nothing: %d MiB of memory are free", s.Load.MemoryFree>>20)
	}
	var notes []string
	if s.Identifying {
		notes = append(notes, identifies)
	} else if len(s.Lacks) > 0 {
		notes = append(notes, "lacks "+strings.Join(s.Lacks, ", "))
	}
	if !s.Tree {
		notes = append(notes, "shows no private trees")
	}
	return strings.Join(notes, "; ")
}

// identifies is the note of a host that has not told of all its compilers yet.
const identifies = "has just started: it is finding out which compilers it has"

// littleMemory is what a host wants to have free, in bytes, at the most, or it takes no jobs.
const littleMemory = 128 << 20

// Usable reports whether the host is there for jobs, or on its way up as far as anybody
// knows: what is down, going down, drained or in quarantine is not, nor is what has no
// compiler in common with this machine.
func (s *HostStatus) Usable() bool {
	switch {
	case s.Drained, s.DoubtMS > 0, s.Foreign && !s.Identifying, s.Refused != "" && s.Running == 0:
		return false
	case s.State == "up":
		return s.PauseMS == 0 && (s.Tools > 0 || s.Identifying)
	case s.State == "connecting", s.State == "starting":
		return s.Error == ""
	}
	return s.State == StateUnused
}

// JobCount counts commands by where they ran and why.
type JobCount struct {
	Place  string `json:"place"` // remote or local
	Reason string `json:"reason,omitempty"`
	Host   string `json:"host,omitempty"`
	OK     uint64 `json:"ok"`
	Failed uint64 `json:"failed"`
}

// Underway is one command under way.
type Underway struct {
	ID     uint64   `json:"id"`
	Source string   `json:"source"` // as the command names it; without one its output, or its program
	Phase  string   `json:"phase"`
	Here   bool     `json:"here"`            // it is this machine's to do
	Hosts  []string `json:"hosts,omitempty"` // that have it: two where a second one got it as well
	AgeMS  int64    `json:"age_ms"`
}

// Phases of a command under way.
const (
	PhaseWaits    = "waits"    // for a host, or for its turn on this machine
	PhaseLists    = "lists"    // here: what it reads is listed and collected, or preprocessed
	PhaseCompiles = "compiles" // at a host
	PhaseReturns  = "returns"  // the wrapper takes its result
	PhaseRuns     = "runs"     // here
)

// Place is where a command is, for people: hosts, or this machine.
func (u *Underway) Place() string {
	switch {
	case len(u.Hosts) > 0:
		return strings.Join(u.Hosts, ", ")
	case u.Here, u.Phase == PhaseLists, u.Phase == PhaseReturns:
		return "here"
	}
	return "-"
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
	Twice    bool      `json:"twice,omitempty"` // compiled on a host, and then here

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

	// Inputs is how it was known what the compile reads: scan, memo, list or text; Doubt is why
	// the compiler here was asked. Files are those that it reads, as far as that is known, and
	// SentFiles those that its host did not hold.
	Inputs    string `json:"inputs,omitempty"`
	Doubt     string `json:"doubt,omitempty"`
	Files     uint32 `json:"files,omitempty"`
	SentFiles uint32 `json:"sent_files,omitempty"`

	// How its host was chosen. Build tells builds apart; Predicted is what the compile
	// was expected to take on a host of speed 1, 0 when nothing was known; Considered
	// are the hosts of the last choice, and Rule is what decided it, a line for people;
	// Hedged is the second host of a straggler.
	Build      uint64        `json:"build,omitempty"`
	Predicted  time.Duration `json:"predicted_ns,omitempty"`
	Considered []Considered  `json:"considered,omitempty"`
	Rule       string        `json:"rule,omitempty"`
	Hedged     string        `json:"hedged,omitempty"`
	Expected   time.Duration `json:"expected_ns,omitempty"` // processor time, as Predicted, by the speed of the host that did it
}

// Considered is one host in the choice for a job: when it was expected to be done
// there, counted from then, or why it could not go there.
type Considered struct {
	Host   string        `json:"host"`
	Finish time.Duration `json:"finish_ns,omitempty"`
	Why    string        `json:"why,omitempty"`
}

// Drained is the answer to drain and undrain.
type Drained struct {
	Host    string `json:"host"`
	Drained bool   `json:"drained"`
	Running int    `json:"running"` // jobs of this manager's that are still finished there
	Was     bool   `json:"was"`     // it was so before
}

// Places is how many jobs a build may have under way.
type Places struct {
	Hosts int `json:"hosts"` // at hosts that are up and take jobs, with those on the way to far ones
	Guess int `json:"guess"` // at hosts that nobody has connected to yet
	Local int `json:"local"` // on this machine, which does its part when the hosts are busy
}

// GuessedPlaces counts for a host that nobody has asked yet how many jobs it takes:
// distcc's number.
const GuessedPlaces = 4
