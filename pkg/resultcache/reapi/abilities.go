package reapi

import (
	"context"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/rdistcc/rdistcc/internal/cas"
)

// abilities are what a server has said that it can do.
type abilities struct {
	update bool // it takes results from clients
	batch  int  // bytes of blobs that one request or answer may have in all
}

// abilities asks the server, once, what it can do.
func (s *Store) abilities(ctx context.Context) (*abilities, error) {
	s.mu.Lock()
	can := s.can
	s.mu.Unlock()
	if can != nil {
		return can, nil
	}
	c, err := s.server.Capabilities(ctx)
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
	batch, err := cas.Batch(c)
	if err != nil {
		return nil, err
	}
	return &abilities{update: c.GetActionCacheUpdateCapabilities().GetUpdateEnabled(), batch: batch}, nil
}
