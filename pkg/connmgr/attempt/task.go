package attempt

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/history"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/metrics"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Base is what all attempts of one manager have in common. It does not change.
type Base struct {
	Farm    *farm.Farm
	Memory  *slots.Memory
	Metrics *metrics.Metrics
	Log     *slog.Logger
	NextID  func() uint64 // returns a new, unique ID for a job on a link
	// Carriers is how sources travel.
	Carriers Choice
	// Learn is called with the result of each successful compile, and the speed of its host relative to the
	// average.
	Learn func(t *Task, r *job.Result, speed float64)
}

// Task is a job as its wrapper submitted it, or as the manager has made it, with everything that attempts
// need. Attempts may go on after the wrapper has its answer, so nothing here belongs to the wrapper. Except
// for whole, a Task does not change.
type Task struct {
	*Base
	ID        uint64 // the job's
	UID       uint32 // the user that it belongs to
	Toolchain unit.ToolchainID
	Name      string // name of the source, as in the command
	Limit     time.Duration
	Known     *known.Job  // set if its inputs are known; then each attempt makes the text that its host needs
	Source    *slots.Hold // that Text is in; nil if the manager has made the job
	Text      []byte      // encoded body and what follows it; nil if the manager has made the job
	Body      *job.Body
	Modules   modules.Rules // names that its rules for make may have
	BodyLen   uint32
	TextOff   uint32
	Key       history.Key
	Result    resultcache.Key                 // the host may keep the result by that name; zero: it may not
	Moved     resultcache.Key                 // its name if it does not depend on Below
	Below     string                          // a directory; empty: there is no Moved
	Join      bool                            // an equal job that is under way on the host may answer it
	Object    func() (outputs.Object, bool)   // the kind of object that the local compiler makes; false: not known
	Cost      scheduler.Cost                  // what it is expected to take
	Compress  map[string]hostlist.Compression // by address, for hosts for which the list sets one

	whole atomic.Bool // send everything, whatever hosts hold; only if Known is set
}

// Hold keeps the memory that Text is in until release is called; there is none if the manager has made the job.
func (t *Task) Hold() (release func()) {
	if t.Source == nil {
		return func() {}
	}
	return t.Source.Share().Drop
}

// Total returns the size of body and text, in bytes, for a host that holds none of the contents.
func (t *Task) Total() uint64 {
	if t.Known != nil {
		return t.Known.Set.Len
	}
	return uint64(len(t.Text))
}

// SendAll makes later attempts send everything that the job reads, whatever hosts hold.
func (t *Task) SendAll() { t.whole.Store(true) }

// maxWeighed is the length of a host list up to which the contents that each host holds are counted one by
// one. In a longer list, a host counts as one that holds everything or nothing.
const maxWeighed = 16

// Held returns how many bytes of t each of the hosts is believed to hold, by address. It returns nil if there
// are none, or no choice of hosts.
func (t *Task) Held(hosts []scheduler.Host) map[string]uint64 {
	if t.Known == nil || len(hosts) < 2 {
		return nil
	}
	there, set := t.Farm.Ledgers(hosts), t.Known.Sets()[0]
	held := make(map[string]uint64, len(there))
	for addr, h := range there {
		if n := h.Bytes(set, len(hosts) <= maxWeighed); n > 0 {
			held[addr] = n
		}
	}
	return held
}
