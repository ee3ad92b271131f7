// Package outfit gives hosts the compilers of this machine that they lack.
//
// It knows which compilers jobs have asked for, and asks the farm which connected hosts do not have one. To such a host it
// sends the toolchain as a parcel (package parcel), over a stream of its own, beside the jobs. What a host has already is not
// sent: parts of other toolchains, and what came before a connection broke. The host then lists the parcel among its
// toolchains, and jobs go there.
//
// A host that accepts none is asked again now and then, as its configuration may change.
package outfit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Farm is what Outfitter needs of the farm.
type Farm interface {
	// Lacking returns the addresses of the hosts that are connected and have said that they do not have a toolchain.
	Lacking(id unit.ToolchainID) []string
	// Alias records the parcel under which hosts may have a toolchain of this machine.
	Alias(parcel, own unit.ToolchainID)
	// Coming records that done bytes of a toolchain have been sent to a host. Jobs wait for it there as long as that number
	// grows.
	Coming(addr string, own unit.ToolchainID, done uint64)
	// Queued records that a toolchain waits to be sent to a host while transfers to other hosts make progress.
	Queued(addr string, own unit.ToolchainID)
	// Unsendable records that a toolchain cannot be sent to a host.
	Unsendable(addr string, own unit.ToolchainID)
}

// Options configure an Outfitter.
type Options struct {
	Farm Farm
	// Dial opens a stream to a daemon's service for toolchains.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	Log  *slog.Logger
	// Sent, if not nil, is called when a host has been sent a toolchain, with the bytes on the way there, or could not be.
	Sent func(ok bool, bytes uint64)
	// Pause is the shortest time until what has failed is tried again (5 s).
	Pause time.Duration
}

// Identify identifies a compiler again, as it was for the job that uses it.
type Identify func(context.Context) (toolchain.Toolchain, error)

// Outfitter sends toolchains. Its methods may be called concurrently.
type Outfitter struct {
	o   Options
	ctx context.Context
	end context.CancelFunc
	wg  sync.WaitGroup
	new chan struct{} // capacity 1: a compiler is used for the first time

	mu    sync.Mutex
	used  map[unit.ToolchainID]*kit
	hosts map[pair]*delivery
	moved time.Time // when some host was last sent more than ever before
}

type pair struct {
	addr string
	id   unit.ToolchainID
}

// kit is a compiler of this machine.
type kit struct {
	tc    toolchain.Toolchain
	again Identify
	last  time.Time // when a job used it; guarded by Outfitter.mu
	bytes uint64    // of its contents, once it is described; guarded by Outfitter.mu
	err   error     // it can be sent nowhere; guarded by Outfitter.mu
	// replaced says that it is no longer there (errReplaced), so that nothing is told of it; guarded by Outfitter.mu
	replaced bool

	packing sync.Mutex // guards the rest; locked before Outfitter.mu
	packed  *packed    // nil: it has to be described
}

// packed is the description of a compiler.
type packed struct {
	parcel  *parcel.Parcel
	encoded []byte
}

// delivery is how far a toolchain is on its way to a host.
type delivery struct {
	State
	rest  time.Time     // not before then
	pause time.Duration // the last one
	most  uint64        // of Done, also in earlier attempts
	taken int           // how many times in a row the host has had all of it, without listing it
}

// State is how far the transfer of a toolchain to a host has got.
type State struct {
	ID        unit.ToolchainID
	Compiler  string // its usual name
	Done, All uint64 // bytes of contents
	Err       string // why it is not there; empty: it is on its way, or there
	Refused   bool   // the host does not want it, or none can have it
	Running   bool   // it is being sent
	Began     time.Time
}

// String describes the state in a few words.
func (s State) String() string {
	switch {
	case s.Err != "":
		return s.Compiler + " cannot be sent there: " + s.Err
	case s.All == 0:
		return s.Compiler + " is going to be sent there"
	}
	return fmt.Sprintf("%s is being sent there: %d of %d MB", s.Compiler, s.Done/1e6, s.All/1e6)
}

// Times.
const (
	lookTime    = time.Second      // between two looks at the hosts
	usedTime    = 10 * time.Minute // how long after the last job hosts get its compiler
	leastPause  = 5 * time.Second  // after a failure (Options.Pause)
	mostPause   = 5 * time.Minute
	refusedTime = 2 * time.Minute // after a host has said that it wants none
	mostUsed    = 16              // compilers that are remembered
	atATime     = 2               // hosts that are sent something
	mostTaken   = 3               // times that a host may have all of a toolchain and not list it
)

// errUnlisted is the error about a host that has taken all of a toolchain, again and again, and does not list it.
var errUnlisted = errors.New("the host has all of it, and does not offer to run it")

// New returns an Outfitter, which Close ends.
func New(o Options) *Outfitter {
	o.Pause = cmp.Or(o.Pause, leastPause)
	x := &Outfitter{o: o, new: make(chan struct{}, 1), used: make(map[unit.ToolchainID]*kit), hosts: make(map[pair]*delivery)}
	x.ctx, x.end = context.WithCancel(context.Background())
	x.wg.Go(x.run)
	return x
}

// Close ends all that is under way. x may be nil.
func (x *Outfitter) Close() {
	if x == nil {
		return
	}
	x.end()
	x.wg.Wait()
}

// Use records that a job uses a compiler. x may be nil.
func (x *Outfitter) Use(tc *toolchain.Toolchain, again Identify) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.useLocked(tc, again)
}

func (x *Outfitter) useLocked(tc *toolchain.Toolchain, again Identify) {
	k := x.used[tc.ID]
	if k == nil {
		if len(x.used) >= mostUsed {
			x.forget()
		}
		k = &kit{tc: *tc, again: again}
		x.used[tc.ID] = k
		x.kick()
	}
	k.last, k.replaced = time.Now(), false
}

// kick makes run look at the hosts now.
func (x *Outfitter) kick() {
	select {
	case x.new <- struct{}{}:
	default:
	}
}

// Send sends a compiler to a host that lacks it as soon as possible, whatever came of earlier attempts.
func (x *Outfitter) Send(addr string, tc *toolchain.Toolchain, again Identify) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.useLocked(tc, again)
	if d := x.hosts[pair{addr, tc.ID}]; d != nil && !d.Running {
		delete(x.hosts, pair{addr, tc.ID})
	}
	x.kick()
}

// Compiler is a compiler of this machine that jobs have used.
type Compiler struct {
	toolchain.Toolchain
	Identify Identify
	Last     time.Time // when a job used it
	Bytes    uint64    // of its contents; 0: they were not needed yet
	Err      error     // why it can be sent nowhere
}

// Compilers returns those that jobs have used, by name and path. x may be nil.
func (x *Outfitter) Compilers() (list []Compiler) {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, k := range x.used {
		if k.replaced {
			continue
		}
		list = append(list, Compiler{k.tc, k.again, k.last, k.bytes, k.err})
	}
	slices.SortFunc(list, func(a, b Compiler) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.Exec, b.Exec), slices.Compare(a.ID[:], b.ID[:]))
	})
	return list
}

// forget forgets the compiler that was used least recently.
func (x *Outfitter) forget() {
	var oldest *kit
	for _, k := range x.used {
		if oldest == nil || k.last.Before(oldest.last) {
			oldest = k
		}
	}
	delete(x.used, oldest.tc.ID)
}

// run looks for hosts that lack a compiler.
func (x *Outfitter) run() {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-tick.C:
		case <-x.new:
		}
		x.look(time.Now())
	}
}

// look starts what is to be sent now.
func (x *Outfitter) look(now time.Time) {
	x.mu.Lock()
	var kits []*kit
	for _, k := range x.used {
		kits = append(kits, k)
	}
	x.mu.Unlock()
	for _, k := range kits {
		lacking := x.o.Farm.Lacking(k.tc.ID)
		sends := lacking
		if x.idle(k, now) {
			sends = nil
		}
		for _, addr := range sends {
			switch x.start(addr, k, now) {
			case silent:
			case coming:
				x.o.Farm.Coming(addr, k.tc.ID, 0)
			case queued:
				x.o.Farm.Queued(addr, k.tc.ID)
			case unsendable:
				x.o.Farm.Unsendable(addr, k.tc.ID)
			}
		}
		x.mu.Lock()
		for p, d := range x.hosts { // those that have it now, or are gone
			if p.id == k.tc.ID && !d.Running && !slices.Contains(lacking, p.addr) {
				delete(x.hosts, p)
			}
		}
		x.mu.Unlock()
	}
}

// idle reports whether no job has used k for so long that hosts get on without it.
func (x *Outfitter) idle(k *kit, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return now.Sub(k.last) >= usedTime
}

// word is what there is to say to the farm of a toolchain that a host lacks.
type word uint8

const (
	silent     word = iota
	coming          // it is on its way
	queued          // it is going to be, and others get on meanwhile
	unsendable      // it cannot be sent there
)

// start sends k to a host, unless that is under way, not yet due, or there is enough under way.
func (x *Outfitter) start(addr string, k *kit, now time.Time) word {
	x.mu.Lock()
	defer x.mu.Unlock()
	running := 0
	for _, d := range x.hosts {
		if d.Running {
			running++
		}
	}
	p := pair{addr, k.tc.ID}
	d := x.hosts[p]
	if d == nil {
		d = &delivery{State: State{ID: k.tc.ID, Compiler: k.tc.Name()}}
	}
	switch {
	case d.Running:
		return silent // what arrives says more
	case now.Before(d.rest) && d.Refused:
		return unsendable
	case now.Before(d.rest):
		return silent
	case running >= atATime: // when others are done, it is its turn
		if d.Err != "" || now.Sub(x.moved) > 2*lookTime {
			return silent
		}
		return queued
	}
	d.Running, d.Done, d.All, d.Began = true, 0, 0, now
	x.hosts[p] = d
	x.wg.Go(func() { x.deliver(p, d, k) })
	if d.Err != "" {
		return silent
	}
	return coming
}

// deliver sends k to a host, and decides when that is tried again if it fails.
func (x *Outfitter) deliver(p pair, d *delivery, k *kit) {
	bytes, err := x.send(p, d, k)
	if errors.Is(err, parcel.ErrChanged) { // if it is still the same compiler, other files of it have changed
		k.packing.Lock()
		k.packed = nil
		k.packing.Unlock()
	}
	if err != nil { // whatever the host says of one that is gone, it is not to be told
		if gone := k.same(x.ctx); gone != nil {
			err = gone
		}
	}
	if x.ended(p, d, k, bytes, err) {
		x.o.Farm.Unsendable(p.addr, p.id)
	}
}

// ended notes the outcome of a delivery. It reports whether the host does not take it.
func (x *Outfitter) ended(p pair, d *delivery, k *kit, bytes uint64, err error) (refused bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d.Running = false
	k.replaced = errors.Is(err, errReplaced)
	if x.ctx.Err() != nil {
		return false
	}
	if err == nil {
		d.taken++
	} else {
		d.taken = 0
	}
	if d.taken > mostTaken {
		err = errUnlisted
	}
	var no *streams.Rejected
	first := d.Err == ""
	switch {
	case err == nil:
		d.Err, d.Refused, d.pause = "", false, 0
		d.rest = time.Now().Add(x.o.Pause) // until the host has said so
		if d.All > 0 {
			x.o.Log.Info("a host has been sent a compiler", "host", p.addr, "compiler", k.tc.Name(), "bytes", bytes, "took", time.Since(d.Began).Round(time.Millisecond))
			x.count(true, bytes)
		}
		return false
	case errors.As(err, &no), errors.Is(err, ErrQuota), errors.Is(err, ErrUnfit), errors.Is(err, parcel.ErrCannotTravel):
		d.Refused, d.pause = true, refusedTime
	default:
		d.Refused, d.pause = false, min(max(2*d.pause, x.o.Pause), mostPause)
	}
	d.Err, d.rest = err.Error(), time.Now().Add(d.pause)
	if first {
		x.o.Log.Warn("a host lacks a compiler and cannot be sent it", "host", p.addr, "compiler", k.tc.Name(), "err", err)
	}
	x.count(false, bytes)
	return d.Refused
}

func (x *Outfitter) count(ok bool, bytes uint64) {
	if x.o.Sent != nil {
		x.o.Sent(ok, bytes)
	}
}

// pack describes a compiler, unless that was done. If its files are being replaced, that is tried again later.
func (x *Outfitter) pack(k *kit) (*packed, error) {
	k.packing.Lock()
	defer k.packing.Unlock()
	if k.packed != nil {
		return k.packed, nil
	}
	p, err := parcel.Make(x.ctx, &k.tc)
	if err == nil {
		err = k.same(x.ctx)
	}
	x.mu.Lock()
	if k.err = nil; errors.Is(err, parcel.ErrCannotTravel) {
		k.err = err
	}
	if err == nil {
		_, k.bytes = p.Contents()
	}
	x.mu.Unlock()
	if err != nil {
		return nil, err
	}
	k.packed = &packed{p, p.Append(nil)}
	x.o.Farm.Alias(p.ID, k.tc.ID)
	return k.packed, nil
}

// same returns an error unless the compiler is still the one that the job meant. What was read may be another one's files
// otherwise, which no host may take for it.
func (k *kit) same(ctx context.Context) error {
	tc, err := k.again(ctx)
	if err != nil || tc.ID != k.tc.ID {
		return errors.Join(fmt.Errorf("%w: %w: %s", parcel.ErrChanged, errReplaced, k.tc.Exec), err)
	}
	return nil
}

// errReplaced: the compiler that jobs used is gone, say after an upgrade. No host needs it any more, though it may come back.
var errReplaced = errors.New("it is no longer there")

// progress returns a function that counts bytes of contents that have been sent, for one goroutine at a time.
func (x *Outfitter) progress(p pair, d *delivery) func(n uint64) {
	var said time.Time
	return func(n uint64) {
		now := time.Now()
		x.mu.Lock()
		d.Done += n
		if d.Done > d.most {
			d.most, x.moved = d.Done, now
		}
		most := d.most
		x.mu.Unlock()
		if now.Sub(said) >= lookTime {
			said = now
			x.o.Farm.Coming(p.addr, p.id, most)
		}
	}
}

// States returns how far the compilers are that a host lacks, by name. x may be nil.
func (x *Outfitter) States(addr string) (list []State) {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for p, d := range x.hosts {
		if k := x.used[p.id]; p.addr == addr && k != nil && !k.replaced { // nil: forgotten
			list = append(list, d.State)
		}
	}
	slices.SortFunc(list, func(a, b State) int { return cmp.Compare(a.Compiler, b.Compiler) })
	return list
}
