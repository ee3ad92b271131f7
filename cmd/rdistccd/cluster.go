package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/executor"
	"github.com/rdistcc/rdistcc/pkg/worker/cluster"
)

// clusterJobs is how many jobs a daemon has a cluster do at a time, unless the settings say so: how much it can do, no cluster says.
const clusterJobs = 32

// openCluster returns the cluster that the settings name; nil: none. It asks what the cluster can do. One that will not do is an
// error; one that cannot be reached now may come.
func (d *daemon) openCluster(ctx context.Context) (*cluster.Cluster, error) {
	c := &d.cfg.Cluster
	if !reaches(d.cfg) {
		return nil, nil
	}
	token := os.Getenv(executor.Token)
	_ = os.Unsetenv(executor.Token) // not for the compilers that the daemon identifies
	k, err := executor.Open(c, func(string) string { return token }, d.log.Logger)
	if err != nil {
		return nil, usageError{err}
	}
	switch err := k.Check(ctx); {
	case errors.Is(err, cluster.ErrUnfit):
		_ = k.Close() // it has not been used
		return nil, fmt.Errorf("cluster %s: %w", c.Executor, err)
	case err != nil:
		d.log.Warn("no work is taken until the cluster can be reached", "cluster", c.Executor, "err", err)
	default:
		d.log.Info("jobs go to a cluster", "cluster", c.Executor)
	}
	return k, nil
}

// reaches reports whether jobs go to a cluster.
func reaches(c *config.Config) bool { return c.Cluster.Executor != "" }
