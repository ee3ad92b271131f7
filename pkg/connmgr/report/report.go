// Package report defines what a connection manager tells about itself: the answers to rdistcc's questions
// (Status, Stats, Why, Places, Drained), as JSON over the control socket and as words for the status page. It
// also has the Book that keeps the records behind these answers.
//
// The package does not depend on the manager or on connections, so a program that asks a manager imports only
// this package.
package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// Status is the state of a manager, as JSON over the control socket.
type Status struct {
	// NotRunning says that no manager runs and this is what the last one knew. It is nil if one runs.
	NotRunning *NotRunning `json:"not_running,omitempty"`

	Version string       `json:"version"`
	PID     int          `json:"pid"`
	Since   time.Time    `json:"since"`
	Hosts   []HostStatus `json:"hosts"`
	// ListFrom names the file or flag of the manager's own host list. It is empty without such a list.
	ListFrom string `json:"list_from,omitempty"`
	// ListError says why that list, as its file is now, cannot be used. ListKept says that the list from before
	// is still in force.
	ListError string `json:"list_error,omitempty"`
	ListKept  bool   `json:"list_kept,omitempty"`
	// Config tells where the settings come from. It is nil if the manager does not say.
	Config  *Configuration `json:"config,omitempty"`
	Drained []string       `json:"drained,omitempty"` // hosts drained by hand, on a list or not
	NoHosts uint64         `json:"no_hosts"`          // local compiles because no host was configured
	Jobs    []JobCount     `json:"jobs"`
	Inputs  InputCounts    `json:"inputs"`
	Known   Known          `json:"known"`
	Cache   CacheCounts    `json:"cache"`
	Running int            `json:"running"` // commands under way
	// Underway are the commands under way, the oldest first.
	Underway []Underway    `json:"underway"`
	Slots    SlotStatus    `json:"slots"`
	Waiting  WaitingStatus `json:"waiting"`
	Recent   []JobRecord   `json:"recent"` // the newest first
}

// Kept is what a manager saves for the time when it no longer runs. It saves it when it ends, and from time to
// time before.
type Kept struct {
	At time.Time `json:"at"`
	// Ended says that it was saved when the manager ended, and Why for what reason. Otherwise the manager
	// continued; if none runs now, it was killed later.
	Ended  bool   `json:"ended"`
	Why    string `json:"why,omitempty"`
	Status Status `json:"status"`
	Stats  Stats  `json:"stats"`
}

// KeptFile returns the path of the file with the Kept of the manager that serves the socket with that path.
func KeptFile(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".kept" }

// NotRunning says that an answer is from the last manager, and that none runs now.
type NotRunning struct {
	Kept  time.Time `json:"kept"`  // when the answer was saved
	Ended bool      `json:"ended"` // the manager saved it at its end; otherwise it was killed later
	Why   string    `json:"why,omitempty"`
}

// Last returns the answers of a manager that no longer runs. NotRunning is set in both.
func (k *Kept) Last() (*Status, *Stats) {
	status, stats := k.Status, k.Stats
	gone := &NotRunning{Kept: k.At, Ended: k.Ended, Why: k.Why}
	status.NotRunning, stats.NotRunning = gone, gone
	return &status, &stats
}

// Configuration is what a manager knows of its settings.
type Configuration struct {
	File    string   `json:"file,omitempty"`    // empty without one
	Error   string   `json:"error,omitempty"`   // why the file's new version is not used; the old settings stay
	Restart []string `json:"restart,omitempty"` // keys whose new values need a restart of the manager
}

// Reloaded is the answer to a reload.
type Reloaded struct {
	Configuration
	Changed []string `json:"changed,omitempty"` // keys whose new values took effect
	// The manager's own host list after the reload, as in Status.
	ListFrom  string `json:"list_from,omitempty"`
	ListError string `json:"list_error,omitempty"`
	ListKept  bool   `json:"list_kept,omitempty"`
}

// StateUnused is the state of a host that no job has asked for yet, and that has not been dialled.
const StateUnused = "unused"

// HostStatus is one host's part of Status.
type HostStatus struct {
	Addr    string `json:"addr"`
	State   string `json:"state"` // unused, connecting, starting, up, draining, down; source: an entry that names hosts
	Error   string `json:"error,omitempty"`
	Links   int    `json:"connections"`
	Credits int    `json:"credits"` // unspent
	Running int    `json:"running"` // this manager's jobs on it
	OK      uint64 `json:"ok"`
	Failed  uint64 `json:"failed"` // attempts that gave no result
	Out     uint64 `json:"bytes_out"`
	In      uint64 `json:"bytes_in"`
	Jobs    int    `json:"jobs"`       // compiles that the host runs at a time
	Tools   int    `json:"toolchains"` // how many it can run
	// Identifying says that the host is still finding out which compilers it has.
	Identifying bool `json:"identifying,omitempty"`
	Tree        bool `json:"tree"`    // the host has private trees, so it takes the sources form
	Drained     bool `json:"drained"` // by hand: it gets no new jobs
	// Sandbox is how well the host confines compiles: off, partial, confined or full, and empty while not known.
	// Measures name the mechanisms that it uses for that.
	Sandbox  string   `json:"sandbox,omitempty"`
	Measures []string `json:"measures,omitempty"`
	Version  string   `json:"version,omitempty"` // of the daemon; empty while not known
	RTTUS    int64    `json:"rtt_us,omitempty"`
	Rate     float64  `json:"rate,omitempty"`  // bytes per second on the way to the host
	Speed    float64  `json:"speed,omitempty"` // relative to a core of speed 1; 0 = not known yet
	Depth    int      `json:"depth"`           // jobs beyond Jobs worth having there or on the way
	Demand   int      `json:"demand"`          // jobs that the host was told this manager has for it
	// HeldFiles is how many of our files the host is believed to hold. HeldBytes is how many bytes of files jobs
	// did not need to send there.
	HeldFiles int    `json:"held_files,omitempty"`
	HeldBytes uint64 `json:"held_bytes,omitempty"`
	// Group is the group of clients with which this one shares the results that the host keeps, or empty.
	Group string `json:"group,omitempty"`
	// Results is how many results of the host this manager knows of. ResultsKnown says that it has read which
	// there are since it connected.
	Results      uint64 `json:"results,omitempty"`
	ResultsKnown bool   `json:"results_known,omitempty"`
	// OnTrial says that the host gets one job at a time until one has succeeded. PauseMS is the time until it is
	// dialled or gets jobs again. DoubtMS is the time until its quarantine ends, and Doubt the reason for that.
	OnTrial bool   `json:"on_trial,omitempty"`
	PauseMS int64  `json:"pause_ms,omitempty"`
	DoubtMS int64  `json:"doubt_ms,omitempty"`
	Doubt   string `json:"doubt,omitempty"`
	// Compilers are the families and versions that the host has. Lacks are those that jobs of this machine need
	// and the host does not have. Foreign says that it has none that any job needed.
	Compilers []string `json:"compilers,omitempty"`
	Lacks     []string `json:"lacks,omitempty"`
	Foreign   bool     `json:"foreign,omitempty"`
	// Outfit says how far the compilers are that the host lacks and is sent, or why it cannot be.
	Outfit []string `json:"outfit,omitempty"`
	// Refused is why the host refused the last job that it was sent, or empty if it did not.
	Refused string    `json:"refused,omitempty"`
	Load    *job.Load `json:"load,omitempty"`
	// LoadFrom is where Load comes from (board, result, heartbeat, welcome), LoadAgeMS
	// its age in milliseconds.
	LoadFrom  string        `json:"load_from,omitempty"`
	LoadAgeMS int64         `json:"load_age_ms,omitempty"`
	Pressure  *job.Pressure `json:"pressure,omitempty"` // as last read from the board
}

// Note returns what the user should know of a host: why it is not up or gets no jobs, or what it cannot do.
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
		return s.outfit(fmt.Sprintf("has none of the compilers used here (%s): it has %s", strings.Join(s.Lacks, ", "), strings.Join(s.Compilers, ", ")))
	case s.Foreign:
		return s.outfit(fmt.Sprintf("has none of the compilers used here (%s)", strings.Join(s.Lacks, ", ")))
	case s.Tools == 0:
		return s.outfit("has no compilers; its log says where it looked")
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
		notes = append(notes, s.outfit("lacks "+strings.Join(s.Lacks, ", ")))
	}
	if !s.Tree {
		notes = append(notes, "shows no private trees")
	}
	return strings.Join(notes, "; ")
}

// outfit adds to a note what is being done about it.
func (s *HostStatus) outfit(note string) string {
	return strings.Join(append([]string{note}, s.Outfit...), "; ")
}

// identifies is the note of a host that has not listed all its compilers yet.
const identifies = "has just started: it is finding out which compilers it has"

// littleMemory is, in bytes, the most free memory that a host may require before it takes a job.
const littleMemory = 128 << 20

// Usable reports whether the host takes jobs, or is coming up as far as is known. A host that is down, going
// down, drained or in quarantine is not usable, nor is one that has no compiler in common with this machine.
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
	Place  string `json:"place"`            // remote, cached or local
	Reason string `json:"reason,omitempty"` // if local; if cached, the tier
	Host   string `json:"host,omitempty"`
	OK     uint64 `json:"ok"`
	Failed uint64 `json:"failed"`
}

// Underway is one command under way.
type Underway struct {
	ID     uint64   `json:"id"`
	Source string   `json:"source"` // as the command names it; without a source, its output or its program
	Phase  string   `json:"phase"`
	Here   bool     `json:"here"`            // this machine is to run it
	Hosts  []string `json:"hosts,omitempty"` // the hosts that have it: two if a second one got it as well
	AgeMS  int64    `json:"age_ms"`
	// PhaseMS is how long it has been in its phase. A second host that gets it begins no new one.
	PhaseMS int64 `json:"phase_ms"`
}

// Phases of a command under way.
const (
	PhaseWaits    = "waits"    // for a host or for its turn on this machine
	PhaseLists    = "lists"    // here: its inputs are listed and collected, or it is preprocessed
	PhaseCompiles = "compiles" // on a host
	PhaseReturns  = "returns"  // the wrapper is taking its result
	PhaseRuns     = "runs"     // here
)

// Place returns where a command is, for display: its hosts, "here", or "-".
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

// SlotNote says that not all places of the hosts can be used at a time because there are fewer slots; "": they can.
func (s *Status) SlotNote() string {
	places := 0
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.Load != nil && h.Usable() {
			places += int(h.Load.Jobs)
		}
	}
	if s.Slots.Max == 0 || places <= s.Slots.Max {
		return ""
	}
	return fmt.Sprintf("at most %d jobs are under way at a time (buffers.slots), and the hosts have %d places", s.Slots.Max, places)
}

// WaitingStatus counts commands that wait.
type WaitingStatus struct {
	Credit     int `json:"credit"`
	Preprocess int `json:"preprocess"`
	Local      int `json:"local"`
}

// JobRecord is the record of one command that has ended.
type JobRecord struct {
	ID       uint64    `json:"id"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended,omitzero"`
	Compiler string    `json:"compiler,omitempty"`
	Source   string    `json:"source,omitempty"`
	Output   string    `json:"output,omitempty"`
	Cwd      string    `json:"cwd,omitempty"`
	Link     string    `json:"link,omitempty"` // output of the link with LTO that it compiled a part of
	Local    bool      `json:"local"`
	Host     string    `json:"host,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Detail   string    `json:"detail,omitempty"`
	Trouble  bool      `json:"trouble,omitempty"`
	Exit     uint8     `json:"exit"`
	Finished bool      `json:"finished"` // the wrapper said that it finished; otherwise it went away
	Attempts uint8     `json:"attempts,omitempty"`
	Twice    bool      `json:"twice,omitempty"` // compiled on a host and then here as well

	PreprocessUS uint32 `json:"preprocess_us,omitempty"`
	CreditUS     uint32 `json:"credit_us,omitempty"`
	WriteUS      uint32 `json:"write_us,omitempty"`
	QueueUS      uint32 `json:"queue_us,omitempty"`
	CompileUS    uint32 `json:"compile_us,omitempty"`
	CPUUS        uint32 `json:"cpu_us,omitempty"`       // CPU time of the compile on the host; of a local command, here
	Memory       uint64 `json:"memory_bytes,omitempty"` // of the compile on the host, at its peak
	ReturnUS     uint32 `json:"return_us,omitempty"`
	TotalUS      uint32 `json:"total_us,omitempty"`
	BytesOut     uint64 `json:"bytes_out,omitempty"`
	BytesIn      uint64 `json:"bytes_in,omitempty"`
	// AnsweredUS is when the answer of a host or of the cache had come, counted from Began.
	AnsweredUS uint32 `json:"answered_us,omitempty"`
	// TurnUS is when a local command began to run, counted from Began.
	TurnUS uint32 `json:"turn_us,omitempty"`
	// HereUS is what the command takes on a core of this machine: the CPU time of a compile, converted if it ran on a
	// host; for others, which all ran here, how long they ran.
	HereUS uint32 `json:"here_us,omitempty"`
	// Carrier is how the source travelled: write, eager or pull.
	Carrier string `json:"carrier,omitempty"`

	// Inputs is how the manager knew what the compile reads: scan, memo, list or text. Doubt is why the compiler
	// here was asked. Files is how many files it reads, as far as known, and SentFiles how many of them its
	// host did not hold.
	Inputs    string `json:"inputs,omitempty"`
	Doubt     string `json:"doubt,omitempty"`
	Files     uint32 `json:"files,omitempty"`
	SentFiles uint32 `json:"sent_files,omitempty"`

	// Cached is the tier of the cache that the result is from, or empty. Host compiled it then, at the time Made
	// for the build host For, and CPUUS and CompileUS are what that took.
	Cached string    `json:"cached,omitempty"`
	Second bool      `json:"second,omitempty"` // it was found by what its compile had read
	Asked  bool      `json:"asked,omitempty"`  // the cache was asked
	Missed string    `json:"missed,omitempty"` // why it has no result, in words for the user, as far as that is known
	Made   time.Time `json:"made,omitzero"`
	For    string    `json:"for,omitempty"`

	// How its host was chosen. Build is the number of its build. Predicted is the CPU time that the compile was
	// expected to take on a host of speed 1, or 0 without a prediction. Considered are the hosts of the last
	// choice, and Rule says in a line for the user what decided it. Hedged is the second host of a late job.
	Build      uint64        `json:"build,omitempty"`
	Predicted  time.Duration `json:"predicted_ns,omitempty"`
	Considered []Considered  `json:"considered,omitempty"`
	Rule       string        `json:"rule,omitempty"`
	Hedged     string        `json:"hedged,omitempty"`
	Expected   time.Duration `json:"expected_ns,omitempty"` // Predicted for the speed of the host that compiled it
}

// HereHost is the Host of a result from the cache that its build host has compiled itself. No host's address is like that.
const HereHost = "localhost"

// Where a command can have ended.
const (
	PlaceRemote = "remote" // on a host
	PlaceCached = "cached" // in the cache of results
	PlaceLocal  = "local"
)

// Place returns where the command has ended.
func (r *JobRecord) Place() string {
	switch {
	case r.Local:
		return PlaceLocal
	case r.Cached != "":
		return PlaceCached
	}
	return PlaceRemote
}

// Considered is one host in the choice for a job: how long until the job was expected to be done there, or why
// it could not go there.
type Considered struct {
	Host   string        `json:"host"`
	Finish time.Duration `json:"finish_ns,omitempty"`
	Why    string        `json:"why,omitempty"`
}

// Drained is the answer to a drain or undrain.
type Drained struct {
	Host    string `json:"host"`
	Drained bool   `json:"drained"`
	Running int    `json:"running"` // jobs of this manager that the host still finishes
	Was     bool   `json:"was"`     // the host was already so before
}

// Places says how many jobs a build may have under way.
type Places struct {
	Hosts int `json:"hosts"` // on hosts that are up and take jobs, including jobs on the way to distant ones
	Guess int `json:"guess"` // on hosts that have not been connected to yet
	Local int `json:"local"` // on this machine, which helps when the hosts are busy
}

// GuessedPlaces is the number of jobs assumed for a host that has not been connected to yet. distcc assumes the
// same.
const GuessedPlaces = 4
