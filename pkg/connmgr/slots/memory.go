// Package slots manages the memory of jobs and their results: slots for sources, sinks for results, the
// account of large ones that need more, and scratch memory for packing and assembling.
//
//	scratch    buffers in powers of two, with a bounded total size
//	memory     the pools, the bound on large memory, registrations
//	hold       one slot or sink with several users
//
// The package knows neither jobs nor wrappers. All of it is safe for concurrent use.
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

// Sizes are bounds, all in bytes.
type Sizes struct {
	Slot     int64 // of a source and its arguments that are written to the host
	Sink     int64 // of a result that the host writes
	Source   int64 // of any source and its arguments; hosts fetch those larger than Slot
	Result   int64 // of any result; those larger than Sink are fetched
	Large    int64 // of all memory together that is fetched or leased to be fetched
	Prefault int64 // of each slot and sink, kept allocated
	Message  int64 // of a message that carries a source, as a rule; 0: there are none
}

// Options are the options of Open.
type Options struct {
	Sizes
	Device iwarp.Device
	Log    *slog.Logger
	Slots  int // leases at a time
	Spare  int // sinks in addition to those for leases and their second hosts
}

// Memory is the memory of one manager for sources and results.
type Memory struct {
	// set once in Open
	Sizes
	Scratch *Scratch // to pack and unpack in
	Texts   *Scratch // for jobs whose inputs are known

	log            *slog.Logger
	pd             iwarp.PD
	messages       messages
	sources, sinks *shm.Pool

	large     *semaphore.Weighted // bytes, up to Sizes.Large
	largeUsed atomic.Int64        // bytes of large in use
}

// Open returns a Memory with the options o.
func Open(o Options) (x *Memory, err error) {
	x = &Memory{Sizes: o.Sizes, log: o.Log, large: semaphore.NewWeighted(o.Large),
		Scratch: NewScratch(max(2*o.Slot, 1<<maxScratchKept)), Texts: NewScratch(max(2*o.Slot, 2*o.Source, 1<<maxScratchKept))}
	if x.sources, err = shm.NewPool(shm.Options{Name: "rdistcc-source", Size: o.Source, Map: o.Slot, Prefault: o.Prefault, Max: o.Slots}); err != nil {
		return nil, err
	}
	// Some extra sinks for second hosts, which would get none if all slots are leased.
	if x.sinks, err = shm.NewPool(shm.Options{Name: "rdistcc-sink", Size: o.Result, Map: o.Sink, Prefault: o.Prefault, Max: o.Slots + max(o.Slots/8, 2) + o.Spare}); err != nil {
		return nil, err
	}
	if x.pd, err = o.Device.AllocPD(); err != nil {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	if err = x.messages.open(x, int(o.Message)); err != nil {
		return nil, err
	}
	return x, nil
}

// Close frees the memory. Nothing may be registered and no slot or sink in use by then.
func (x *Memory) Close() error {
	x.messages.close(x)
	x.sources.Close()
	x.sinks.Close()
	return x.pd.Dealloc()
}

// PD returns the protection domain that the memory is registered in.
func (x *Memory) PD() iwarp.PD { return x.pd }

// Register registers mem with the device for the connection qp, or for use by this side only if qp is nil.
func (x *Memory) Register(mem []byte, a iwarp.Access, qp iwarp.QP) (iwarp.MR, error) {
	return x.pd.RegMR(mem, a, &iwarp.MROptions{QP: qp})
}

// Dereg ends a registration. It logs an error.
func (x *Memory) Dereg(mr iwarp.MR) {
	if err := mr.Dereg(); err != nil {
		x.log.Warn("end a memory registration", "err", err)
	}
}

// Source takes a slot for a source of the user uid. It calls waits before it has to wait for one. It returns
// an error if ctx ends first.
func (x *Memory) Source(ctx context.Context, uid uint32, waits func()) (*Hold, error) {
	return x.get(ctx, x.sources, uid, waits)
}

// Sink takes a sink for a result, like Source.
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

// TrySink takes a sink for a result without waiting. It returns nil and no error if none is free.
func (x *Memory) TrySink(uid uint32) (*Hold, error) {
	b, err := x.sinks.TryGet(uid)
	if b == nil {
		return nil, err
	}
	return x.hold(b), nil
}

// Stats returns the statistics of the pools of slots and of sinks.
func (x *Memory) Stats() (sources, sinks shm.Stats) { return x.sources.Stats(), x.sinks.Stats() }

// Trim frees slots and sinks that are not in use, except n of each.
func (x *Memory) Trim(n int) {
	x.sources.Trim(n)
	x.sinks.Trim(n)
}

// LargeUsed returns how many bytes are counted as large.
func (x *Memory) LargeUsed() int64 { return x.largeUsed.Load() }

// Counts returns how many bytes a source of n bytes counts as large: n if slots do not keep that much
// allocated, and n more if it is copied. ok is false if that exceeds the bound on all large memory; sources
// that fit into a slot then count nothing instead.
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
		return 0, true // they are bounded by the number of slots
	}
	return need, false
}
