package connmgr

import (
	"bytes"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// The second step of a look: a job's inputs are all files that its compile may read, but a result depends on
// those alone that it has read. A manifest lists results of jobs that differ in the contents of files, with
// what each has left unread (package inputs, Set.Unread). The manifest is one directory's; what it leads to may be shared
// with others.

// second returns the second step of a look for a job's result; nil: it has none.
func (c *client) second(k *known.Job) *results.SecondStep {
	if !c.stepsTwice(k) {
		return nil
	}
	return &results.SecondStep{
		Key: func() resultcache.Key { return manifestOf(c.compiler.ID, k) },
		Sum: func(unread []byte) ([32]byte, bool) { return k.Set.SumRead(unread) },
	}
}

// stepsTwice reports whether a look for a job's result may have a second step.
func (c *client) stepsTwice(k *known.Job) bool {
	return c.names(k).ok && k.Spare()
}

// bySecond reports whether a job's result was found by the second step.
func (c *client) bySecond(k *known.Job, e *resultcache.Entry) bool {
	n := c.names(k)
	return e.Key != n.exact && (n.base == "" || e.Key != n.moved)
}

// manifestOf returns the key of the manifest that lists a job's result.
func manifestOf(tc unit.ToolchainID, k *known.Job) resultcache.Key {
	return resultcache.ManifestKeyOf(tc, k.Body, k.Set.SumSpare())
}

// listed is an item on its way into a manifest.
type listed struct {
	manifest resultcache.Key
	resultcache.Item
}

// whatIsRead returns what the manifest gets to know of a job's result, by what output returns for the indices of its
// outputs. It is nil if the compile has read everything that it might have.
func whatIsRead(tc unit.ToolchainID, k *known.Job, result resultcache.Key, output func(index int) []byte) *listed {
	unread, ok := k.Unread(output)
	if !ok {
		return nil
	}
	sum, ok := k.Set.SumRead(unread)
	if !ok {
		return nil
	}
	return &listed{manifestOf(tc, k), resultcache.Item{Unread: unread, Sum: sum, Result: result}}
}

// keepListed adds an item to its manifest, in the background. There may be none.
func (m *Manager) keepListed(l *listed) {
	if l != nil {
		m.results.KeepManifest(l.manifest, l.Item)
	}
}

// listHit adds a job's result that another tier had to the manifest.
func (c *client) listHit(k *known.Job, e *resultcache.Entry) {
	if !c.stepsTwice(k) || c.bySecond(k, e) {
		return
	}
	tc, result, reads := c.compiler.ID, e.Key, c.reads
	var rules []byte // as the memory is the wrapper's soon
	k.Unread(func(index int) []byte { rules = bytes.Clone(outputOf(e, index)); return nil })
	c.m.clients.Go(func() {
		read := whatIsRead(tc, k, result, func(int) []byte { return rules })
		reads.left(k, read)
		c.m.keepListed(read)
	})
}

// outputOf returns the output of an entry with an index, or nil.
func outputOf(e *resultcache.Entry, index int) []byte {
	for i := range e.Files {
		if int(e.Files[i].Index) == index {
			return e.Files[i].Data
		}
	}
	return nil
}
