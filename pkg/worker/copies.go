package worker

import (
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// copyMemory is how many bytes of results may be read from clients at a time. More are refused: a copy is not worth
// waiting for.
const copyMemory = 8 * job.MaxKeep

// copyResult is what became of a Keep: the label of a metric.
type copyResult string

const (
	copyKept    copyResult = "kept"
	copyRefused copyResult = "refused" // the client's tenant has no shelf, the host drains, or is short of memory or of room
	copyGarbage copyResult = "garbage" // what the client offers is no result, or has another name
	copyLost    copyResult = "lost"    // the connection has ended meanwhile
)

var copyResults = []copyResult{copyKept, copyRefused, copyGarbage, copyLost}

// keepCopy handles a Keep: it has the result read from the client, unless there is no room for it. On the shelf of a group is
// nothing that came from a client.
func (c *conn) keepCopy(m *job.Keep) error {
	s, n := c.s, int64(m.Window.Len)
	short := s.short()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.copying:
		return errors.New("a Keep before the last one was acknowledged")
	case c.shelf == nil || c.shelf.shared() || !c.puller.Can() || s.drain.begun || short || s.copying+n > copyMemory:
		return c.copiedLocked(m, copyRefused)
	}
	mem := make([]byte, n)
	mr, err := c.pd.RegMR(mem, iwarp.LocalWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		return fmt.Errorf("register memory for a copy: %w", err)
	}
	s.copying += n
	c.copying = true
	c.work.Add(1)
	x := &rdmaread.Pull{Sink: mr, STag: iwarp.STag(m.Window.STag), TO: m.Window.TO, Len: m.Window.Len, Done: func(err error) {
		go c.readCopy(m, mem, mr, err) // waited for by c.work
	}}
	if err := c.puller.Start(x); err != nil {
		c.qp.Abort() // which ends x
	}
	return nil
}

// readCopy puts a result that was read on the shelf, if it is one of that name. err says that it was not read. The
// client is not told which: it could do nothing about it.
func (c *conn) readCopy(m *job.Keep, mem []byte, mr iwarp.MR, err error) {
	s := c.s
	defer c.work.Done()
	defer s.rescue(c.log, c.qp.Abort)
	result := copyKept
	if derr := mr.Dereg(); err != nil || derr != nil {
		result = copyLost
	} else if key, _, err := resultcache.Describe(mem); err != nil || key != m.Key {
		result = copyGarbage
		c.log.Warn("a client has offered something else than a result to keep", "key", resultcache.Key(m.Key), "err", err)
	} else if !c.shelf.Put(key, mem) {
		result = copyRefused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copying -= int64(len(mem))
	c.copying = false
	if err := c.copiedLocked(m, result); err != nil {
		c.failed(err)
	}
}

// copiedLocked counts what became of a Keep, and acknowledges it.
func (c *conn) copiedLocked(m *job.Keep, r copyResult) error {
	c.s.o.Metrics.copied(r)
	if c.state == connEnded {
		return nil
	}
	return c.sendLocked(&job.Ack{Of: job.KindKeep, Seq: m.Seq, Load: c.s.loadLocked()})
}
