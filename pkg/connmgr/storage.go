package connmgr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

// MaxValue is the longest value that another program may keep here, in bytes.
const MaxValue = 32 << 20

// maxValues bounds how much memory values take that come and go, in bytes, each with its copy as it is kept. A look sets
// usualValue aside; for a longer value it takes more, or finds nothing if there is none.
const (
	maxValues  = 128 << 20
	usualValue = 2 << 20
)

// valuePatience is how long the other end of a connection may take for the next bytes.
const valuePatience = 10 * time.Second

// valuesOf is the program whose values these are: its name is part of theirs.
const valuesOf = "ccache"

// onStorage answers a Control that asks for the cache as a place for values (docs/cache.md, For users of ccache). From
// then on, the connection speaks package crsh's protocol. Like all that is kept, values are for the manager's own user.
func (c *client) onStorage(f *ipc.Control) error {
	if c.uid != 0 && c.uid != c.m.uid {
		return c.refuse(reason.ExitDenied, fmt.Sprintf("the connection manager is user %d's: only that user and root may keep values in its cache", c.m.uid))
	}
	if c.m.results == nil {
		return c.refuse(reason.ExitGeneral, "the connection manager has no cache of results (cache.use)")
	}
	list := c.m.lists.Of(f.Hosts)
	if list.Err != nil {
		return c.refuse(reason.ExitHostList, list.Err.Error())
	}
	if err := c.Send(&ipc.Reply{}); err != nil {
		return err
	}
	conn, err := c.Raw()
	if err != nil {
		return err
	}
	if !list.Empty() {
		c.m.farm.Want(list.Sched, nil) // for the next one, if hosts are not connected yet
	}
	s := &crsh.Server{Values: &values{c.m, list}, Identity: "rdistcc-cm " + c.m.o.Version, Patience: valuePatience}
	s.Serve(c.Context(), conn)
	return nil
}

// values are those that another program keeps in the cache of results. It implements crsh.Values.
type values struct {
	m    *Manager
	list *lists.List // of hosts whose memory is a tier
}

// Get implements crsh.Values.
func (v *values) Get(ctx context.Context, name []byte, take func(size uint64, value io.Reader) error) error {
	return v.find(ctx, name, func(value []byte) error { return take(uint64(len(value)), bytes.NewReader(value)) })
}

// find passes a value to use, or returns crsh.ErrMissing.
func (v *values) find(ctx context.Context, name []byte, use func(value []byte) error) error {
	memory := int64(usualValue)
	if v.m.values.Acquire(ctx, memory) != nil {
		return ctx.Err()
	}
	defer func() { v.m.values.Release(memory) }()
	room := func(n int) ([]byte, error) {
		more := 2*int64(n) - memory
		if n > MaxValue || more > 0 && !v.m.values.TryAcquire(more) {
			return nil, fmt.Errorf("a value of %d bytes", n)
		}
		memory += max(more, 0)
		return make([]byte, n), nil
	}
	hosts, early := shelved.New(v.m.farm, v.list.Sched, MaxValue)
	look := &results.Look{Key: resultcache.ValueKeyOf(valuesOf, name), Value: true, Farm: hosts, Room: room, Check: isValue}
	e, _ := v.m.results.Find(ctx, look)
	if e == nil && early && len(v.list.Sched) > 0 {
		hosts.Await(ctx)
		look.Only = resultcache.TierFarm
		e, _ = v.m.results.Find(ctx, look)
	}
	if e == nil {
		return crsh.ErrMissing
	}
	value, err := e.Value()
	if err != nil {
		return err // cannot be: it was checked, or this manager's own
	}
	return use(value)
}

func isValue(e *resultcache.Entry) error {
	_, err := e.Value()
	return err
}

// Put implements crsh.Values. A value that is too long is not kept, which is no error.
func (v *values) Put(ctx context.Context, name []byte, value io.Reader, size uint64, replace bool) (kept bool, err error) {
	if size > MaxValue {
		v.m.o.Log.Debug("a value is too long to be kept", "bytes", size)
		return false, nil
	}
	if !replace {
		if there, err := v.Exists(ctx, name); there || err != nil {
			return false, err
		}
	}
	n := 2 * int64(size)
	if v.m.values.Acquire(ctx, n) != nil {
		return false, ctx.Err()
	}
	defer v.m.values.Release(n)
	data := make([]byte, size)
	if _, err := io.ReadFull(value, data); err != nil {
		return false, err
	}
	key := resultcache.ValueKeyOf(valuesOf, name)
	entry, err := resultcache.AppendValue(make([]byte, 0, len(data)+resultcache.HeaderLen+256), key, resultcache.Origin{Made: time.Now(), Builder: v.m.o.Name, Compiler: valuesOf}, data)
	if err != nil {
		return false, err
	}
	kept = v.m.results.KeepValue(ctx, key, entry)
	return v.m.spread.MakeAgain(v.list.Sched, key, entry) || kept, nil
}

// Remove implements crsh.Values. Hosts keep what they have: nothing is removed from their memory but by what comes later.
func (v *values) Remove(ctx context.Context, name []byte) (bool, error) {
	there, err := v.Exists(ctx, name)
	if there {
		v.m.results.DropValue(resultcache.ValueKeyOf(valuesOf, name))
	}
	return there, err
}

// Exists implements crsh.Values.
func (v *values) Exists(ctx context.Context, name []byte) (bool, error) {
	err := v.find(ctx, name, func([]byte) error { return nil })
	if errors.Is(err, crsh.ErrMissing) {
		return false, nil
	}
	return err == nil, err
}
