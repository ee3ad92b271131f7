package attempt

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/history"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/metrics"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Base is what all attempts of one manager have in common. It is not changed.
type Base struct {
	Farm    *farm.Farm
	Memory  *slots.Memory
	Metrics *metrics.Metrics
	Log     *slog.Logger
	NextID  func() uint64 // of a job on a link; no two are equal
	// Learn hears what a compile took that went well, on a host that is so fast beside the average.
	Learn func(t *Task, r *job.Result, speed float64)
}

// Task is a job as its wrapper submitted it, or as the manager has made it: all that attempts at
// it need. They may go on when the wrapper has its answer, so nothing here is the wrapper's.
// It does not change once it is made, but for whole.
type Task struct {
	*Base
	ID        uint64 // the job's
	UID       uint32 // whose it is
	Toolchain unit.ToolchainID
	Name      string // of the source, as the command has it
	Limit     time.Duration
	Known     *known.Job  // its inputs are known: each attempt makes the text that its host needs
	Source    *slots.Hold // nil: Known
	Text      []byte      // encoded body and what follows it; nil: Known
	Body      *job.Body
	BodyLen   uint32
	TextOff   uint32
	Key       history.Key
	Object    func() (outputs.Object, bool)   // what the compiler here makes; false: not known
	Cost      scheduler.Cost                  // what it is expected to take
	Compress  map[string]hostlist.Compression // by address, where the list asks for one

	whole atomic.Bool // of Known: a host is to get all that it reads, whatever it holds
}

// Total returns the bytes of body and text, where a host has nothing of it.
func (t *Task) Total() uint64 {
	if t.Known != nil {
		return t.Known.Set.Len
	}
	return uint64(len(t.Text))
}

// SendAll has hosts get all that the job reads from now on, whatever they hold.
func (t *Task) SendAll() { t.whole.Store(true) }

// maxWeighed is how many hosts are asked content by content what they hold of a job. In a
// longer list a host counts as one that holds all of it or nothing.
const maxWeighed = 16

// Held returns how many bytes of t each of the hosts is believed to hold; nil: nothing, or
// there is no choice.
func (t *Task) Held(hosts []scheduler.Host) map[string]uint64 {
	if t.Known == nil || len(hosts) < 2 {
		return nil
	}
	there := t.Farm.Ledgers(hosts)
	held := make(map[string]uint64, len(there))
	for addr, h := range there {
		if n := h.Bytes(t.Known.Set, len(hosts) <= maxWeighed); n > 0 {
			held[addr] = n
		}
	}
	return held
}
