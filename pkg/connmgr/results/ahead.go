package results

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Command is the command that a result is looked for, or kept, for. It is not safe for concurrent use.
type Command struct {
	Build uint64
	// Keeps says that what it finds and what it comes to may be noted for the next build.
	Keeps bool
	// Name returns the key of the forecast for builds that begin with it (resultcache.ForecastKeyOf). It is called at most once.
	Name func() resultcache.Key

	name    resultcache.Key
	named   bool
	counted bool
	missed  []missed
}

// missed is a name that a tier has no result for.
type missed struct {
	t   *tier
	key resultcache.Key
}

func (c *Command) key() resultcache.Key {
	if !c.named {
		c.name, c.named = c.Name(), true
	}
	return c.name
}

// misses records that a tier has nothing under a name.
func (c *Command) misses(t *tier, key resultcache.Key) {
	if c != nil && t.ahead != nil {
		c.missed = append(c.missed, missed{t, key})
	}
}

// ahead fetches results of a tier before they are asked for. The first commands of a build name forecasts. The first of these
// that names one of the results that the build looks for is right, and all its packs are fetched.
type ahead struct {
	c *Cache
	t *tier
	// Both are of all tiers, and in bytes: packs that were fetched, and what was noted and is not written yet.
	room, notes *semaphore.Weighted
	most        int64 // of each; of what a build notes as well

	mu      sync.Mutex
	closed  bool
	warm    time.Time // a command came
	builds  map[uint64]*build
	parcels map[resultcache.Key]*parcel // by pack
	places  map[resultcache.Key]place   // by result
}

// build is what a tier knows of a build. It is guarded by ahead.mu.
type build struct {
	ctx    context.Context // ends what is fetched for it
	cancel context.CancelFunc
	began  time.Time
	last   time.Time   // something was looked for or kept
	timer  *time.Timer // calls tick

	commands int
	names    []resultcache.Key // of forecasts, by its first commands
	lists    []*list
	asked    map[resultcache.Key]struct{} // looked for first, until chosen is set
	chosen   *list                        // the forecast that is right; nil: none is known to be
	late     bool                         // what was under way took too long: nothing waits any more

	noted
}

// parcel is a pack that is fetched.
type parcel struct {
	resultcache.Pack
	done   chan struct{}
	data   []byte // set once done is closed; nil: it has not come
	builds int    // that want it
	held   bool   // it has taken room
}

// place is where a result is, or will be. Without a parcel, it says that there is none.
type place struct {
	in       *parcel
	off, len uint32
}

const (
	// firstNames is how many commands of a build name forecasts: with several at a time, it does not always begin with the same one.
	firstNames = 4
	// aheadConns is how many packs are fetched at a time: one more than one, so that no round trip is lost between two. What more
	// there were would take its part of the link from what is wanted sooner.
	aheadConns = 2
	// aheadPatience is how many times as long as a look may take a command waits for what is under way before it asks for its own
	// result. So it is as long as it takes to give up a store that does not answer. A build does that once.
	aheadPatience = 3
	// aheadRate is how many bytes a second are expected on a slow link: to ask for the same once more, beside what is under way, would
	// be slower still.
	aheadRate = 8 << 20
	// quietTime is how long nothing is looked for or kept in a short build before what it has wanted is written down, quietMost in a
	// long one, goneTime before what was fetched for it is forgotten, and lastTime before it is over.
	quietTime = time.Second
	quietMost = 10 * time.Second
	goneTime  = time.Minute
	lastTime  = 10 * time.Minute
	// mostAsked bounds the names that are remembered until a forecast has come.
	mostAsked = 256
	// maxBuilds bounds the builds that are known at a time.
	maxBuilds = 64
)

func newAhead(c *Cache, t *tier, room, notes *semaphore.Weighted, most int64) *ahead {
	return &ahead{c: c, t: t, room: room, notes: notes, most: most, builds: make(map[uint64]*build), parcels: make(map[resultcache.Key]*parcel), places: make(map[resultcache.Key]place)}
}

// begins records that a command begins to look for its result.
func (c *Cache) begins(cmd *Command) {
	if cmd == nil || cmd.counted {
		return
	}
	cmd.counted = true
	for _, t := range c.tiers {
		if t.ahead != nil {
			t.ahead.begins(cmd)
		}
	}
}

func (a *ahead) begins(cmd *Command) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.buildLocked(cmd)
	if b == nil {
		return
	}
	b.commands++
	if len(b.names) < firstNames && !slices.Contains(b.names, cmd.key()) {
		b.names = append(b.names, cmd.key())
	}
}

// buildLocked returns the build of a command, which goes on; nil: the cache is closed, or there are too many builds.
func (a *ahead) buildLocked(cmd *Command) *build {
	b := a.builds[cmd.Build]
	if b == nil {
		if a.closed || len(a.builds) >= maxBuilds {
			return nil
		}
		b = &build{began: time.Now(), asked: make(map[resultcache.Key]struct{}), noted: noted{used: make(map[resultcache.Key]struct{}), has: make(map[resultcache.Key]struct{})}}
		b.ctx, b.cancel = context.WithCancel(a.c.ctx)
		b.timer = time.AfterFunc(quietTime, func() { a.tick(cmd.Build, b) })
		a.builds[cmd.Build] = b
	}
	b.last = time.Now()
	return b
}

// tick writes down what a build has wanted once it is quiet, and forgets it when it is over.
func (a *ahead) tick(id uint64, b *build) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	// A long build is also quiet while it compiles.
	quiet := min(quietTime+b.last.Sub(b.began)/20, quietMost)
	var next time.Duration
	switch idle := time.Since(b.last); {
	case idle < quiet:
		next = quiet - idle
	case idle < goneTime || b.writing:
		if b.due() {
			b.writing = true
			a.c.writing.Go(func() { a.write(b) })
		}
		next = max(goneTime-idle, quietTime)
	case idle < lastTime:
		a.forgetLocked(b)
		next = max(lastTime-idle, quietTime)
	default:
		a.notes.Release(int64(len(b.data))) // too few commands to be written down
		delete(a.builds, id)
		return
	}
	b.timer.Reset(next)
}

// forgetLocked ends what is fetched for a build, and forgets it where no other one wants it.
func (a *ahead) forgetLocked(b *build) {
	over := b.ctx.Err() != nil
	if b.cancel(); over || b.chosen == nil {
		return
	}
	for i := range b.chosen.f.Packs {
		p := a.parcels[b.chosen.f.Packs[i].Key]
		if p == nil {
			continue
		}
		if p.builds--; p.builds == 0 {
			a.removeLocked(p)
		}
	}
	for _, x := range b.chosen.f.Absent {
		if a.places[x.Key].in == nil {
			delete(a.places, x.Key)
		}
	}
}

// removeLocked forgets a parcel. Its room is free once nothing more comes.
func (a *ahead) removeLocked(p *parcel) {
	delete(a.parcels, p.Key)
	for _, x := range p.Items {
		if a.places[x.Key].in == p {
			delete(a.places, x.Key)
		}
	}
	select {
	case <-p.done:
		a.releaseLocked(p)
	default: // fetch does
	}
}

func (a *ahead) releaseLocked(p *parcel) {
	if p.held {
		p.held = false
		a.room.Release(int64(p.Len))
	}
}

// stop ends all fetches. Nothing new begins.
func (a *ahead) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for _, b := range a.builds {
		b.cancel()
		b.timer.Stop()
	}
}

// end writes down what is left to be. Nothing else is under way.
func (a *ahead) end() {
	for _, b := range a.builds {
		if b.due() {
			a.write(b)
		}
	}
}

// find looks among what was fetched. It waits for what is under way, but not for long. come says that the answer is there: b is the
// entry as the store has it, or nil if that has none.
func (a *ahead) find(ctx context.Context, l *Look, buf []byte) (b []byte, come bool) {
	if a == nil || l.Command == nil {
		return buf, false
	}
	until := time.Now().Add(aheadPatience * cmp.Or(a.t.Timeout, time.Second))
	a.mu.Lock()
	defer a.mu.Unlock()
	bd := a.buildLocked(l.Command)
	if bd == nil {
		return buf, false
	}
	if bd.chosen == nil && len(bd.asked) < mostAsked {
		bd.asked[l.Key] = struct{}{}
	}
	for {
		a.chooseLocked(bd, l.Key)
		if _, there := a.places[l.Key]; there || bd.chosen != nil {
			break
		}
		if !a.awaitListLocked(ctx, bd, until) {
			if a.consultLocked(bd, l.Command.key()) || bd.late {
				return buf, false // meanwhile it asks for its own
			}
			break
		}
	}
	at, there := a.places[l.Key]
	switch {
	case !there:
		return buf, false
	case at.in == nil:
		bd.used[l.Key] = struct{}{}
		return nil, true
	}
	if a.awaitLocked(ctx, bd, at.in.done, until.Add(a.transferLocked(bd))); at.in.data == nil {
		return buf, false
	}
	return append(buf, at.in.data[at.off:][:at.len]...), true
}

// transferLocked returns how long what is under way for a build may take for its size alone.
func (a *ahead) transferLocked(b *build) (d time.Duration) {
	if b.chosen == nil {
		return 0 // it is another build's
	}
	for i := range b.chosen.f.Packs {
		if p := a.parcels[b.chosen.f.Packs[i].Key]; p != nil && p.data == nil {
			d += time.Second * time.Duration(p.Len) / aheadRate
		}
	}
	return d
}

// awaitListLocked waits for a forecast that is under way. It reports whether one has come.
func (a *ahead) awaitListLocked(ctx context.Context, b *build, until time.Time) bool {
	for _, x := range b.lists {
		select {
		case <-x.done:
		default:
			return a.awaitLocked(ctx, b, x.done, until)
		}
	}
	return false
}

// awaitLocked waits for something that is under way, with the lock released, unless the build has done so in vain before. It reports
// whether it is there.
func (a *ahead) awaitLocked(ctx context.Context, b *build, done <-chan struct{}, until time.Time) bool {
	select {
	case <-done:
		return true
	default:
		if b.late {
			return false
		}
	}
	a.mu.Unlock()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	come, late := false, false
	select {
	case <-done:
		come = true
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
	a.mu.Lock()
	b.late = b.late || late
	b.last = time.Now()
	return come
}

// chooseLocked has everything fetched that a forecast names, if it names key, which the build looks for.
func (a *ahead) chooseLocked(b *build, key resultcache.Key) {
	if b.chosen != nil || a.closed || b.ctx.Err() != nil {
		return
	}
	for _, x := range b.lists {
		if _, is := x.keys[key]; is {
			b.chosen, b.asked = x, nil
			a.unnoteLocked(b, x.keys)
			a.fetchLocked(b)
			return
		}
	}
}

// fetchLocked begins to fetch the packs of the forecast that a build has chosen, as far as there is room.
func (a *ahead) fetchLocked(b *build) {
	var wanted []*parcel
	f := b.chosen.f
	for i := range f.Packs {
		pack := &f.Packs[i]
		if p := a.parcels[pack.Key]; p != nil {
			p.builds++
			continue
		}
		if !a.room.TryAcquire(int64(pack.Len)) {
			a.c.log.Debug("results are not fetched ahead: there is no room (cache.ahead)", "tier", a.t.Name, "results", len(pack.Items), "bytes", pack.Len)
			continue
		}
		p := &parcel{Pack: *pack, done: make(chan struct{}), builds: 1, held: true}
		a.parcels[pack.Key] = p
		for _, x := range pack.Items {
			if _, there := a.places[x.Key]; !there {
				a.places[x.Key] = place{p, x.Off, x.Len}
			}
		}
		wanted = append(wanted, p)
	}
	for _, x := range f.Absent {
		if _, there := a.places[x.Key]; !there {
			a.places[x.Key] = place{}
		}
	}
	next := make(chan *parcel, len(wanted))
	for _, p := range wanted {
		next <- p
	}
	close(next)
	for range min(aheadConns, len(wanted)) {
		a.c.writing.Go(func() {
			for p := range next {
				a.fetch(b.ctx, p)
			}
		})
	}
}

// fetch fetches a pack.
func (a *ahead) fetch(ctx context.Context, p *parcel) {
	data, err := a.value(ctx, p.Key, int(p.Len), writePatience)
	if err == nil && len(data) != int(p.Len) {
		err = resultcache.ErrDamaged
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		p.data = data
		a.t.fetched(len(p.Items))
	} else {
		a.c.log.Debug("results are not fetched ahead", "tier", a.t.Name, "results", len(p.Items), "bytes", p.Len, "err", err)
		if errors.Is(err, resultcache.ErrMiss) || errors.Is(err, resultcache.ErrDamaged) {
			a.lostLocked(p)
		}
	}
	close(p.done)
	switch {
	case a.parcels[p.Key] != p:
		a.releaseLocked(p)
	case err != nil:
		a.removeLocked(p)
	}
}

// lostLocked lets the builds that have chosen a forecast with a pack note again what that had: the store has it no more.
func (a *ahead) lostLocked(p *parcel) {
	for _, b := range a.builds {
		if b.chosen == nil || !slices.ContainsFunc(b.chosen.f.Packs, func(x resultcache.Pack) bool { return x.Key == p.Key }) {
			continue
		}
		for _, x := range p.Items {
			delete(b.chosen.keys, x.Key)
		}
	}
}

// value gets a value of at most n bytes, for which it waits so many times as long as for a look. It is verified as any other.
func (a *ahead) value(ctx context.Context, key resultcache.Key, n int, times time.Duration) ([]byte, error) {
	ctx, cancel := a.t.within(ctx, times)
	defer cancel()
	b, err := a.t.Store.Get(ctx, key, nil)
	if err != nil {
		return nil, err
	}
	e, err := resultcache.Decode(b, key, func(has int) ([]byte, error) {
		if has > n {
			return nil, resultcache.ErrTooBig
		}
		return make([]byte, has), nil
	})
	if err == nil {
		err = a.t.proven(e)
	}
	if err != nil {
		return nil, err
	}
	return e.Value()
}

// reject forgets a result that was fetched: it was not accepted. The store itself may have a better one.
func (a *ahead) reject(cmd *Command, key resultcache.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.places, key)
	if b := a.builds[cmd.Build]; b != nil && b.chosen != nil {
		delete(b.chosen.keys, key)
	}
}
