package known

import (
	"log/slog"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known/made"
)

// past has what is known of images from one run of the manager to the next. A nil past knows nothing, and keeps nothing.
type past struct {
	file string
	log  *slog.Logger

	restoring sync.Mutex // one at a time, so that of many users of an image one reads it; before mu and images.mu
	saving    sync.Mutex // before mu and images.mu

	mu    sync.Mutex
	read  bool
	known map[string]*made.Header // by image: what was not needed yet
	dirty bool
}

// freshUse is how exactly it is kept when an image was last used.
const freshUse = 24 * time.Hour

// Keep makes t keep in a file how images were made, and know what another manager has written there. It is called before
// anything else; the file is read when it is needed, which is later than a predecessor has written it.
func (t *Table) Keep(file string) {
	if file != "" {
		t.images.past = &past{file: file, log: t.log}
	}
}

// allLocked returns what the file had.
func (p *past) allLocked() map[string]*made.Header {
	if !p.read {
		p.read, p.known = true, make(map[string]*made.Header)
		list, err := made.Read(p.file)
		if err != nil {
			p.log.Warn("precompiled headers of earlier managers", "err", err)
		}
		for i := range list {
			p.known[list[i].Image] = &list[i]
		}
	}
	return p.known
}

// forget drops an image that is being made again.
func (p *past) forget(name string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.allLocked(), name)
}

// find returns what is known of an image, or nil.
func (p *past) find(name string) *made.Header {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allLocked()[name]
}

// changed marks the file as out of date.
func (p *past) changed() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirty = true
}

// usedNow records that a compile uses an image.
func (p *past) usedNow(r *recipe) {
	now := time.Now()
	if r.used.Swap(now.Unix()) < now.Add(-freshUse).Unix() {
		p.changed()
	}
}

// restore returns the recipe of an image that was made when another manager ran, or nil. The image has to be the one that was
// written down, by its stamp and its content, and the command to be one that would make it of the same files today: for
// anything else this manager knows no more than of an image that was never made by rdistcc.
func (t *Table) restore(c *Command, name string) *recipe {
	x := &t.images
	if x.past == nil {
		return nil
	}
	x.past.restoring.Lock()
	defer x.past.restoring.Unlock()
	h := x.past.find(name)
	if h == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.recipes[name] // another caller has restored it meanwhile
	}
	cmd := c.Lease.Command
	if h.Toolchain != c.Compiler.ID || h.Compiler != c.Lease.Compiler || h.Argv0 != cmd.Argv0 || h.Real != cmd.Real {
		return nil
	}
	lease := &ipc.Lease{Compiler: h.Compiler, Source: h.Source, Cwd: h.Cwd, Command: &ipc.Command{Argv0: h.Argv0, Real: h.Real, Args: h.Args, Env: h.Env}}
	compiler := *c.Compiler // a recipe outlives what c is part of
	m, direct := t.command(&Command{Lease: lease, Compiler: &compiler})
	if m == nil || !direct || m.name != name || !made.Faithful(name) {
		return nil
	}
	r := m.ofList(h.List, h.At)
	if r == nil {
		return nil // it may be again: somebody is editing a file of it
	}
	sum, ok := made.Sum(name, h.At)
	if !ok || sum != h.Sum {
		t.log.Debug("a precompiled header is not the one that an earlier manager knew", "image", name)
		x.past.forget(name)
		return nil
	}
	r.sum.Store(&sum)
	r.used.Store(h.Used)
	return x.put(h, r)
}

// put makes r the recipe that h stands for, unless its image is being made again.
func (x *images) put(h *made.Header, r *recipe) *recipe {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.past.find(h.Image) != h {
		return nil
	}
	x.past.forget(h.Image)
	x.addLocked(h.Image, r)
	return r
}

// Save writes how images were made, if there is anything new to write. It reads each new image once.
func (t *Table) Save() {
	x := &t.images
	if x.past == nil {
		return
	}
	x.past.saving.Lock()
	defer x.past.saving.Unlock()
	x.past.mu.Lock()
	dirty := x.past.dirty
	x.past.dirty = false
	x.past.mu.Unlock()
	if !dirty {
		return
	}
	if err := made.Save(x.past.file, x.headers(), time.Now()); err != nil {
		t.log.Warn("save how precompiled headers were made", "err", err)
		x.past.changed()
	}
}

// headers returns all that is known of images.
func (x *images) headers() (list []made.Header) {
	x.mu.Lock()
	recipes := make(map[string]*recipe, len(x.recipes))
	for name, r := range x.recipes {
		recipes[name] = r
	}
	x.past.mu.Lock()
	for _, h := range x.past.allLocked() {
		list = append(list, *h)
	}
	x.past.mu.Unlock()
	x.mu.Unlock()
	for name, r := range recipes {
		if r.sum.Load() == nil {
			sum, ok := made.Sum(name, r.at)
			if !ok {
				continue // it was changed meanwhile
			}
			r.sum.Store(&sum)
		}
		l, cmd := r.lease, r.lease.Command
		list = append(list, made.Header{Image: name, At: r.at, Sum: *r.sum.Load(), List: r.list, Toolchain: r.compiler.ID,
			Compiler: l.Compiler, Source: l.Source, Cwd: l.Cwd, Argv0: cmd.Argv0, Real: cmd.Real, Args: cmd.Args, Env: cmd.Env, Used: r.used.Load()})
	}
	return list
}
