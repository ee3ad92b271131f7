// Package tiers opens the stores of the cache of results as the configuration says.
package tiers

import (
	"path/filepath"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/disk"
)

// Dir returns the directory of the manager's own tier, or "" if there is no place for it: cache.dir, else
// rdistcc/results in XDG_CACHE_HOME or in HOME's .cache.
func Dir(c *config.Config, getenv func(string) string) string {
	if c.Cache.Dir != "" {
		return c.Cache.Dir
	}
	if dir := getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "rdistcc", "results")
	}
	if dir := getenv("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".cache", "rdistcc", "results")
	}
	return ""
}

// Disk returns the manager's own tier, or nil if it is switched off or there is no place for it.
func Disk(c *config.Config, getenv func(string) string) (*disk.Store, error) {
	dir := Dir(c, getenv)
	if !c.Cache.Use || c.Cache.Size == 0 || dir == "" {
		return nil, nil
	}
	return disk.Open(dir, int64(c.Cache.Size))
}

// Open opens all tiers, in the order in which they are asked. Of those that are other programs' and servers', one that cannot
// be opened is a tier that gives trouble: that is logged when it is first used, and no build ends because of it.
func Open(c *config.Config, getenv func(string) string, environ []string) ([]results.Tier, error) {
	if !c.Cache.Use {
		return nil, nil
	}
	var all []results.Tier
	for _, use := range c.Tiers() {
		t := results.Tier{Name: use.Name, Read: use.Mode != config.ModeWrite, Write: use.Mode != config.ModeRead}
		switch use.Name {
		case resultcache.TierManager:
			own, err := Disk(c, getenv)
			if err != nil {
				return nil, err
			}
			if own == nil {
				continue
			}
			t.Store = own
		case resultcache.TierFarm:
			t.Write = false // hosts keep what they compile by themselves
		default:
			shared(&t, c, getenv, environ)
		}
		all = append(all, t)
	}
	return all, nil
}
