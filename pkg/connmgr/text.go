package connmgr

import (
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
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
	return c.compileNamed(t, resultcache.TextKeyOf(c.compiler.ID, t.Body, t.Text[t.TextOff:]), false, missedText)
}

// compileNamed makes a host compile a job, unless the cache has its result under key, which names all that it depends on. tree says that
// it takes a private tree; missed, what is said where there is none.
func (c *client) compileNamed(t *attempt.Task, key resultcache.Key, tree bool, missed string) (*ipc.Result, *ipc.GoLocal) {
	if c.lease.Cache == ipc.CacheOn || c.lease.Cache == ipc.CacheRead {
		c.record.Asked = true
		e, tier := c.m.results.Find(c.Context(), &results.Look{Key: key, Room: c.room, Check: func(e *resultcache.Entry) error {
			return c.check(t.Body, modules.Rules{}, e)
		}})
		if e != nil {
			c.record.Missed = ""
			c.auditNamed(t, e, tier, tree)
			return c.hit(e, tier), nil
		}
		c.record.Missed = missed
	}
	began := time.Now()
	r, no := c.compile(t, tree)
	// The command runs here if the host's compiler has printed anything.
	if no == nil && c.mayKeep() && r.Exit == 0 && r.Signal == 0 && r.Stdout.Len == 0 && r.Stderr.Len == 0 {
		c.keep(&madeFrom{body: t.Body, compiler: c.compiler.ID, names: names{exact: key}, began: began, ended: time.Now(), sink: c.sink.Share()}, r, nil)
	}
	return r, no
}

// missedText is what the cache has to say of text that it has no result for.
const missedText = "no result of the same preprocessed text is kept (a host without private trees compiles text)"

// missedHere returns what is said of a command for which the cache was asked in vain, and which then runs here for the reason why.
// Only what hosts compile is kept, so for some no result can ever be there. trees says that hosts have private trees.
func missedHere(missed, why string, trees bool) string {
	word, _, _ := strings.Cut(why, ":")
	rule := word+":" == reason.NotReproducible && why != known.Changed || why == reason.Diagnostics
	switch {
	case missed == "":
		return ""
	case rule && !trees:
		return "its result is not kept: where hosts have no private trees it runs here, and only what hosts compile is kept (docs/containers.md)"
	case rule, why == reason.TooBig, word+":" == reason.Doubt:
		return "its result is not kept: it runs here by rule, and only what hosts compile is kept"
	}
	return missed + "; now it runs here, and only what hosts compile is kept"
}
