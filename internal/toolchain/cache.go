package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxEntries bounds a Cache; when it is exceeded, everything is asked for again.
const maxEntries = 1024

// Cache identifies compilers. The first look at one runs it a few times and reads its files. Each later
// one compares the identity (device, inode, size, times) of all relevant files, and checks all places where
// the driver would have found another program first. It is safe for concurrent use. The zero value is ready.
type Cache struct {
	// Home is the HOME with which compilers run, as clang may read a configuration there; empty
	// for none. Set it before the first use.
	Home string
	// File keeps the findings for the next run of this program. It is in a directory that only this
	// user may write to; empty for none. Set it before the first use.
	File string

	// Answer bounds how long a compiler may take for one question; 0 = 20 s. Set it before the
	// first use.
	Answer time.Duration

	begin  sync.Once
	ctx    context.Context // of all runs of compilers; set by begun
	cancel context.CancelFunc
	asking sync.RWMutex // read-locked while a compiler is asked

	loading sync.Once
	saving  sync.Mutex // held while the file is written; before mu
	saved   time.Time  // when the file was last written; guarded by saving
	unsaved bool       // there is something newer; guarded by saving

	sums   sums
	flight singleflight.Group

	mu      sync.Mutex
	entries map[string]*entry   // guarded by mu
	called  map[string][]string // guarded by mu: names of the helpers of a compiler, by its path
}

// names returns the names by which the compiler at path looks up its helpers on PATH. Before the
// first identification it returns those of most compilers.
func (c *Cache) names(path string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if names := c.called[path]; names != nil {
		return names
	}
	return helpers
}

// key returns the circumstances on which the result of an identification depends.
func (c *Cache) key(path string, env Env) string {
	return strings.Join(append([]string{c.Home, path, env.Path, env.Libraries}, env.Plugins...), "\x00")
}

type entry struct {
	tc     Toolchain
	err    error     // an error that only a change of the files can cure
	stamps []stamped // the compiler's own first
	names  []string  // of its helpers

	mu      sync.Mutex
	missing []missing // guarded by mu: their hints change
}

type stamped struct {
	Path string
	At   stamp
}

// Identify identifies the compiler at an absolute path. Concurrent calls for one path share the work; ctx
// bounds only this call's wait.
//
// An error for which errors.Is(err, ErrUnknown) holds, or that of a missing file, stays until the files
// change.
func (c *Cache) Identify(ctx context.Context, path string) (Toolchain, error) {
	return c.IdentifyIn(ctx, path, Env{})
}

// IdentifyIn is Identify for a compiler that runs in an environment.
func (c *Cache) IdentifyIn(ctx context.Context, path string, env Env) (Toolchain, error) {
	if !filepath.IsAbs(path) {
		return Toolchain{}, fmt.Errorf("identify compiler: %s is not an absolute path", path)
	}
	key, e := c.look(path, env)
	if e != nil {
		return e.tc, e.err
	}
	ch := c.flight.DoChan(key, func() (any, error) {
		// Not the caller's context: others may be waiting too. Each run of a
		// program has a limit of its own.
		c.asking.RLock()
		defer c.asking.RUnlock()
		f, err := identify(c.begun(), c.answer(), &c.sums, c.Home, path, env)
		e := &entry{tc: f.tc, err: err, names: f.names, missing: f.missing}
		if err != nil {
			e.tc = Toolchain{}
			if !errors.Is(err, ErrUnknown) && !errors.Is(err, fs.ErrNotExist) {
				return e, nil
			}
		}
		for p, at := range f.stamps {
			e.stamps = append(e.stamps, stamped{p, at})
		}
		// The path itself first: it is the likeliest to have changed.
		slices.SortFunc(e.stamps, func(a, b stamped) int {
			switch {
			case a.Path == path:
				return -1
			case b.Path == path:
				return 1
			}
			return 0
		})
		c.mu.Lock()
		if c.entries == nil || len(c.entries) >= maxEntries {
			c.entries = make(map[string]*entry)
		}
		if c.called == nil || len(c.called) >= maxEntries {
			c.called = make(map[string][]string)
		}
		c.called[path] = f.names
		c.entries[c.key(path, f.counts)] = e
		c.mu.Unlock()
		c.saveSoon()
		return e, nil
	})
	select {
	case r := <-ch:
		e := r.Val.(*entry)
		return e.tc, e.err
	case <-ctx.Done():
		return Toolchain{}, context.Cause(ctx)
	}
}

// Ask runs an identified compiler with words, in the environment in which it was identified, and returns what it
// prints on both its outputs.
func (c *Cache) Ask(ctx context.Context, t *Toolchain, words ...string) (string, error) {
	c.asking.RLock()
	defer c.asking.RUnlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.begun(), cancel)()
	text, err := newFinding(ctx, c.answer(), c.Home, Env{}).run(t.Exec, words...)
	if err != nil {
		return "", fmt.Errorf("ask compiler: %s: %w", t.Exec, err)
	}
	return text, nil
}

// Known returns what Identify found earlier, if the files have not changed since. It runs nothing. ok is false if
// nothing is known.
func (c *Cache) Known(path string) (tc Toolchain, err error, ok bool) {
	_, e := c.look(path, Env{})
	if e == nil {
		return Toolchain{}, nil, false
	}
	return e.tc, e.err, true
}

// look returns what is known of a compiler, or nil, and its key.
func (c *Cache) look(path string, env Env) (key string, known *entry) {
	c.loading.Do(c.load)
	key = c.key(path, env.reduced(c.names(path)))
	c.mu.Lock()
	e := c.entries[key]
	c.mu.Unlock()
	if e == nil || !e.fresh() {
		return key, nil
	}
	return key, e
}

// begun returns the context of everything that the cache runs.
func (c *Cache) begun() context.Context {
	c.begin.Do(func() { c.ctx, c.cancel = context.WithCancel(context.Background()) })
	return c.ctx
}

func (c *Cache) answer() time.Duration { return cmp.Or(c.Answer, probeTime) }

// Close kills the compilers that are being asked, and waits for their end. No compiler is asked after it.
func (c *Cache) Close() {
	c.begun()
	c.cancel()
	c.asking.Lock()
	defer c.asking.Unlock()
	c.Flush()
}

// fresh reports whether all files are unchanged.
func (e *entry) fresh() bool {
	for i := range e.stamps {
		if stampOf(e.stamps[i].Path) != e.stamps[i].At {
			return false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.missing {
		if !e.missing[i].still() {
			return false
		}
	}
	return true
}

// lacks returns what has to stay missing.
func (e *entry) lacks() []missing {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.missing)
}

// missing are names that a directory did not have, among many others that come and go: one that appears makes it another compiler.
type missing struct {
	Dir   string
	Names []string
	At    stamp // the directory's, when they were last looked for; zero: look again
}

// still reports whether they are still missing. While the directory is as it was, it does not look.
func (m *missing) still() bool {
	if at := stampOf(m.Dir); at == m.At {
		return true
	}
	m.At = hint(m.Dir)
	for _, name := range m.Names {
		if !stampOf(m.Dir + "/" + name).Absent {
			return false
		}
	}
	return true
}

// settled is how long ago a directory must have changed for its stamp to tell that it has not changed since: a file system's clock ticks
// every few milliseconds, or, on some, seconds.
const settled = 4 * time.Second

// hint returns a directory's stamp if each later change will give it another one, and otherwise zero. It is to be taken before the
// directory is examined.
func hint(dir string) stamp {
	at := stampOf(dir)
	if !at.Absent && time.Since(time.Unix(at.CTime.Unix())) < settled {
		return stamp{}
	}
	return at
}
