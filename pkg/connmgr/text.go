package connmgr

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// compileText makes a host compile preprocessed text, unless the cache has what became of that text. A result is named by the text
// itself, with the words and the compiler that take it: whichever header changes, appears or is found elsewhere, the text is another
// one, or nothing that the object depends on has changed.
func (c *client) compileText(t *attempt.Task) (*ipc.Result, *ipc.GoLocal) {
	if c.m.results == nil || readsClock(t.Body.Args) {
		return c.compile(t, false)
	}
	return c.compileNamed(t, resultcache.TextKeyOf(c.compiler.ID, t.Body, t.Text[t.TextOff:]), manner{missed: missedText})
}

// manner says how a job is compiled whose result is named by what it shows to the compiler.
type manner struct {
	tree   bool   // it takes a private tree
	words  bool   // the wrapper judges what the compiler has printed, so it is kept; otherwise, the command runs here then
	missed string // what is said where there is no result
}

// compileNamed makes a host compile a job, unless the cache has its result under key, which names all that it depends on.
func (c *client) compileNamed(t *attempt.Task, key resultcache.Key, how manner) (*ipc.Result, *ipc.GoLocal) {
	if c.lease.Cache == ipc.CacheOn || c.lease.Cache == ipc.CacheRead {
		c.record.Asked = true
		e, tier := c.m.results.Find(c.Context(), &results.Look{Key: key, Command: c.inBuild(t.Body), Room: c.room, Untrusted: func(tier string) { c.refused = tier }, Check: func(e *resultcache.Entry) error {
			return c.check(t.Body, modules.Rules{}, e)
		}})
		if e != nil {
			c.record.Missed = ""
			c.auditNamed(t, e, tier, how.tree)
			return c.hit(e, tier), nil
		}
		c.record.Missed = c.unlessRefused(how.missed)
	}
	began := time.Now()
	r, no := c.compile(t, how.tree)
	if no == nil && c.mayKeep() && r.Exit == 0 && r.Signal == 0 && (how.words || r.Stdout.Len == 0 && r.Stderr.Len == 0) {
		c.keep(&madeFrom{body: t.Body, compiler: c.compiler.ID, names: names{exact: key}, began: began, ended: time.Now(), sink: c.sink.Share()}, r, nil)
	}
	return r, no
}

// missedText is what the cache has to say of text that it has no result for.
const missedText = "no result of the same preprocessed text is kept (a host without private trees compiles text)"
