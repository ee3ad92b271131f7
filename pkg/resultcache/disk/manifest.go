package disk

import (
	"context"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// manifestSuffix ends the names of manifests. An entry and a manifest never have the same key.
const manifestSuffix = ".m"

var _ resultcache.Manifests = (*Store)(nil)

// GetManifest implements resultcache.Manifests. It notes that the manifest was used.
func (s *Store) GetManifest(_ context.Context, key resultcache.Key) ([]byte, error) {
	name, _ := s.path(key)
	return s.read(name+manifestSuffix, nil, resultcache.MaxManifest)
}

// PutManifest implements resultcache.Manifests. Manifests count towards the store's size like entries.
func (s *Store) PutManifest(_ context.Context, key resultcache.Key, manifest []byte) error {
	if int64(len(manifest)) > s.limit/mostOfPart {
		return fmt.Errorf("%w: a manifest takes %d bytes", resultcache.ErrTooBig, len(manifest))
	}
	name, p := s.path(key)
	return s.put(name+manifestSuffix, p, int(key[0]>>4), manifest)
}

// DropManifest implements resultcache.Manifests.
func (s *Store) DropManifest(_ context.Context, key resultcache.Key) error {
	name, p := s.path(key)
	return s.drop(name+manifestSuffix, p)
}
