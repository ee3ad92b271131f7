package connmgr

import (
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// checker returns what checks entries that somebody else has made.
func (c *client) checker(k *known.Job) func(*resultcache.Entry) error {
	return func(e *resultcache.Entry) error { return c.check(k.Body, k.Modules, e) }
}

// check returns why an entry that somebody else has made is not accepted as a job's result. Its outputs are in the
// client's sink. It is checked as a host's answer would be.
func (c *client) check(body *job.Body, rules modules.Rules, e *resultcache.Entry) error {
	if e.Exit != 0 {
		return fmt.Errorf("%w: its exit status is %d", resultcache.ErrDamaged, e.Exit)
	}
	r, mem := segmentsOf(e), c.sink.Bytes()
	err := trust.Result(&r, body, uint64(len(mem)))
	what := "numbers"
	if err == nil {
		what, err = trust.Contents(&r, mem, body, rules, c.expectObject(body))
	}
	if errors.Is(err, outputs.ErrDoubt) {
		c.m.metrics.Distrusted("doubt")
		return resultcache.ErrMiss // the compile will show whether the local one prints that
	}
	if err != nil {
		c.m.metrics.Distrusted("forged")
		return fmt.Errorf("%w: its %s: %w", resultcache.ErrDamaged, what, err)
	}
	if tellsTime(e.Files, e.Made.Add(-e.Wall), e.Made) {
		return resultcache.ErrMiss
	}
	return nil
}

// segmentsOf returns an entry, whose outputs are one behind the other, as a host would have answered.
func segmentsOf(e *resultcache.Entry) (r job.Result) {
	at := uint64(0)
	next := func(part []byte) (s job.Segment) {
		s = job.Segment{Off: at, Len: uint64(len(part))}
		at += s.Len
		return s
	}
	r.Status, r.Exit = job.StatusRan, e.Exit
	r.Stdout, r.Stderr = next(e.Stdout), next(e.Stderr)
	for i := range e.Files {
		r.Files = append(r.Files, job.File{Index: e.Files[i].Index, Segment: next(e.Files[i].Data)})
	}
	return r
}
