// Package slots is the memory that jobs and their results lie in: slots for sources, sinks for
// results, what is counted beyond these as large, and scratch memory to pack and to assemble in.
//
//	scratch    memory of powers of two, of bounded size together
//	memory     the pools, the bound of all that is large, registrations
//	hold       one slot or sink in the hands of several users
//
// It knows neither jobs nor wrappers. All of it is safe for concurrent use.
package slots

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Sizes are in bytes.
type Sizes struct {
	Slot     int64 // of a source and its arguments that are written to a host
	Sink     int64 // of a result that a host writes
	Source   int64 // of a source and its arguments; beyond Slot, hosts fetch them
	Result   int64 // of a result; beyond Sink it is fetched
	Large    int64 // that what is fetched, and leased for it, may take together
	Prefault int64 // that each slot and sink keeps allocated
}

// Options of a Memory.
type Options struct {
	Sizes
	Device iwarp.Device
	Log    *slog.Logger
	Slots  int // leases at a time
	Spare  int // sinks beyond those that leases and their second hosts may have
}

// Memory is all of a manager's.
type Memory struct {
	// set once in Open
	Sizes
	Scratch *Scratch // to pack and unpack in
	Texts   *Scratch // for jobs whose inputs are known

	log            *slog.Logger
	pd             iwarp.PD
	sources, sinks *shm.Pool

	large     *semaphore.Weighted // bytes, up to Sizes.Large
	largeUsed atomic.Int64        // of these
}

// Open makes the memory that o asks for.
func Open(o Options) (x *Memory, err error) {
	x = &Memory{Sizes: o.Sizes, log: o.Log, large: semaphore.NewWeighted(o.Large),
		Scratch: NewScratch(max(2*o.Slot, 1<<maxScratchKept)), Texts: NewScratch(max(2*o.Slot, 1<<maxScratchKept))}
	if x.sources, err = shm.NewPool(shm.Options{Name: "rdistcc-source", Size: o.Source, Map: o.Slot, Prefault: o.Prefault, Max: o.Slots}); err != nil {
		return nil, err
	}
	// Some more for second hosts of jobs, or a full house would have none.
	if x.sinks, err = shm.NewPool(shm.Options{Name: "rdistcc-sink", Size: o.Result, Map: o.Sink, Prefault: o.Prefault, Max: o.Slots + max(o.Slots/8, 2) + o.Spare}); err != nil {
		return nil, err
	}
	if x.pd, err = o.Device.AllocPD(); err != nil {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	return x, nil
}

// Close ends all of it. By now nothing is registered and no slot is in use.
func (x *Memory) Close() error {
	x.sources.Close()
	x.sinks.Close()
	return x.pd.Dealloc()
}

// PD returns the protection domain that the memory is registered in.
func (x *Memory) PD() iwarp.PD { return x.pd }

// Register makes mem known to the device, for one connection or, where qp is nil, for this
// side alone.
func (x *Memory) Register(mem []byte, a iwarp.Access, qp iwarp.QP) (iwarp.MR, error) {
	return x.pd.RegMR(mem, a, &iwarp.MROptions{QP: qp})
}

// Dereg ends a registration.
func (x *Memory) Dereg(mr iwarp.MR) {
	if err := mr.Dereg(); err != nil {
		x.log.Warn("end a memory registration", "err", err)
	}
}

// Source takes a slot for a user's source. Where it has to wait for one it calls waits first.
func (x *Memory) Source(ctx context.Context, uid uint32, waits func()) (*Hold, error) {
	return x.get(ctx, x.sources, uid, waits)
}

// Sink takes memory for a result. Where it has to wait for it, it calls waits first.
func (x *Memory) Sink(ctx context.Context, uid uint32, waits func()) (*Hold, error) {
	return x.get(ctx, x.sinks, uid, waits)
}

func (x *Memory) get(ctx context.Context, p *shm.Pool, uid uint32, waits func()) (*Hold, error) {
	b, err := p.TryGet(uid)
	if b == nil && err == nil {
		waits()
		b, err = p.Get(ctx, uid)
	}
	if err != nil {
		return nil, err
	}
	return x.hold(b), nil
}

// TrySink takes memory for a result if there is some now; nil without an error: there is none.
func (x *Memory) TrySink(uid uint32) (*Hold, error) {
	b, err := x.sinks.TryGet(uid)
	if b == nil {
		return nil, err
	}
	return x.hold(b), nil
}

// Stats returns what there is of slots and of sinks.
func (x *Memory) Stats() (sources, sinks shm.Stats) { return x.sources.Stats(), x.sinks.Stats() }

// Trim frees slots and sinks that are not in use, but for n of each.
func (x *Memory) Trim(n int) {
	x.sources.Trim(n)
	x.sinks.Trim(n)
}

// LargeUsed returns how many bytes are counted as large.
func (x *Memory) LargeUsed() int64 { return x.largeUsed.Load() }

// Counts returns how many bytes of a source of n bytes count as large: what slots do not keep
// memory for, and its copy if it is copied. ok is false where the large ones together may
// not take so many.
func (x *Memory) Counts(n uint64, copied bool) (need uint64, ok bool) {
	if n > uint64(x.Prefault) {
		need = n
	}
	if copied {
		need += n
	}
	switch {
	case need <= uint64(x.Large):
		return need, true
	case n <= uint64(x.Slot):
		return 0, true // their number bounds them
	}
	return need, false
}
