package connmgr

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// memory is what jobs and their results lie in. All of it is set once in New and safe for
// concurrent use.
type memory struct {
	pd        iwarp.PD
	sources   *shm.Pool
	sinks     *shm.Pool
	large     *semaphore.Weighted // bytes: see takeLarge
	largeUsed atomic.Int64        // bytes taken of large
	scratch   *scratch            // to pack and unpack in
	texts     *scratch            // for jobs whose inputs are known
}

// open makes the memory that o asks for.
func (x *memory) open(o *Options) (err error) {
	x.large = semaphore.NewWeighted(o.Large)
	x.scratch = newScratch(max(2*o.SlotSize, 1<<maxScratchKept))
	x.texts = newScratch(max(2*o.SlotSize, 1<<maxScratchKept))
	if x.sources, err = shm.NewPool(shm.Options{Name: "rdistcc-source", Size: o.Source, Map: o.SlotSize, Prefault: o.Prefault, Max: o.Slots}); err != nil {
		return err
	}
	// Some more for second hosts of jobs, or a full house would have none.
	if x.sinks, err = shm.NewPool(shm.Options{Name: "rdistcc-sink", Size: o.Result, Map: o.SinkSize, Prefault: o.Prefault, Max: o.Slots + max(o.Slots/8, 2) + maxAudits}); err != nil {
		return err
	}
	if x.pd, err = o.Device.AllocPD(); err != nil {
		return fmt.Errorf("connection manager: %w", err)
	}
	return nil
}

// close ends all of it. By now nothing is registered and no slot is in use.
func (x *memory) close() error {
	x.sources.Close()
	x.sinks.Close()
	return x.pd.Dealloc()
}

// register makes mem known to the device, for one connection or, where qp is nil, for this
// side alone.
func (x *memory) register(mem []byte, a iwarp.Access, qp iwarp.QP) (iwarp.MR, error) {
	return x.pd.RegMR(mem, a, &iwarp.MROptions{QP: qp})
}

// dereg ends a registration.
func (m *Manager) dereg(mr iwarp.MR) {
	if err := mr.Dereg(); err != nil {
		m.o.Log.Warn("end a memory registration", "err", err)
	}
}
