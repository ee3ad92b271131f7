package tiers

import (
	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Signing returns how results in the tiers that others use prove who has put them there. An error is about files of cache.trust: what
// is returned with it can be used, and takes nothing from those whom they are to name.
func Signing(c *config.Config, id *identity.Identity) (s results.Signing, err error) {
	if id.Mode() == identity.TLS {
		s.Sign = id.SignKept
	}
	trust, err := Trust(c, id)
	if trust != nil {
		s.Verify, s.Accepts = trust.Verify, trust.Accepts
	}
	return s, err
}

// Trust returns who may have signed them; nil: nobody has to. The error is that of identity.NewTrust.
func Trust(c *config.Config, id *identity.Identity) (*identity.Trust, error) {
	whom := c.Trust()
	if whom.Anyone {
		return nil, nil
	}
	return identity.NewTrust(id, identity.Trusted{Farm: whom.Farm, Names: whom.Names, Not: whom.Not, Files: whom.Files})
}

// Shared returns the names of the tiers that others use, as far as results are taken from there.
func Shared(c *config.Config) (names []string) {
	for _, t := range c.Tiers() {
		if t.Name != resultcache.TierManager && t.Name != resultcache.TierFarm && t.Mode != config.ModeWrite {
			names = append(names, t.Name)
		}
	}
	return names
}
