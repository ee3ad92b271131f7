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

// Open opens all tiers, in the order in which they are asked.
func Open(c *config.Config, getenv func(string) string) ([]results.Tier, error) {
	if !c.Cache.Use {
		return nil, nil
	}
	var all []results.Tier
	own, err := Disk(c, getenv)
	if err != nil {
		return nil, err
	}
	if own != nil {
		all = append(all, results.Tier{Name: resultcache.TierManager, Store: own, Read: true, Write: true})
	}
	if c.Cache.Farm {
		all = append(all, results.Tier{Name: resultcache.TierFarm, Read: true})
	}
	return append(all, shared(c, getenv)...), nil
}
