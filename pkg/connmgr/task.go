package connmgr

import (
	"bytes"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// task makes a task from what was submitted. It shares the client's memory.
func (c *client) task(f *ipc.Submit) (*attempt.Task, *ipc.GoLocal) {
	total, end := uint64(f.TextOff)+f.TextLen, slotEnd(f)
	if uint64(f.BodyLen) > uint64(f.TextOff) || f.TextOff%job.BodyAlign != 0 || f.BodyOff%job.BodyAlign != 0 ||
		f.TextLen > uint64(c.m.o.Source) || end > uint64(c.m.o.Source) || f.BodyLen == 0 {
		return nil, &ipc.GoLocal{Reason: reason.Manager, Trouble: true, Code: reason.ExitProtocol,
			Detail: "the wrapper named a source outside its slot"}
	}
	text, err := c.text(end)
	if err != nil {
		return nil, attempt.NoSlot(err)
	}
	text = text[f.BodyOff:][:total]
	if c.foreign() {
		text = bytes.Clone(text) // takeLarge has counted it
	}
	body, err := job.ParseBody(text[:f.BodyLen])
	if err != nil {
		return nil, &ipc.GoLocal{Reason: reason.Manager, Trouble: true, Code: reason.ExitProtocol, Detail: "the wrapper's job: " + err.Error()}
	}
	t := c.newTask(body)
	t.Source, t.Text, t.BodyLen, t.TextOff = c.source, text, f.BodyLen, f.TextOff
	t.Modules = modules.Rules{Module: f.Module, File: f.ModuleFile, Imports: f.Imports}
	c.predict(t)
	c.record.Files = uint32(len(body.Files))
	return t, nil
}

// predict sets what t is expected to take.
func (c *client) predict(t *attempt.Task) {
	c.m.past.predict(t)
	c.record.Predicted = t.Cost.Time
}

// newTask returns the task of a job.
func (c *client) newTask(body *job.Body) *attempt.Task {
	return &attempt.Task{Base: &c.m.base, ID: c.id, UID: c.uid, Toolchain: c.compiler.ID, Name: c.record.Source, Limit: c.timeLimit(),
		Compress: c.list.Compress, Body: body, Object: c.expectObject(body)}
}

// timeLimit returns how long an attempt may take, from its first byte on.
func (c *client) timeLimit() time.Duration {
	if ms := c.lease.IOTimeoutMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return c.m.live().IOTimeout
}

// request returns the job as the scheduler sees it. size is 0 while it is not known.
func (c *client) request(size uint64, tree bool) scheduler.Job {
	return scheduler.Job{
		Hosts: c.list.Sched, Tried: make(map[string]bool), Toolchain: c.compiler.ID, Size: size,
		Since: time.Now(), Share: c.list.Share, Random: c.list.Randomize,
		Tree: tree, NoLocal: c.lease.Mode == ipc.ModeRemote, Strict: c.strict(), Asked: c.asked,
		NoBackoff: c.lease.BackoffMS == ipc.NoBackoff,
		Bytes:     size, Build: c.record.Build, Local: c.m.live().LocalShare && c.lease.Mode == ipc.ModeAuto,
	}
}

// strict reports whether the command must fail if the farm does not compile it, whichever setting forbids
// compiling locally.
func (c *client) strict() bool {
	switch c.lease.Fallback {
	case ipc.FallbackForbidden:
		return true
	case ipc.FallbackAllowed:
		return c.lease.Mode == ipc.ModeRemote
	default:
		return c.lease.Mode == ipc.ModeRemote || c.m.live().NoFallback
	}
}
