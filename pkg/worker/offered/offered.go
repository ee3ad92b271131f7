// Package offered maintains the list of compilers that a host offers. It finds and identifies them, reports
// changes, and withdraws a compiler that cannot be started.
package offered

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Options say where to look for compilers, and what to do when the list changes.
type Options struct {
	Log    *slog.Logger
	File   string        // remembers the compilers across restarts; empty: no file
	Answer time.Duration // how long a compiler may take for one question about itself; 0 = 20 s
	Dirs   func() []string
	// Show makes trees show the compilers of a list, before a job can name one.
	Show func(list []toolchain.Toolchain)
	// Changed is called when the list has changed (other), or when all compilers have been identified
	// (ended). Both are false if identifying has failed. No lock of the package is held.
	Changed func(other, ended bool)
	Sent    bool   // clients may send compilers that the host lacks
	Rescue  func() // is deferred, and recovers from a panic
}

// Compilers is the list of compilers that a host offers. Its methods may be called at any time.
type Compilers struct {
	o      Options
	tools  toolchain.Cache
	listed atomic.Pointer[[]toolchain.Toolchain] // written under mu; the list itself never changes
	began  time.Time

	scan    sync.Mutex        // held by find; locked before mu
	skipped map[string]string // guarded by scan: compilers that are not offered, and why
	lacking bool              // guarded by scan: no compiler was found, and a warning was logged

	mu          sync.Mutex
	next        time.Time                      // when to look again
	identifying bool                           // some compilers have not been asked since the start
	benched     map[unit.ToolchainID]time.Time // until when compilers that could not be started are not offered
}

// New returns an empty list. Start begins to fill it.
func New(o Options) *Compilers {
	k := &Compilers{o: o, tools: toolchain.Cache{File: o.File, Answer: o.Answer}, identifying: true, benched: make(map[unit.ToolchainID]time.Time), began: time.Now(), next: time.Now().Add(rescanTime)}
	k.listed.Store(new([]toolchain.Toolchain))
	return k
}

// Close releases what is kept about compilers. No other method may be running.
func (k *Compilers) Close() { k.tools.Close() }

// List returns the compilers that are offered.
func (k *Compilers) List() []toolchain.Toolchain { return *k.listed.Load() }

// Now returns the compilers that are offered, and whether more may follow because some have not been asked
// since the start.
func (k *Compilers) Now() (list []toolchain.Toolchain, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.List(), k.identifying
}

// Identifying reports whether compilers are still being identified since the start.
func (k *Compilers) Identifying() bool {
	_, more := k.Now()
	return more
}

// Due reports whether it is time to look for compilers again, and if so, sets the next time.
func (k *Compilers) Due(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !now.After(k.next) {
		return false
	}
	k.next = now.Add(rescanTime)
	return true
}

// Ask runs a compiler with words and returns what it prints about itself.
func (k *Compilers) Ask(ctx context.Context, tc *toolchain.Toolchain, words ...string) (string, error) {
	return k.tools.Ask(ctx, tc, words...)
}

// announceTime is the least time between two lists that clients get while compilers are being identified.
// Each list costs every runner a new tree.
const announceTime = 200 * time.Millisecond

// Rescan looks for compilers again, and returns when all have been asked. New ones are offered as they become
// known. It runs at the start, every rescanTime, and soon after a job has found its compiler changed.
func (k *Compilers) Rescan(ctx context.Context) error { return k.find(ctx, func() {}) }

// find does Rescan. It calls known once the compilers are offered that are known from before and need not be
// run.
func (k *Compilers) find(ctx context.Context, known func()) error {
	k.scan.Lock()
	defer k.scan.Unlock()
	a := announcer{k: k}
	defer a.end()
	var once sync.Once
	d, err := k.tools.Discover(ctx, k.o.Dirs(), func(d toolchain.Discovery) {
		k.skip(d.Skipped)
		if d.Left == 0 {
			return // the complete list is offered below
		}
		a.tell(d.List)
		once.Do(known)
	})
	if err != nil {
		return err
	}
	a.end()
	k.tools.Flush()
	for path := range k.skipped {
		if d.Skipped[path] == nil {
			delete(k.skipped, path) // it works now, or is gone
		}
	}
	k.offer(d.List, false)
	once.Do(known)
	if len(d.List) == 0 && !k.lacking {
		what := "no compiler found: every job is refused; install one, or name the directories with compilers in toolchains.dirs"
		if k.o.Sent {
			what = "no compiler found: this host compiles with those that clients send"
		}
		k.o.Log.Warn(what, "dirs", k.o.Dirs())
	}
	k.lacking = len(d.List) == 0
	return nil
}

// announcer offers compilers while others are still being identified. A list waits at most announceTime,
// because the next compiler to be asked may hang.
type announcer struct {
	k *Compilers

	mu    sync.Mutex // locked before Compilers.mu
	last  time.Time  // when a list was last offered
	list  []toolchain.Toolchain
	timer *time.Timer // nil: list has been offered
	ended bool
}

// tell offers a list, now or when announceTime has passed since the last one.
func (a *announcer) tell(list []toolchain.Toolchain) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = list
	if wait := announceTime - time.Since(a.last); a.timer == nil && wait > 0 {
		a.timer = time.AfterFunc(wait, a.late)
	} else if a.timer == nil {
		a.offerLocked()
	}
}

func (a *announcer) late() {
	defer a.k.o.Rescue()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer = nil; !a.ended {
		a.offerLocked()
	}
}

func (a *announcer) offerLocked() {
	a.last = time.Now()
	a.k.offer(a.list, true)
}

// end makes the announcer offer nothing more.
func (a *announcer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.timer != nil {
		a.timer.Stop()
	}
}

// skip logs the compilers that cannot be offered, each once per reason, and has new ones looked at again after
// retryTime. The caller holds scan.
func (k *Compilers) skip(list map[string]error) {
	news := false
	for path, err := range list {
		if k.skipped[path] == err.Error() {
			continue
		}
		if k.skipped == nil {
			k.skipped = make(map[string]string)
		}
		k.skipped[path], news = err.Error(), true
		k.o.Log.Warn("compiler not offered", "path", path, "err", err)
	}
	if !news {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if again := time.Now().Add(retryTime); k.next.After(again) {
		k.next = again
	}
}

// offer makes found the toolchains that clients are told of. If more is set, some have not been asked yet,
// and those of the previous list stay. Only find calls it, one call at a time.
func (k *Compilers) offer(found []toolchain.Toolchain, more bool) {
	k.mu.Lock()
	before, now := k.List(), time.Now()
	benched := func(t toolchain.Toolchain) bool { return now.Before(k.benched[t.ID]) }
	list := slices.DeleteFunc(slices.Clone(found), benched)
	k.mu.Unlock()
	if more {
		for i := range list { // keep the path that was offered before: another one would make all trees new
			if j := slices.IndexFunc(before, func(t toolchain.Toolchain) bool { return t.ID == list[i].ID }); j >= 0 {
				list[i] = before[j]
			}
		}
		for i := range before {
			if !slices.ContainsFunc(list, func(t toolchain.Toolchain) bool { return t.ID == before[i].ID }) {
				list = append(list, before[i])
			}
		}
	}
	list = list[:min(len(list), 1<<16-1)] // the number has 16 bits on the wire
	other := !slices.EqualFunc(before, list, toolchain.Toolchain.Equal)
	if other {
		k.o.Show(list)
	}
	k.mu.Lock()
	list = slices.DeleteFunc(list, benched) // some may have been withdrawn meanwhile
	k.listed.Store(&list)
	ended := !more && k.identifying
	k.identifying = k.identifying && more
	k.mu.Unlock()
	for i := range list {
		t := &list[i]
		if !slices.ContainsFunc(before, t.Equal) {
			k.o.Log.Info("toolchain", "id", fmt.Sprintf("%x", t.ID), "path", t.Exec, "family", t.Family, "version", t.Version, "target", t.Target)
		}
	}
	if ended {
		k.o.Log.Info("compilers are known", "toolchains", len(list), "after", time.Since(k.began).Round(time.Millisecond))
	}
	if other || ended {
		k.o.Changed(other, ended)
	}
}

// knownTime is how long Start waits for the compilers that are known from before. Their files may be on a
// network file system that does not answer.
const knownTime = 100 * time.Millisecond

// Start looks for compilers in a goroutine of serving. It returns once those are offered that are known from
// before, but after knownTime at the latest. The search ends with ctx.
func (k *Compilers) Start(ctx context.Context, serving *sync.WaitGroup) {
	known := make(chan struct{})
	serving.Go(func() {
		defer k.o.Rescue()
		var once sync.Once
		ready := func() { once.Do(func() { close(known) }) }
		defer ready()
		defer k.identified()
		if err := k.find(ctx, ready); err != nil && ctx.Err() == nil {
			k.o.Log.Error("look for compilers", "err", err)
		}
	})
	t := time.NewTimer(knownTime)
	defer t.Stop()
	select {
	case <-known:
	case <-t.C:
	}
}

// identified ends identifying if that has failed, so that clients do not wait for more.
func (k *Compilers) identified() {
	k.mu.Lock()
	failed := k.identifying
	k.identifying = false
	k.mu.Unlock()
	if failed {
		k.o.Changed(false, false)
	}
}

// benchTime is how long a toolchain that cannot be started is not offered.
const benchTime = 30 * time.Second

// Withdraw takes a toolchain off the list. A scan after benchTime may bring it back. The caller tells the
// clients.
func (k *Compilers) Withdraw(id unit.ToolchainID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	until := time.Now().Add(benchTime)
	k.benched[id] = until
	if k.next.After(until) {
		k.next = until
	}
	list := slices.DeleteFunc(slices.Clone(k.List()), func(t toolchain.Toolchain) bool { return t.ID == id })
	k.listed.Store(&list)
	k.o.Log.Warn("toolchain withdrawn: it cannot be started", "id", fmt.Sprintf("%x", id))
}

// rescanSoon makes the next tick look for compilers.
func (k *Compilers) rescanSoon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = time.Time{}
}

// Names returns the common names of the compilers of a list, sorted, each family and version once.
func Names(list []toolchain.Toolchain) (out []string) {
	for i := range list {
		if name := job.Clip(list[i].Name(), job.MaxVersion); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), job.MaxNames)]
}

// rescanTime is how often to look for compilers. If nothing has changed, that costs reading the directories
// and some stats.
const rescanTime = time.Minute

// retryTime is how soon to ask a compiler again that gave no sensible answer the first time. On a machine
// that has just started, it may only be slow.
const retryTime = 5 * time.Second

// Find returns the compiler with that ID, or a refusal.
func (k *Compilers) Find(id unit.ToolchainID) (*toolchain.Toolchain, error) {
	list, more := k.Now()
	for i := range list {
		if list[i].ID == id {
			return &list[i], nil
		}
	}
	if more {
		return nil, job.Refuse(job.CauseToolchain, "the host has just started: it has not found this compiler yet")
	}
	return nil, job.Refuse(job.CauseToolchain, "no such compiler on the host")
}

// Verify refuses a toolchain whose files have changed since they gave it its ID. It reads files again that
// were touched, which takes a second, or several on a busy machine. Therefore runners call it, not the
// goroutine of a connection.
func (k *Compilers) Verify(ctx context.Context, t *toolchain.Toolchain) error {
	if t.Root != "" { // it came by content, and nobody changes it
		return nil
	}
	now, err := k.tools.IdentifyIn(ctx, t.Exec, toolchain.Env{Plugins: t.Plugins})
	if err != nil || now.ID != t.ID {
		k.rescanSoon()
		return job.Refuse(job.CauseToolchain, "%s has changed on the host", t.Exec)
	}
	return nil
}
