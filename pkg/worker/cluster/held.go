package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/rdistcc/rdistcc/internal/cas"
)

// heldTime is how long a blob counts as held after the server has said so. Then it is asked again, which costs no more than the
// blob's name. What it has lost earlier, an execution tells.
const heldTime = 10 * time.Minute

// mostHeld bounds the blobs that are remembered, at some 150 bytes each.
const mostHeld = 1 << 19

// held remembers which blobs the server holds, and has one caller at a time upload a blob that it lacks.
type held struct {
	mu    sync.Mutex
	since map[string]time.Time     // by hash
	comes map[string]chan struct{} // uploads that are under way, closed at their end
}

// claim divides blobs: mine are those that the caller now has to see to, by calling settle; wait are uploads of others.
func (h *held) claim(all []cas.Blob, now time.Time) (mine []cas.Blob, wait []chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.comes == nil {
		h.since, h.comes = make(map[string]time.Time), make(map[string]chan struct{})
	}
	for i := range all {
		hash := all[i].Digest.Hash
		if at, ok := h.since[hash]; ok && now.Sub(at) < heldTime {
			continue
		}
		if c := h.comes[hash]; c != nil {
			wait = append(wait, c)
			continue
		}
		h.comes[hash] = make(chan struct{})
		mine = append(mine, all[i])
	}
	return mine, wait
}

// settle ends a claim: held says that the server now holds the blobs.
func (h *held) settle(mine []cas.Blob, held bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held && len(h.since)+len(mine) > mostHeld {
		clear(h.since)
	}
	for i := range mine {
		hash := mine[i].Digest.Hash
		if held {
			h.since[hash] = now
		}
		if c := h.comes[hash]; c != nil { // a blob may be in mine twice
			close(c)
			delete(h.comes, hash)
		}
	}
}

// forget says that the server does not hold these blobs, after all.
func (h *held) forget(hashes []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hash := range hashes {
		delete(h.since, hash)
	}
}

// provide makes the server hold all blobs.
func (c *Cluster) provide(ctx context.Context, all []cas.Blob) error {
	for {
		mine, wait := c.held.claim(all, time.Now())
		if len(mine) == 0 && len(wait) == 0 {
			return nil
		}
		if len(mine) > 0 {
			err := c.upload(ctx, mine)
			c.held.settle(mine, err == nil, time.Now())
			if err != nil {
				return err
			}
		}
		for _, other := range wait {
			select {
			case <-other: // it may have failed, or its job may have gone
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// upload uploads those of the blobs that the server lacks.
func (c *Cluster) upload(ctx context.Context, all []cas.Blob) error {
	can, err := c.abilities(ctx)
	if err != nil {
		return err
	}
	digests := make([]*repb.Digest, len(all))
	for i := range all {
		digests[i] = all[i].Digest
	}
	var missing []*repb.Digest
	err = c.call(ctx, func(ctx context.Context) (err error) {
		missing, err = c.server.Missing(ctx, digests)
		return err
	})
	if err != nil {
		return err
	}
	lacks := make(map[string]bool, len(missing))
	for _, d := range missing {
		lacks[d.GetHash()] = true
	}
	some := slices.DeleteFunc(slices.Clone(all), func(b cas.Blob) bool { return !lacks[b.Digest.Hash] })
	c.count.held.Add(uint64(len(all) - len(some)))
	if len(some) == 0 {
		return nil
	}
	if err := c.call(ctx, func(ctx context.Context) error { return c.server.Write(ctx, can.batch, some) }); err != nil {
		return err
	}
	for i := range some {
		c.count.sent.Add(uint64(some[i].Digest.SizeBytes))
	}
	c.count.blobs.Add(uint64(len(some)))
	return nil
}
