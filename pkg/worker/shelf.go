package worker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/move"
	"github.com/rdistcc/rdistcc/pkg/worker/shelves"
)

// shelf is a connection's access to its tenant's shelf, or to that of its tenant's group. It exists as long as the QP.
type shelf struct {
	*shelves.Tenant
	group string // empty: it is its tenant's alone
	mr    iwarp.MR
}

// shared reports whether others than the client's tenant use the shelf. Nobody uses a nil one.
func (x *shelf) shared() bool { return x != nil && x.group != "" }

// groupShelf returns the name of a group's shelf, which no tenant can have: theirs have no spaces.
func groupShelf(group string) string { return "group " + group }

// newShelf gives a client access to its tenant's shelf. It returns nil if the client cannot read, if there is
// no shelf for the tenant, or if the memory could not safely change during a Read, as with newBoard.
func (c *conn) newShelf() (*shelf, error) {
	if !c.peerReads || !c.s.o.Device.Attr().Guard {
		return nil, nil
	}
	name := c.lent.Tenant().Name()
	group := c.s.o.Groups[name]
	if group != "" {
		name = groupShelf(group)
	}
	t, err := c.s.shelves.Join(name)
	if t == nil {
		return nil, err
	}
	o := &iwarp.MROptions{QP: c.qp}
	if f := t.Source(); f != nil {
		o.Source = f
	} else {
		o.Guard = t.Guard()
	}
	mr, err := c.pd.RegMR(t.Mem(), iwarp.RemoteRead, o)
	if err != nil {
		c.s.shelves.Leave(t)
		return nil, fmt.Errorf("register a shelf: %w", err)
	}
	return &shelf{Tenant: t, group: group, mr: mr}, nil
}

// window returns the window through which the client reads the shelf. It is zero for a nil shelf.
func (x *shelf) window() job.Window {
	if x == nil {
		return job.Window{}
	}
	return job.Window{STag: uint32(x.mr.STag()), TO: x.mr.Base(), Len: x.Len()}
}

// shares returns the group whose shelf it is, or "".
func (x *shelf) shares() string {
	if x == nil {
		return ""
	}
	return x.group
}

// leaveShelf ends the client's access, after the QP has ended.
func (c *conn) leaveShelf() error {
	if c.shelf == nil {
		return nil
	}
	err := c.shelf.mr.Dereg()
	if err == nil { // otherwise the memory has to stay
		c.s.shelves.Leave(c.shelf.Tenant)
	}
	c.shelf = nil
	return err
}

// shelve puts a task's result on the tenant's shelf, if the client has named it. n bytes at the start of the
// task's memory have its content, unless it is offered. It takes a few microseconds more than the SHA-256 of
// that content, and the time to copy it if the shelf is in a file.
func (t *task) shelve(r *job.Result, n int) {
	c, m := t.c, t.m
	if c.shelf == nil || !t.good(r) {
		return
	}
	key, base := resultcache.Key(m.Key), ""
	if t.moves && !c.shelf.shared() { // a group's results have the name that the host finds itself
		key, base = m.Moved, strings.TrimSuffix(m.Base, "/")
	}
	e := resultcache.Raw{Key: key, Exit: r.Exit, Packed: r.Packed != 0, Stdout: uint32(r.Stdout.Len), Stderr: uint32(r.Stderr.Len)}
	for i := range r.Files {
		e.Files = append(e.Files, resultcache.RawFile{Index: r.Files[i].Index, Len: uint32(r.Files[i].Len)})
	}
	if t.job.Offered != nil {
		e.Outputs = t.job.Offered.Mem
	} else {
		e.Outputs = t.job.Source.Slot[:n]
	}
	// Clients know the host by a name that it does not know.
	e.Origin = resultcache.Origin{Made: time.Now(), Builder: c.name, Source: t.source, Compiler: t.job.Toolchain.Family + " " + t.job.Toolchain.Version,
		CPU: time.Duration(r.CPU) * time.Microsecond, Wall: time.Since(t.started), Base: base}
	var err error
	kept := false
	if c.shelf.shared() {
		kept, err = t.shareWithGroup(&e)
	} else {
		var front []byte
		if front, err = e.AppendFront(make([]byte, 0, 512)); err == nil {
			kept = c.shelf.Put(key, front, e.Outputs)
		}
	}
	if err == nil && !kept {
		err = errors.New("it is too long for the shelf, or there is no room")
	}
	if err != nil {
		c.log.Debug("a result is not kept", "job", m.ID, "err", err)
	}
}

// made looks at a result before it is packed: what a link may bring back is put into the store, and it finds out whether the result
// depends on the directory that its client has named.
func (t *task) made(b *job.Body, r *job.Result, content []byte) {
	if keeps := t.c.keeps; keeps != nil {
		for _, out := range b.Modules(r, content) {
			if _, c, err := keeps.PutOwn(out); err == nil { // otherwise it is sent when it is needed
				c.Unpin()
			}
		}
	}
	if t.m.Base == "" || t.c.shelf == nil {
		return
	}
	name, named := strings.CutSuffix(t.m.Base, "/")
	base, ok := move.Of(name)
	if !ok || string(base) != name {
		return
	}
	hole := ""
	if named {
		hole = b.Cwd
	}
	part := func(s job.Segment) []byte { return content[s.Off:][:s.Len] }
	var outputs []move.Output
	for i := range r.Files {
		outputs = append(outputs, move.Output{Kind: b.Outputs[r.Files[i].Index].Kind, Data: part(r.Files[i].Segment)})
	}
	t.moves = base.Outputs(part(r.Stdout), part(r.Stderr), outputs, hole)
}

// openShelves makes the shelves, if the settings have room for any.
func (s *Server) openShelves() {
	o := shelves.Options{Budget: s.o.Results, Keep: s.o.Store.Keep, Log: s.o.Log}
	if s.o.Device.Attr().Source {
		o.Dir, o.Disk = s.o.ResultsDir, s.o.ResultsDisk
	}
	s.shelves = shelves.New(o)
}
