package results

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// noted is what a build has wanted, as far as the next one is to know. It is guarded by ahead.mu.
type noted struct {
	used    map[resultcache.Key]struct{} // of the forecast that it had, and what tiers in front have had
	has     map[resultcache.Key]struct{} // all that was new
	items   []resultcache.Packed         // new ones, in data
	absent  []resultcache.Absent
	data    []byte
	total   int64                // bytes of all that was noted
	packs   [][]resultcache.Pack // new ones, by when what they have was noted, as soon as the store has them
	writing bool
	written *resultcache.Forecast // by this build before
}

const (
	// fewCommands is how many commands are too few to be worth a forecast.
	fewCommands = 8
	// No pack is longer than lastPack, and if it can be, none shorter than firstPack.
	firstPack = 128 << 10
	lastPack  = 16 << 20
	// mostPacks bounds the packs of a forecast, so that a build takes at most a dozen requests: one for the forecast, one of
	// the command that has it asked for, one to find out where a bucket is. What is noted at once is in newPacks, so that some can
	// follow before all are put together. A build that notes more than lastPack begins with longPacks, and has one for each
	// further lastPack.
	mostPacks = 9
	newPacks  = 8
	longPacks = 5
	// lastAge is after how many builds that have not wanted a result it is left out.
	lastAge = 4
	// mostUsed bounds the results that are noted as wanted.
	mostUsed = 1 << 16
)

// list is a forecast that is asked for.
type list struct {
	name resultcache.Key
	done chan struct{} // closed once the rest is set
	f    *resultcache.Forecast
	keys map[resultcache.Key]struct{} // of all results of f
	// foreign says that what is there under the name is of a later version, and stays there.
	foreign bool
}

// consultLocked asks for the forecast of a name, if it is one of the build's first and was not asked for. It reports whether it has.
func (a *ahead) consultLocked(b *build, name resultcache.Key) bool {
	if a.closed || b.late || !slices.Contains(b.names, name) || slices.ContainsFunc(b.lists, func(x *list) bool { return x.name == name }) {
		return false
	}
	x := &list{name: name, done: make(chan struct{})}
	b.lists = append(b.lists, x)
	a.c.writing.Go(func() {
		f, foreign := a.forecast(b.ctx, name)
		a.mu.Lock()
		defer a.mu.Unlock()
		x.set(f, foreign)
		close(x.done)
		for key := range b.asked {
			a.chooseLocked(b, key)
		}
	})
	return true
}

// set sets the forecast that has come; nil: there is none.
func (x *list) set(f *resultcache.Forecast, foreign bool) {
	x.f, x.foreign = f, foreign
	if f == nil {
		return
	}
	x.keys = make(map[resultcache.Key]struct{})
	for i := range f.Packs {
		for _, item := range f.Packs[i].Items {
			x.keys[item.Key] = struct{}{}
		}
	}
}

// forecast returns the forecast of a name, or nil. foreign says that there is one of a later version.
func (a *ahead) forecast(ctx context.Context, name resultcache.Key) (f *resultcache.Forecast, foreign bool) {
	data, err := a.value(ctx, name, resultcache.MaxForecast, 1)
	if err == nil {
		f, err = resultcache.DecodeForecast(data)
	}
	switch {
	case err == nil, errors.Is(err, resultcache.ErrMiss), ctx.Err() != nil:
	case errors.Is(err, resultcache.ErrDamaged):
		a.c.log.Warn("the list of what builds want is damaged, or was on its way here: nothing is fetched ahead", "tier", a.t.Name, "key", name, "err", err)
	default:
		a.c.log.Debug("there is no list of what builds want", "tier", a.t.Name, "key", name, "err", err)
	}
	return f, errors.Is(err, resultcache.ErrVersion)
}

// due reports whether there is something to be written down.
func (b *build) due() bool {
	return !b.writing && len(b.names) > 0 && b.commands >= fewCommands && len(b.items)+len(slices.Concat(b.packs...)) > 0
}

// took records that a result was found in the store, which has it as b.
func (a *ahead) took(cmd *Command, key resultcache.Key, b []byte) {
	if a == nil || cmd == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if bd := a.builds[cmd.Build]; bd != nil {
		if bd.chosen != nil {
			if _, is := bd.chosen.keys[key]; is {
				a.usedLocked(bd, cmd, key)
				return
			}
		}
		a.noteLocked(bd, cmd, key, b)
	}
}

// saw records that a tier in front has had a result.
func (a *ahead) saw(cmd *Command, key resultcache.Key) {
	if a == nil || cmd == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.builds[cmd.Build]; b != nil {
		a.usedLocked(b, cmd, key)
	}
}

// usedLocked records that a command has found its result, perhaps after it had looked for others.
func (a *ahead) usedLocked(b *build, cmd *Command, key resultcache.Key) {
	if len(b.used) >= mostUsed {
		return
	}
	b.used[key] = struct{}{}
	for _, x := range cmd.missed {
		if x.t == a.t && x.key != key {
			b.used[x.key] = struct{}{}
		}
	}
}

// keeps records that the store got a result, as b.
func (a *ahead) keeps(cmd *Command, key resultcache.Key, b []byte) {
	if a == nil || cmd == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if bd := a.buildLocked(cmd); bd != nil {
		a.noteLocked(bd, cmd, key, b)
	}
}

// noteLocked adds a result to what the next build will want.
func (a *ahead) noteLocked(b *build, cmd *Command, key resultcache.Key, entry []byte) {
	if _, has := b.has[key]; has || !cmd.Keeps || !a.t.Write || len(entry) > lastPack {
		return
	}
	// More than the next build has room for would only be written in vain.
	n := int64(len(entry))
	if n > a.most-b.total || !a.notes.TryAcquire(n) {
		return
	}
	b.total += n
	b.has[key] = struct{}{}
	if len(b.data)+len(entry) > lastPack {
		a.packLocked(b)
	}
	for _, x := range cmd.missed {
		if x.t == a.t && x.key == key {
			break
		}
		if x.t == a.t {
			b.absent = append(b.absent, resultcache.Absent{Key: x.key})
		}
	}
	b.items = append(b.items, resultcache.Packed{Key: key, Off: uint32(len(b.data)), Len: uint32(len(entry))})
	b.data = append(b.data, entry...)
}

// unnoteLocked takes back what was noted before it was known that a forecast names it.
func (a *ahead) unnoteLocked(b *build, named map[resultcache.Key]struct{}) {
	items, data := b.items, b.data
	b.items, b.data = nil, nil
	for _, x := range items {
		if _, is := named[x.Key]; is {
			b.used[x.Key] = struct{}{}
			continue
		}
		entry := data[x.Off:][:x.Len]
		x.Off = uint32(len(b.data))
		b.items, b.data = append(b.items, x), append(b.data, entry...)
	}
	taken := int64(len(data) - len(b.data))
	b.total -= taken
	a.notes.Release(taken)
}

// packLocked puts what was noted into packs, and those into the store, in the background.
func (a *ahead) packLocked(b *build) {
	items, data, i, n := b.items, b.data, len(b.packs), 1
	if i == 0 {
		n = longPacks
	}
	b.items, b.data = nil, nil
	b.packs = append(b.packs, nil)
	a.c.writing.Go(func() {
		packs := a.pack(items, data, n)
		a.notes.Release(int64(len(data)))
		a.mu.Lock()
		defer a.mu.Unlock()
		b.packs[i] = packs
	})
}

// pack puts results into at most n packs, and those into the store. It returns those that it has.
func (a *ahead) pack(items []resultcache.Packed, data []byte, n int) []resultcache.Pack {
	packs := resultcache.Split(items, n, firstPack)
	var all sync.WaitGroup
	for i := range packs {
		p := &packs[i]
		value := data[:p.Len:p.Len]
		data = data[p.Len:]
		p.Key = resultcache.PackKeyOf(value)
		all.Go(func() {
			if !a.put(p.Key, value) {
				p.Items = nil
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(packs, func(p resultcache.Pack) bool { return len(p.Items) == 0 })
}

// put puts a value into the store, and reports whether that has it.
func (a *ahead) put(key resultcache.Key, value []byte) (kept bool) {
	entry, err := resultcache.AppendValue(make([]byte, 0, len(value)+resultcache.HeaderLen+256), key, resultcache.Origin{Made: time.Now()}, value)
	if err != nil {
		return false
	}
	done := a.c.write(a.t, len(entry), key, func() error {
		_, err := a.t.store(a.c.ctx, key, entry, own)
		kept = err == nil
		return err
	})
	if done == nil {
		return false
	}
	<-done
	return kept
}

// write writes down what a build has wanted.
func (a *ahead) write(b *build) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		b.writing = false
	}()
	a.mu.Lock()
	items, data, n := b.items, b.data, newPacks
	if len(b.packs) > 0 || b.written != nil || b.chosen != nil {
		n = 1 // behind others
	}
	lists, chosen, before := slices.Clone(b.lists), b.chosen, b.written // the lock is released while the store is asked
	b.items, b.data = nil, nil
	names := slices.Clone(b.names)
	a.mu.Unlock()
	defer a.notes.Release(int64(len(data)))

	// What other builds have written meanwhile is lost, which costs them fetches.
	if before == nil && chosen != nil {
		before = chosen.f
	}
	for _, name := range names {
		i := slices.IndexFunc(lists, func(x *list) bool { return x.name == name })
		if i < 0 && before != nil {
			continue
		}
		var x list
		if i >= 0 {
			<-lists[i].done
			x = *lists[i]
		} else {
			x.f, x.foreign = a.forecast(a.c.ctx, name)
		}
		if x.foreign {
			return
		}
		if before == nil {
			before = x.f
		}
	}
	packs := a.pack(items, data, n)

	a.mu.Lock()
	f := &resultcache.Forecast{Packs: append(slices.Concat(b.packs...), packs...), Absent: b.absent}
	clear(b.packs)
	b.absent = nil
	fresh := len(f.Packs) > 0
	f.Follow(before, b.used, lastAge)
	a.mu.Unlock()
	if !fresh {
		return
	}
	gone := a.compact(f)
	f.Shrink(a.most)
	value := f.Append(make([]byte, 0, f.Len()))
	for _, name := range names {
		if !a.put(name, value) {
			return
		}
	}
	a.mu.Lock()
	b.written = f
	a.mu.Unlock()
	for _, key := range gone {
		a.c.drop(a.t, key)
	}
}

// compact puts the results of packs that are mostly of no use any more, and of small ones if there are too many, into new packs. It
// returns those whose place is taken.
func (a *ahead) compact(f *resultcache.Forecast) (gone []resultcache.Key) {
	var items []resultcache.Packed
	var data []byte
	var packs []resultcache.Pack
	thin, at := f.Thin(mostPacks, lastPack)
	most := max(newPacks-len(f.Packs), 1)
	flush := func() {
		packs = append(packs, a.pack(items, data, max(most-len(packs), 1))...)
		items, data = nil, nil
	}
	had := make([][]byte, len(thin))
	var all sync.WaitGroup
	for i := range thin {
		all.Go(func() { had[i] = a.dataOf(&thin[i]) }) // at once: the manager may be about to end
	}
	all.Wait()
	for i, p := range thin {
		gone = append(gone, p.Key)
		from := had[i]
		if from == nil {
			continue // what it has had is not fetched ahead any more
		}
		for _, x := range p.Items {
			if len(data)+int(x.Len) > lastPack {
				flush()
			}
			entry := from[x.Off:][:x.Len]
			x.Off = uint32(len(data))
			items, data = append(items, x), append(data, entry...)
		}
	}
	flush()
	f.Packs = slices.Insert(f.Packs, at, packs...)
	return gone
}

// dataOf returns the value of a pack, or nil.
func (a *ahead) dataOf(p *resultcache.Pack) []byte {
	if len(p.Items) == 0 {
		return nil
	}
	a.mu.Lock()
	has := a.parcels[p.Key]
	a.mu.Unlock()
	if has != nil {
		if <-has.done; has.data != nil {
			return has.data
		}
	}
	data, err := a.value(a.c.ctx, p.Key, int(p.Len), writePatience)
	if err != nil || len(data) != int(p.Len) {
		return nil
	}
	return data
}
