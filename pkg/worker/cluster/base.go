package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
)

// base is the input root with a toolchain's files, and nothing else.
type base struct {
	of    toolchain.Toolchain
	done  chan struct{} // closed when the rest is set
	top   *directory    // sealed
	err   error         // why there is none
	again time.Time     // when to try again, if there is an error
	gone  bool          // its job went before it was made
}

// againTime is how long a toolchain is not tried that a cluster could not use, or that cannot travel.
const againTime = 30 * time.Second

// mostBases bounds the toolchains that are remembered, at some 2 MB each.
const mostBases = 64

// bases has the input roots of toolchains.
type bases struct {
	mu  sync.Mutex
	all map[string]*base // by a name of the toolchain and of where it is
}

// get returns the sealed root of a toolchain. The first job makes it by make, and others wait for that. If that job has gone before it
// was made, another one makes it.
func (k *bases) get(ctx context.Context, tc *toolchain.Toolchain, make func() (*directory, error)) (*directory, error) {
	for {
		b, mine := k.claim(tc)
		if mine {
			b.top, b.err = make()
			var no *job.Refusal
			switch {
			case b.err == nil:
			case ctx.Err() == nil && errors.As(b.err, &no) && (no.Cause == job.CauseTree || no.Cause == job.CauseToolchain):
				b.again = time.Now().Add(againTime)
			default: // trouble that passes
				b.gone = ctx.Err() != nil
				k.drop(tc, b)
			}
			close(b.done)
			return b.top, b.err
		}
		select {
		case <-b.done:
			if !b.gone {
				return b.top, b.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// nameOf returns the name of a toolchain among the bases.
func nameOf(tc *toolchain.Toolchain) string { return string(tc.ID[:]) + tc.Root + "\x00" + tc.Exec }

// claim returns the base of a toolchain. If it is mine, the caller makes it.
func (k *bases) claim(tc *toolchain.Toolchain) (b *base, mine bool) {
	name := nameOf(tc)
	k.mu.Lock()
	defer k.mu.Unlock()
	if b = k.all[name]; b != nil {
		select {
		case <-b.done:
			if b.of.Equal(*tc) && (b.err == nil || time.Now().Before(b.again)) {
				return b, false
			}
		default:
			return b, false
		}
	}
	b = &base{of: *tc, done: make(chan struct{})}
	if k.all == nil || len(k.all) >= mostBases {
		k.all = map[string]*base{}
	}
	k.all[name] = b
	return b, true
}

// drop removes b, if it is still there.
func (k *bases) drop(tc *toolchain.Toolchain, b *base) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[nameOf(tc)] == b {
		delete(k.all, nameOf(tc))
	}
}

// forget drops the root of a toolchain whose files have changed.
func (k *bases) forget(tc *toolchain.Toolchain) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, nameOf(tc))
}

// baseOf describes a toolchain as an input root. It reads all its files.
func baseOf(ctx context.Context, tc *toolchain.Toolchain) (*directory, error) {
	r := newRoot()
	var err error
	if tc.Root == "" {
		err = r.installed(ctx, tc)
	} else {
		err = r.sent(ctx, tc.Root)
	}
	// Every private tree has the last two: a compiler makes its temporary files in one, and gcc wants one of its own header directories.
	for _, dir := range []string{"/tmp", "/usr/include"} {
		if err == nil {
			err = r.mkdirs(dir)
		}
	}
	if err == nil {
		err = r.top.seal()
	}
	if err != nil {
		return nil, err
	}
	return r.top, nil
}

// installed adds a toolchain of this machine.
func (r *root) installed(ctx context.Context, tc *toolchain.Toolchain) error {
	p, err := parcel.Make(ctx, tc)
	if errors.Is(err, parcel.ErrCannotTravel) {
		return job.Refuse(job.CauseToolchain, "%v", err)
	}
	if err != nil {
		return err
	}
	// Links first: names lead through them.
	for i := range p.Entries {
		if e := &p.Entries[i]; e.Link() {
			if err := r.symlink(e.Target, e.Name); err != nil {
				return err
			}
		}
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.Link() {
			continue
		}
		f := &content{Blob: cas.Blob{Digest: cas.DigestFor(e.Sum, int64(e.Len)), Open: e.Open}, exec: e.Exec, base: true}
		if err := r.write(e.Name, f); err != nil {
			return err
		}
	}
	return nil
}

// sent adds a toolchain that a client has sent and that is laid out below dir.
func (r *root) sent(ctx context.Context, dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		at := "/" + strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.IsDir():
			return r.mkdirs(at)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return r.symlink(target, at)
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is no regular file", name)
		}
		f, err := laid(name)
		if err != nil {
			return err
		}
		return r.write(at, f)
	})
}

// laid describes a file of a toolchain that was sent, which nobody changes.
func laid(name string) (*content, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return os.Open(name) }
	return &content{Blob: cas.Blob{Digest: cas.DigestFor([sha256.Size]byte(h.Sum(nil)), n), Open: open}, exec: st.Mode()&0o111 != 0, base: true}, nil
}
