package ctl

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/rdistcc/rdistcc/internal/executor"
)

// cluster checks the cluster that a daemon with this machine's settings hands its jobs to, if there is one.
func (d *doctor) cluster(f *findings) {
	c := &d.cfg.Cluster
	if c.Executor == "" {
		return
	}
	const check = "cluster"
	k, err := executor.Open(c, os.Getenv, slog.New(slog.DiscardHandler))
	if err != nil {
		f.fail(check, err.Error(), "correct the setting; docs/kubernetes.md has all of them")
		return
	}
	defer k.Close()
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	if err := k.Check(ctx); err != nil {
		f.fail(check, c.Executor+": "+err.Error(), "docs/kubernetes.md has what each of these lines means")
		return
	}
	ahead, told, err := k.Try(ctx)
	if err != nil {
		f.fail(check, c.Executor+": "+err.Error(), "docs/kubernetes.md, Trouble with a cluster; its rules say who may upload, and how much")
		return
	}
	if told && ahead.Abs() > skewed {
		f.warn(check, fmt.Sprintf("%s: its clock differs from this machine's by %v", c.Executor, ahead), "set both by NTP: tokens and certificates are valid by them")
	}
	f.ok(check, "%s runs actions, with SHA256, and takes uploads; whether its workers can run a compiler is found out with the first job", c.Executor)
}

// skewed is how far a cluster's clock may be from this machine's before that is said.
const skewed = time.Minute
