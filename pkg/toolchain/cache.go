package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxEntries bounds a Cache; past it everything is asked for anew.
const maxEntries = 1024

// Cache identifies compilers. The first look at one runs it a few times and reads
// its files; later ones compare the files' identity (device, inode, size, times).
// It is safe for concurrent use. The zero value is ready.
type Cache struct {
	// Home is the HOME that compilers run with, as clang may read a configuration
	// there; empty for none. Set before the first use.
	Home string
	// Trust is how long after a look at all files of a compiler only the compiler
	// itself is looked at; 0 = all of them each time. Set before the first use.
	Trust time.Duration

	// File remembers what was found for the next run of this program, in a directory
	// that only this user may write to; empty for none. Set before the first use.
	File string

	// Answer bounds how long a compiler may take for one question; 0 = 20 s. Set before
	// the first use.
	Answer time.Duration

	begin  sync.Once
	ctx    context.Context // of all runs of compilers; set by begun
	cancel context.CancelFunc
	asking sync.RWMutex // held, to read, while a compiler is asked

	loading sync.Once
	saving  sync.Mutex // held while the file is written; before mu
	saved   time.Time  // when that was last; guarded by saving
	unsaved bool       // something is newer; guarded by saving

	sums   sums
	flight singleflight.Group

	mu      sync.Mutex
	entries map[string]*entry // guarded by mu
	paths   map[string]lookup // guarded by mu: a PATH, and what counts of it
}

// lookup is what of a PATH counts, as it was at a time since start.
type lookup struct {
	path string
	at   time.Duration
}

// reduced is Env.reduced, trusted for as long as a look at a compiler's files.
func (c *Cache) reduced(env Env) Env {
	now := time.Since(start)
	c.mu.Lock()
	l, ok := c.paths[env.Path]
	c.mu.Unlock()
	if ok && now-l.at < c.Trust {
		env.Path = l.path
		return env
	}
	whole := env.Path
	env = env.reduced()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paths == nil || len(c.paths) >= maxEntries {
		c.paths = make(map[string]lookup)
	}
	c.paths[whole] = lookup{env.Path, now}
	return env
}

type entry struct {
	tc     Toolchain
	err    error        // of the kind that only a change of the files can cure
	stamps []stamped    // the compiler's own first
	looked atomic.Int64 // when all were compared, in nanoseconds since start
}

// start is what the looks are counted from: the clock that nobody sets.
var start = time.Now()

type stamped struct {
	Path string
	At   stamp
}

// Identify says what the compiler at an absolute path is. Concurrent calls for
// one path share the work; ctx bounds only this call's wait.
//
// An error for which errors.Is(err, ErrUnknown) holds, or a missing file's,
// stays until the files change.
func (c *Cache) Identify(ctx context.Context, path string) (Toolchain, error) {
	return c.IdentifyIn(ctx, path, Env{})
}

// IdentifyIn is Identify for a compiler that runs in an environment.
func (c *Cache) IdentifyIn(ctx context.Context, path string, env Env) (Toolchain, error) {
	if !filepath.IsAbs(path) {
		return Toolchain{}, fmt.Errorf("identify compiler: %s is not an absolute path", path)
	}
	key, env, e := c.look(path, env)
	if e != nil {
		return e.tc, e.err
	}
	ch := c.flight.DoChan(key, func() (any, error) {
		// Not the caller's context: others may be waiting too. Each run of a
		// program has a limit of its own.
		c.asking.RLock()
		defer c.asking.RUnlock()
		f, err := identify(c.begun(), c.answer(), &c.sums, c.Home, path, env)
		e := &entry{tc: f.tc, err: err}
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
		c.entries[key] = e
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

// Known is Identify, for what is known from an earlier look at files that have not changed:
// nothing is run. ok reports whether that is so.
func (c *Cache) Known(path string) (tc Toolchain, err error, ok bool) {
	_, _, e := c.look(path, Env{})
	if e == nil {
		return Toolchain{}, nil, false
	}
	return e.tc, e.err, true
}

// look returns what is known of a compiler, or nil, with the key of that and what of env
// counts.
func (c *Cache) look(path string, env Env) (key string, reduced Env, known *entry) {
	c.loading.Do(c.load)
	env = c.reduced(env)
	key = c.Home + "\x00" + path + "\x00" + env.Path + "\x00" + env.Libraries
	c.mu.Lock()
	e := c.entries[key]
	c.mu.Unlock()
	if e == nil || !e.fresh(c.Trust) {
		return key, env, nil
	}
	return key, env, e
}

// begun returns the context of everything that the cache runs.
func (c *Cache) begun() context.Context {
	c.begin.Do(func() { c.ctx, c.cancel = context.WithCancel(context.Background()) })
	return c.ctx
}

func (c *Cache) answer() time.Duration { return cmp.Or(c.Answer, probeTime) }

// Close kills the compilers that are being asked, and waits for their end. After it none
// is asked.
func (c *Cache) Close() {
	c.begun()
	c.cancel()
	c.asking.Lock()
	defer c.asking.Unlock()
	c.Flush()
}

func (e *entry) fresh(trust time.Duration) bool {
	now := int64(time.Since(start))
	stamps := e.stamps
	if now-e.looked.Load() < int64(trust) {
		stamps = stamps[:min(1, len(stamps))]
	}
	for i := range stamps {
		if stampOf(stamps[i].Path) != stamps[i].At {
			return false
		}
	}
	if len(stamps) == len(e.stamps) {
		e.looked.Store(now)
	}
	return true
}
