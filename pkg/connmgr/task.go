package connmgr

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/pkg/artifact"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/history"
	"github.com/rdistcc/rdistcc/pkg/hostlist"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// task is a job as its wrapper submitted it: all that attempts at it need. They may
// go on when the wrapper has its answer, so nothing here is the client's.
// It does not change once it is made, but for whole.
type task struct {
	m         *Manager
	id        uint64 // the job's
	uid       uint32
	toolchain job.ToolchainID
	name      string // of the source, as the command has it
	limit     time.Duration
	known     *known.Job  // its inputs are known: each attempt makes the text that its host needs
	whole     atomic.Bool // of known: a host is to get all that it reads, whatever it holds
	source    *slots.Hold // nil: known
	text      []byte      // encoded body and what follows it; nil: known
	body      *job.Body
	bodyLen   uint32
	textOff   uint32
	textLen   uint64
	key       history.Key
	object    func() (artifact.Object, bool)  // what the compiler here makes; false: not known
	cost      scheduler.Cost                  // what it is expected to take
	compress  map[string]hostlist.Compression // by address, where the list asks for one
}

// total is the bytes of body and text, where a host has nothing of it.
func (t *task) total() uint64 {
	if t.known != nil {
		return t.known.Set.Len
	}
	return uint64(len(t.text))
}

// task reads what was submitted. The memory stays the client's, who shares it.
func (c *client) task(f *ipc.Submit) (*task, *ipc.GoLocal) {
	total, end := uint64(f.TextOff)+f.TextLen, slotEnd(f)
	if uint64(f.BodyLen) > uint64(f.TextOff) || f.TextOff%job.BodyAlign != 0 || f.BodyOff%job.BodyAlign != 0 ||
		f.TextLen > uint64(c.m.o.Source) || end > uint64(c.m.o.Source) || f.BodyLen == 0 {
		return nil, &ipc.GoLocal{Reason: reason.Manager, Trouble: true, Code: reason.ExitProtocol,
			Detail: "the wrapper named a source outside its slot"}
	}
	text, err := c.text(end)
	if err != nil {
		return nil, noSlot(err)
	}
	text = text[f.BodyOff:][:total]
	if c.foreign() {
		text = bytes.Clone(text) // takeLarge has counted it
	}
	body, err := job.ParseBody(text[:f.BodyLen])
	if err != nil {
		return nil, &ipc.GoLocal{Reason: reason.Manager, Trouble: true, Code: reason.ExitProtocol, Detail: "the wrapper's job: " + err.Error()}
	}
	t := &task{m: c.m, id: c.id, uid: c.uid, toolchain: c.compiler.ID, name: c.record.Source, limit: c.timeLimit(),
		compress: c.list.Compress, source: c.source, text: text, body: body, bodyLen: f.BodyLen, textOff: f.TextOff, textLen: f.TextLen}
	t.object = c.expectObject(body)
	c.predict(t)
	c.record.Files = uint32(len(body.Files))
	return t, nil
}

// slotEnd is how far the slot is in use, in bytes.
func slotEnd(f *ipc.Submit) uint64 { return uint64(f.BodyOff) + uint64(f.TextOff) + f.TextLen }

// text is the first n bytes of the slot.
func (c *client) text(n uint64) ([]byte, error) {
	if b := c.source.Bytes(); n <= uint64(len(b)) {
		return b[:n], nil
	}
	return c.source.Extend(int64(n))
}

// timeLimit is how long an attempt may take, from its first byte on.
func (c *client) timeLimit() time.Duration {
	if ms := c.lease.IOTimeoutMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return c.m.live().IOTimeout
}

// request is the job as the scheduler sees it; size is 0 while it is not known.
func (c *client) request(size uint64, tree bool) scheduler.Job {
	return scheduler.Job{
		Hosts: c.list.Sched, Tried: make(map[string]bool), Toolchain: c.compiler.ID, Size: size,
		Since: time.Now(), Share: c.list.Share, Random: c.list.Randomize,
		Tree: tree, NoLocal: c.lease.Mode == ipc.ModeRemote, Strict: c.strict(), Asked: c.asked,
		NoBackoff: c.lease.BackoffMS == ipc.NoBackoff,
		Bytes:     size, Build: c.record.Build, Local: c.m.live().LocalShare && c.lease.Mode == ipc.ModeAuto,
	}
}

// strict says that the command fails if the farm does not compile it, whichever setting
// forbids to do it here.
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

// build says which build the wrapper belongs to, for a fair share among builds: the
// one that RDISTCC_BUILD names, else that of its process.
func (c *client) build() uint64 {
	if c.lease.Build != "" {
		return machine.NamedBuild(c.uid, c.lease.Build)
	}
	return c.m.turns.builds.Of(int(c.pid))
}

// attempt makes ready to bring t to the host of g, with sink for its result. ctx
// ends it early. It holds both memories until release.
func (t *task) attempt(ctx context.Context, g farm.Grant, sink *slots.Hold, asked time.Time) *attempt {
	a := &attempt{task: t, grant: g, at: g.Host, link: g.Link(), sink: sink, asked: asked}
	a.fl = &link.Flight{ID: t.m.ids.Add(1), Credit: g.Credit, Total: t.total(), Build: g.Req.Job.Build}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	if t.source != nil {
		t.source.Share()
	}
	return a
}
