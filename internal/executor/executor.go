// Package executor opens the cluster that a daemon hands its jobs to, as the settings say.
package executor

import (
	"fmt"
	"log/slog"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/secret"
	"github.com/rdistcc/rdistcc/internal/tlsfiles"
	"github.com/rdistcc/rdistcc/pkg/worker/cluster"
)

// Token is the variable of the environment with the token, unless there is a file.
const Token = "RDISTCC_EXECUTOR_TOKEN"

// Open returns the cluster that the settings name, without connecting. Its errors name the setting that is wrong.
func Open(c *config.Cluster, getenv func(string) string, log *slog.Logger) (*cluster.Cluster, error) {
	tls, err := tlsfiles.Client("cluster", c.CA, c.Cert, c.Key)
	if err != nil {
		return nil, err
	}
	address, instance := c.Server()
	k, err := cluster.Open(cluster.Options{
		URL: address, Instance: instance, Header: c.Header, TLS: tls, Platform: c.Properties(), Cached: c.ActionCache, Log: log,
		Token: func() (secret.Secret, error) {
			s, err := secret.Find(c.TokenFile, Token, getenv)
			if err != nil {
				err = fmt.Errorf("cluster.token-file: %w", err)
			}
			return s, err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cluster.executor: %w", err)
	}
	return k, nil
}
