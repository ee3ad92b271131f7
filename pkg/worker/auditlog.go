package worker

import (
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/worker/auditlog"
)

// auditPeer returns the peer as the audit log records it.
func (c *conn) auditPeer() auditlog.Peer {
	return auditlog.Peer{Tenant: c.lent.Tenant().Name(), Remote: c.remote.String(), Proof: c.proof, Client: c.id, Name: c.name}
}

// logAudit records a task that was answered in the audit log. n bytes of its result went to the client's sink.
func (t *task) logAudit(r *job.Result, n int) {
	j := auditlog.Job{Peer: t.c.auditPeer(), Asked: t.m, Answer: r, Written: n, Language: t.language, Source: t.source, Files: t.files}
	if t.job.Toolchain != nil {
		j.Compiler = t.job.Toolchain.Family + "-" + t.job.Toolchain.Version
	}
	if t.job.Excess != sandbox.ExcessNone {
		j.Excess = t.job.Excess.String()
	}
	t.c.s.o.Audit.Job(&j)
}
