package connmgr

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/metrics"
	"github.com/rdistcc/rdistcc/pkg/connmgr/outfit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/connmgr/underway"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// New makes a Manager. It does not own the device or the registry. Close ends it.
func New(o Options) (*Manager, error) {
	o.defaults()
	if o.Device == nil {
		return nil, errors.New("connection manager: no device")
	}
	live := o.live()
	live.defaults(o.Cores)
	m := &Manager{
		o:        o,
		uid:      uint32(os.Geteuid()),
		started:  time.Now(),
		service:  service{stopping: make(chan struct{}), idleChanged: make(chan struct{}, 1)},
		places:   semaphore.NewWeighted(int64(o.MaxWrappers)),
		values:   semaphore.NewWeighted(maxValues),
		underway: underway.New(),
		lists:    lists.New(lists.Options{Own: o.Hosts, Find: o.Find, AnyUser: o.AnyUser}),
		known:    known.New(o.Source, o.Inputs, o.Log),
		past:     openPast(o.History, o.Log),
		held:     newHeld(o.Holdings),
		costs:    openCosts(o.Costs, o.Log),
	}
	m.now.Store(&live)
	m.known.Keep(o.Headers)
	m.known.KeepWatched(o.Watched, o.Version)
	carriers, err := o.carriers()
	if err != nil {
		return nil, fmt.Errorf("connection manager: %w", err)
	}
	if m.memory, err = slots.Open(o.memory()); err != nil {
		return nil, err
	}
	guard := &machine.Guard{Read: o.Memory}
	m.turns.cpp.Room = func() bool { return guard.Admits(time.Now(), machine.PreprocessMemory) }
	m.turns.local.Room = func() bool { return guard.Admits(time.Now(), machine.CompileMemory) }
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.metrics = metrics.New(metrics.Source{Status: m.Status, Demand: m.Demand, Large: m.memory.LargeUsed,
		Files: m.known.Files, States: farm.States(), Doubts: known.Words(), Carriers: job.CarrierNames(), Tiers: o.tiers(), CacheOutcomes: results.Outcomes(), WaitEnds: shelved.Ends()})
	if len(o.Results) > 0 {
		m.results = results.New(results.Options{Tiers: o.Results, Log: o.Log, Count: m.metrics.Cached, NoBackFill: o.NoBackFill, Signing: o.Signing, Ahead: o.Ahead})
	}
	m.compilers = compilers.New(m.ctx, o.Object)
	m.base.Carriers = carriers
	m.farm = farm.New(m.ctx, m.farmOptions(), live.pace())
	if o.shelves() {
		m.copies = shelved.NewCopies(m.farm, o.Copies, m.metrics.Copied)
		m.spread = shelved.NewCopies(m.farm, max(o.Copies, 1)+1, m.metrics.Copied) // no host has made a value
	}
	m.base = attempt.Base{Farm: m.farm, Memory: m.memory, Metrics: m.metrics, Log: o.Log,
		NextID: func() uint64 { return m.ids.Add(1) }, Learn: m.learn, Carriers: carriers}
	if o.SendToolchains != nil {
		m.outfit = outfit.New(outfit.Options{Farm: m.farm, Dial: o.SendToolchains, Log: o.Log, Sent: m.metrics.ToolchainSent})
	}
	m.metrics.Register(o.Registry) // last: the registry may collect at once
	for _, h := range m.lists.Own().Sched {
		m.metrics.Host(h.Addr)
	}
	return m, nil
}

// farmOptions returns the options of the farm.
func (m *Manager) farmOptions() farm.Options {
	o := &m.o
	return farm.Options{
		Results: o.shelves(), Equips: o.SendToolchains != nil,
		Bare:   m.base.Carriers.Carrier == job.Pull && !m.base.Carriers.Auto,
		Device: o.Device, Wait: o.Wait, PD: m.memory.PD(), Log: o.Log, Name: o.Name, Version: o.Version, Key: o.Key, Resolver: o.Resolver,
		Drained: o.readDrained(), SaveDrained: o.saveDrained,
		Held: m.held.of,
		Here: func() scheduler.Load {
			cpp, _ := m.turns.cpp.Load()
			local, queued := m.turns.local.Load()
			return scheduler.Load{Running: cpp + local, Queued: queued, Average: o.LoadAverage()}
		},
		Moved:       m.metrics.Moved,
		Board:       m.metrics.Board,
		DialTimeout: o.DialTimeout, Heartbeat: o.Heartbeat, HeartbeatDead: o.HeartbeatDead, CancelTimeout: o.CancelTimeout,
		DemandPause: o.DemandPause, Dials: o.Dials, LinksMin: o.LinksMin, LinksMax: o.LinksMax, LinksIdle: o.LinksIdle,
	}
}

// Drain waits until no wrapper is being served, or ctx ends.
func (m *Manager) Drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		m.clients.Wait() // ends by itself, or with Close
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once: wrappers that are still being served find their connection closed and
// compile by themselves. It returns when all goroutines have ended and the device's objects are freed.
func (m *Manager) Close() error {
	m.Stop()
	m.keepLast()
	m.cancel(errShutdown)
	m.underway.HangUp()
	m.clients.Wait()
	m.costs.close()
	m.outfit.Close()
	m.farm.Close()
	m.saveHistory()
	m.saveHeaders()
	m.metrics.Unregister(m.o.Registry)
	var err error
	if m.results != nil {
		err = m.results.Close()
	}
	return errors.Join(err, m.memory.Close())
}

// Apply puts l into force for new commands. Commands under way go on as they began.
func (m *Manager) Apply(l Live) {
	l.defaults(m.o.Cores)
	m.now.Store(&l)
	m.farm.Apply(l.pace())
	select {
	case m.service.idleChanged <- struct{}{}:
	default: // watch has not handled the previous change yet
	}
}
