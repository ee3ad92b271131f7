package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of a strike: how long it waits for something to hit, and for a daemon that was asked to end.
const (
	aim       = 2 * time.Second
	armedFor  = 8 * time.Second
	drainTime = 30 * time.Second
)

// struck is the outcome of a strike.
type struck struct {
	strike
	from, to time.Time
	hit      bool   // it hit a running job
	wrong    string // it failed, or what it hit did not recover

	later func() bool // waits for, and reports, a hit after everything is over; nil: hit is final
}

// nemesis carries out the strikes of a plan.
type nemesis struct {
	s     *site
	d     *driver
	ctx   context.Context
	lasts chan struct{} // one for each host that may be in trouble at a time
	one   sync.Mutex    // strikes on the manager
	here  sync.Mutex    // strikes on the disk here
	kept  []sync.Mutex  // strikes on a host's store, while the host itself may be struck too
	run   sync.WaitGroup

	spoils, met atomic.Int64 // spoilt files of stores, and those that a daemon has noticed

	mu   sync.Mutex
	done []struck
}

// newNemesis lets half of the hosts be in trouble at a time: with more, work here would be as it should.
func newNemesis(ctx context.Context, s *site, d *driver) *nemesis {
	return &nemesis{s: s, d: d, ctx: ctx, lasts: make(chan struct{}, max(len(s.hosts)/2, 1)), kept: make([]sync.Mutex, len(s.hosts))}
}

// begin starts a strike once its place is free of others.
func (n *nemesis) begin(st strike) {
	lock := new(sync.Mutex)
	switch kinds[st.kind].at {
	case atHost:
		n.lasts <- struct{}{}
		lock = &n.s.hosts[st.host].turn
	case atManager:
		lock = &n.one
	case atHere:
		lock = &n.here
	case atWrapper, atStore:
	}
	lock.Lock()
	n.run.Go(func() {
		r := struck{strike: st, from: time.Now()}
		if err := n.strike(&r); err != nil {
			r.wrong = err.Error()
		}
		r.to = time.Now()
		lock.Unlock()
		if kinds[st.kind].at == atHost {
			<-n.lasts
		}
		if r.later != nil && r.wrong == "" {
			r.hit = r.later()
		}
		n.mu.Lock()
		n.done = append(n.done, r)
		n.mu.Unlock()
	})
}

// strike carries out the strike and undoes it.
func (n *nemesis) strike(r *struck) error {
	h := n.s.hosts[r.host]
	switch r.kind {
	case killDaemon, termDaemon:
		return n.endDaemon(r, h)
	case removeStore, killStore:
		return n.endStore(r, h)
	case flipStored, cutStored, dropStored, fillStore, lockStore, shortMemory:
		return n.store(r, h)
	case stopDaemon:
		r.hit = n.aimed(func() bool { return len(compiling(h.daemon())) > 0 })
		r.from = time.Now()
		return n.pause(h.daemon(), r.hold)
	case killCompiler, stopCompiler:
		return n.compiler(r, h)
	case killManager, stopManager, termManager:
		return n.manager(r)
	case killWrapper, interruptWrapper:
		return n.wrapper(r)
	case resetLink:
		r.hit = n.aimed(func() bool { return len(compiling(h.daemon())) > 0 }) && h.relay.Reset() > 0
	case strandLink:
		r.hit = n.aimed(func() bool { return len(compiling(h.daemon())) > 0 }) && h.relay.Strand() > 0
	case cutLink:
		r.hit = n.wait(h.relay.Cut(r.dir, r.after))
		h.relay.Disarm()
	case flipLink:
		r.hit = n.wait(h.relay.Flip(r.dir, r.after))
		h.relay.Disarm()
	case holdLink:
		r.hit = n.aimed(func() bool { return len(compiling(h.daemon())) > 0 })
		r.from = time.Now()
		h.relay.Hold()
		n.sleep(r.hold)
		h.relay.Release()
	case delayLink:
		n.while(r, h, func() { h.relay.SetDelay(r.delay) }, func() { h.relay.SetDelay(0) })
	case throttleLink:
		n.while(r, h, func() { h.relay.SetRate(r.rate) }, func() { h.relay.SetRate(0) })
	case fillHost:
		r.hit = n.aimed(func() bool { return len(compiling(h.daemon())) > 0 })
		return n.fill(r, h.area)
	case fillHere:
		n.filling(1)
		defer n.filling(-1)
		r.hit = true
		return n.fill(r, n.s.out)
	}
	return nil
}

// aimed waits a while until there is something to hit.
func (n *nemesis) aimed(there func() bool) bool {
	for end := time.Now().Add(aim); ; n.sleep(5 * time.Millisecond) {
		if there() {
			return true
		}
		if time.Now().After(end) || n.ctx.Err() != nil {
			return false
		}
	}
}

// wait waits for an armed fault.
func (n *nemesis) wait(hit <-chan struct{}) bool {
	t := time.NewTimer(armedFor)
	defer t.Stop()
	select {
	case <-hit:
		return true
	case <-t.C:
		return false
	case <-n.ctx.Done():
		return false
	}
}

// while does something to a link for a time; it has hit if anything passed.
func (n *nemesis) while(r *struck, h *host, on, off func()) {
	moved := h.relay.Moved()
	on()
	n.sleep(r.hold)
	off()
	r.hit = h.relay.Moved() > moved
}

// endDaemon ends a daemon in one of two ways and restarts it.
func (n *nemesis) endDaemon(r *struck, h *host) error {
	r.hit = n.aimed(func() bool { return len(compiling(h.daemon())) > 0 })
	r.from = time.Now()
	if h.daemon() <= 0 {
		return errors.New("the daemon is not there")
	}
	n.s.mu.Lock()
	old := n.s.farm.Daemons[h.index]
	n.s.mu.Unlock()
	if r.kind == killDaemon {
		old.Kill()
	} else {
		if err := old.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), drainTime)
		defer cancel()
		status, err := old.Ended(ctx)
		if err != nil || status != 0 {
			old.Kill()
			return fmt.Errorf("SIGTERM: exit status %d, %w", status, err)
		}
	}
	h.set(0)
	n.sleep(r.hold)
	return n.startAgain(h)
}

// startAgain restarts a daemon that has ended.
func (n *nemesis) startAgain(h *host) error {
	n.s.mu.Lock() // the list of processes belongs to the farm, and is not for concurrent use
	defer n.s.mu.Unlock()
	if err := n.s.farm.StartDaemonAgain(context.WithoutCancel(n.ctx), h.index); err != nil {
		return err
	}
	h.set(n.s.farm.Daemons[h.index].PID())
	return nil
}

// endStore kills a daemon and restarts it, on a store that was lost some time before, or that is spoilt
// when it comes back.
func (n *nemesis) endStore(r *struck, h *host) error {
	n.kept[h.index].Lock()
	defer n.kept[h.index].Unlock()
	busy := n.aimed(func() bool { return len(h.store.contents()) > 0 && len(compiling(h.daemon())) > 0 })
	r.from = time.Now()
	if h.daemon() <= 0 {
		return errors.New("the daemon is not there")
	}
	if r.kind == removeStore {
		if err := os.RemoveAll(h.store.dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) { // it was writing
			return err
		}
		n.sleep(r.hold)
	}
	n.s.mu.Lock()
	old := n.s.farm.Daemons[h.index]
	n.s.mu.Unlock()
	old.Kill()
	h.set(0)
	var list []spoilt
	if r.kind == killStore {
		var err error
		if list, err = h.store.spoil(r.kind, r.random()); err != nil {
			return err
		}
		n.sleep(r.hold)
	}
	if err := n.startAgain(h); err != nil {
		return err
	}
	if r.kind == killStore {
		r.later = func() bool { return n.noticed(list) }
	} else {
		r.later = func() bool { return n.during(func() bool { return len(h.store.contents()) > 0 }) && busy }
	}
	return nil
}

// compiler kills or stops one compiler of a host.
func (n *nemesis) compiler(r *struck, h *host) error {
	var p process
	r.hit = n.aimed(func() bool {
		all := compiling(h.daemon())
		if len(all) == 0 {
			return false
		}
		p = all[len(all)-1] // the one that works for the others
		return true
	})
	switch {
	case !r.hit:
		return nil
	case r.kind == killCompiler:
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may be done by now
		return nil
	}
	return n.pause(p.pid, r.hold)
}

// manager kills, ends or stops the manager; the next wrapper starts another one.
func (n *nemesis) manager(r *struck) error {
	var pids []int
	r.hit = n.aimed(func() bool {
		pids = n.s.managers()
		return len(pids) > 0 && n.d.running() > 0
	})
	for _, pid := range pids {
		switch r.kind {
		case killManager:
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended, here and below
		case termManager:
			_ = syscall.Kill(pid, syscall.SIGTERM)
		default:
			return n.pause(pid, r.hold)
		}
	}
	return nil
}

// wrapper ends one of the running wrappers.
func (n *nemesis) wrapper(r *struck) error {
	sig := syscall.SIGKILL
	if r.kind == interruptWrapper {
		sig = syscall.SIGINT
	}
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	for f := range n.d.flying {
		f.struck, r.hit = true, true
		_ = syscall.Kill(f.pid, sig) // it is not waited for yet: the number is still its own
		break
	}
	return nil
}

// fill uses up a file system for a time.
func (n *nemesis) fill(r *struck, dir string) error {
	file, err := fill(dir)
	r.from = time.Now()
	n.sleep(r.hold)
	if err != nil {
		return err
	}
	return os.Remove(file)
}

// filling tells the driver about the disk here.
func (n *nemesis) filling(more int) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	n.d.full += more
	n.d.fills++
}

// pause stops a process for a time. It may end meanwhile.
func (n *nemesis) pause(pid int, d time.Duration) error {
	if pid <= 0 {
		return errors.New("the daemon is not there")
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	n.sleep(d)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	return nil
}

func (n *nemesis) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.ctx.Done():
	}
}

// running returns how many wrappers are running.
func (d *driver) running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.flying)
}

// files returns all regular files below a directory.
func files(dir string) []string {
	var all []string
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	return all
}
