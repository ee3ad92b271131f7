// Package helper keeps results with a storage helper of ccache's: a program that keeps values in some store, such as
// those for HTTP, Redis or a cloud's buckets. So whatever store has a helper can be a tier.
//
//	Store    asks the helper, over a few connections
//	process  is the running helper: started when it is first wanted, started again when it has ended, ended by Close
//
// Nothing is believed: what a helper returns is an entry, which verifies itself, and how long it is and how long it
// takes is bounded by the caller and by MaxEntry.
package helper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

// Options are the options of Open.
type Options struct {
	// Program is the helper: a path, or a name that is looked for in PATH and in Dirs. Empty: that for URL's scheme.
	Program    string
	URL        secret.Secret
	Attributes []crsh.Attribute
	Secrets    []secret.Secret // among URL and Attributes, to be kept out of errors
	Environ    []string        // of the helper, besides what it is told
	Path       string          // where programs are looked for, as in PATH
}

// Dirs are where programs are looked for after PATH, as ccache looks for them.
var Dirs = []string{"/usr/local/libexec", "/usr/libexec"}

// MaxEntry is the largest entry that is kept, in bytes. It bounds what an answer of a helper may allocate.
const MaxEntry = 64 << 20

// maxConns is how many requests are under way at a time. Helpers serve one request of a connection after another.
const maxConns = 16

// Store keeps entries with a helper. It is safe for concurrent use.
type Store struct {
	o     Options
	turns *semaphore.Weighted

	mu      sync.Mutex
	process *process  // nil: none runs
	again   time.Time // none is started before that
	why     error     // set with again
	pause   time.Duration
	closed  bool
}

// Open returns the store of a helper, and starts it in the background.
func Open(o Options) (*Store, error) {
	scheme, _, ok := strings.Cut(o.URL.Reveal(), ":")
	if !ok {
		return nil, errors.New("no URL of a store")
	}
	if o.Program == "" {
		o.Program = "ccache-storage-" + scheme
	}
	path, err := find(o.Program, o.Path)
	if err != nil {
		return nil, err
	}
	o.Program = path
	s := &Store{o: o, turns: semaphore.NewWeighted(maxConns)}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.runningLocked(time.Now())
	return s, err
}

// find returns the path of a program.
func find(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		p, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("the helper cannot be started: %w", err)
		}
		return p, nil
	}
	dirs := append(filepath.SplitList(path), Dirs...)
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			continue
		}
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("no program %s in PATH or in %s: install it, or name it by helper=", name, strings.Join(Dirs, ", "))
}

// Pauses after a helper has ended by itself before it is started again.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// runningLocked returns the process, which it starts if there is none.
func (s *Store) runningLocked(now time.Time) (*process, error) {
	if s.closed {
		return nil, errors.New("the store is closed")
	}
	if p := s.process; p != nil {
		if !p.over() {
			return p, nil
		}
		s.process = nil
		if now.Sub(p.began) > lastPause {
			s.pause = 0
		}
		s.pause = min(max(2*s.pause, firstPause), lastPause)
		s.again, s.why = now.Add(s.pause), p.err()
	}
	if now.Before(s.again) {
		return nil, s.why
	}
	p, err := start(&s.o)
	if err != nil {
		s.again, s.why = now.Add(firstPause), err
		return nil, err
	}
	s.process = p
	return p, nil
}

// do calls what with a connection to the helper.
func (s *Store) do(ctx context.Context, what func(c *crsh.Client) error) error {
	if err := s.turns.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.turns.Release(1)
	s.mu.Lock()
	p, err := s.runningLocked(time.Now())
	s.mu.Unlock()
	if err != nil {
		return s.hide(err)
	}
	c, old, err := p.client(ctx)
	if err != nil {
		return s.hide(err)
	}
	err = what(c)
	if crsh.IsBroken(err) && old && ctx.Err() == nil { // the helper may have closed what was idle
		_ = c.Close()
		if c, err = p.dial(ctx); err != nil {
			return s.hide(p.because(err))
		}
		err = what(c)
	}
	if crsh.IsBroken(err) {
		_ = c.Close()
		if ctx.Err() == nil {
			err = p.because(err)
		}
	} else {
		p.keep(c)
	}
	return s.hide(err)
}

// hide returns err without secrets, and in one line.
func (s *Store) hide(err error) error {
	if err == nil {
		return nil
	}
	for _, x := range s.o.Secrets {
		err = x.Hide(err)
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		err = fmt.Errorf("%q", err.Error())
	}
	return err
}

// Get implements resultcache.Store.
func (s *Store) Get(ctx context.Context, key resultcache.Key, buf []byte) ([]byte, error) {
	out := buf
	err := s.do(ctx, func(c *crsh.Client) error {
		return c.Get(ctx, key[:], func(size uint64, value io.Reader) (err error) {
			out, err = collect(buf, size, value)
			return err
		})
	})
	if errors.Is(err, crsh.ErrMissing) {
		return buf, resultcache.ErrMiss
	}
	if err != nil {
		return buf, err
	}
	return out, nil
}

// step is how much memory a value gets that has not come yet, in bytes: the helper may promise more than it sends.
const step = 1 << 20

// collect appends a value to buf.
func collect(buf []byte, size uint64, value io.Reader) ([]byte, error) {
	if size > MaxEntry {
		return buf, fmt.Errorf("the helper has a result of %d bytes: more than %d are not taken", size, MaxEntry)
	}
	for left := int(size); left > 0; {
		n := min(left, step)
		at := len(buf)
		if cap(buf)-at < n { // half as much again, so that a long one is not copied for each step
			buf = append(make([]byte, 0, max(at+n, at+at/2)), buf...)
		}
		buf = buf[:at+n]
		if _, err := io.ReadFull(value, buf[at:]); err != nil {
			return buf, err
		}
		left -= n
	}
	return buf, nil
}

// Put implements resultcache.Store.
func (s *Store) Put(ctx context.Context, key resultcache.Key, entry []byte) error {
	if len(entry) > MaxEntry {
		return fmt.Errorf("%w: it takes %d bytes", resultcache.ErrTooBig, len(entry))
	}
	return s.do(ctx, func(c *crsh.Client) error {
		_, err := c.Put(ctx, key[:], bytes.NewReader(entry), uint64(len(entry)), true)
		return err
	})
}

// Drop implements resultcache.Store.
func (s *Store) Drop(ctx context.Context, key resultcache.Key) error {
	return s.do(ctx, func(c *crsh.Client) error {
		_, err := c.Remove(ctx, key[:])
		return err
	})
}

// Close ends the helper.
func (s *Store) Close() error {
	s.mu.Lock()
	p := s.process
	s.process, s.closed = nil, true
	s.mu.Unlock()
	if p != nil {
		p.end()
	}
	return nil
}
