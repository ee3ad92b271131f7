package reapi

import (
	"context"
	"errors"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// abilities are what a server has said that it can do.
type abilities struct {
	update bool // it takes results from clients
	batch  int  // bytes of blobs that one request or answer may have in all
}

// maxBatch is the most that one request or answer may have, in bytes of blobs. Servers need not say how long a message
// they take: Buildbarn may be set to take 2 MiB, and says nothing. Longer blobs go as streams, at no more requests.
const maxBatch = 1 << 20

// abilities asks the server, once, what it can do.
func (s *Store) abilities(ctx context.Context) (*abilities, error) {
	s.mu.Lock()
	can := s.can
	s.mu.Unlock()
	if can != nil {
		return can, nil
	}
	c, err := s.capabilities.GetCapabilities(ctx, &repb.GetCapabilitiesRequest{InstanceName: s.instance})
	if err != nil {
		return nil, err
	}
	if can, err = readAbilities(c.GetCacheCapabilities()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.can = can
	return can, nil
}

// forget has the server asked again.
func (s *Store) forget(can *abilities) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.can == can {
		s.can = nil
	}
}

func readAbilities(c *repb.CacheCapabilities) (*abilities, error) {
	if c == nil {
		return nil, errors.New("the server has no cache")
	}
	if !slices.Contains(c.DigestFunctions, repb.DigestFunction_SHA256) {
		return nil, errors.New("the server does not know SHA256 as a digest function")
	}
	can := &abilities{update: c.GetActionCacheUpdateCapabilities().GetUpdateEnabled(), batch: maxBatch}
	if n := c.MaxBatchTotalSizeBytes; n > 0 && n < int64(can.batch) { // 0: no limit of its own
		can.batch = int(n)
	}
	return can, nil
}
