package known

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/vigil"
)

// A host compiles what its job shows. A compiler here reads what is there at the moment when it looks, and what it writes is found
// where any other process may have written too. So the result of a compile here is that of a Job only if nothing that the Job
// depends on was another one at any time meanwhile, and if each output was written once.

// Guard watches over a compile that runs here, from before it starts until its outputs have been read.
type Guard struct {
	t    *Table
	k    *Job
	v    *vigil.Vigil
	outs []place
}

// place is an output by its directory as spelt, absolute, and its name there.
type place struct{ dir, name string }

// Why a compile here is not guarded, or its result not kept, in words for the user.
const (
	unguardedCommand = "a command of its kind is not kept when it runs here"
	unguardedWatches = "the kernel has no watches to tell what changes meanwhile (fs.inotify.max_user_watches, max_user_instances)"
	unguardedFresh   = "a file that it reads was written at the very moment when it started"
	guardChanged     = "something that it reads, or where it looks for headers, changed while it ran"
	guardWritten     = "its outputs were not written just once while it ran"
)

// Guard begins to watch over a compile of k here, which has not started. The caller calls End. If there is no Guard, why says so in
// words for the user.
func (t *Table) Guard(k *Job) (g *Guard, why string) {
	if k.here == nil {
		return nil, unguardedCommand
	}
	g = &Guard{t: t, k: k}
	dirs := t.inputs.Places(k.here)
	if dirs == nil {
		return nil, guardChanged
	}
	for _, out := range k.Body.Outputs {
		name := from(k.Body.Cwd, out.Name)
		i := strings.LastIndexByte(name, '/')
		at := place{name[:max(i, 1)], name[i+1:]}
		g.outs, dirs = append(g.outs, at), append(dirs, at.dir)
	}
	if g.v = t.vigils.Begin(dirs); g.v == nil {
		return nil, unguardedWatches
	}
	now := inputs.Clock()
	switch {
	case !g.same():
		why = guardChanged
	case !k.Set.Rested(now):
		why = unguardedFresh
	default:
		return g, ""
	}
	g.v.End()
	return nil, why
}

// same reports whether everything that the job depends on is as it was when it was made.
func (g *Guard) same() bool {
	set, err := g.t.inputs.Resolve(g.k.here)
	return err == nil && set == g.k.Set
}

// End says, once the compile has ended with status 0 and its outputs were read, which of them it has written, and why they may not
// be what the job's compile on a host would write; "": they are. It must be called once, and may be called sooner if nothing is to be
// known.
func (g *Guard) End() (own []bool, why string) {
	events, ok := g.v.End()
	if !ok {
		return nil, guardChanged
	}
	wrote := make([][]byte, len(g.outs))
	for _, e := range events {
		its := false
		for i, at := range g.outs {
			if at.dir == e.Dir && at.name == e.Name {
				its = true
				wrote[i] = append(wrote[i], byte(e.What))
			}
		}
		if !its && (e.Name == "" || g.t.inputs.Asked(e.Dir, e.Name)) {
			return nil, guardChanged
		}
	}
	own = make([]bool, len(wrote))
	for i, how := range wrote {
		if own[i] = writtenOnce(string(how)); !own[i] && (len(how) > 0 || !g.k.Body.Outputs[i].Optional) {
			return nil, guardWritten
		}
	}
	if !g.same() {
		return nil, guardChanged
	}
	return own, ""
}

// writtenOnce reports whether what happened to a name, one What each, is that one process has written a file there: it made the file,
// in place of another one or not, or wrote one that was there, or moved one there, as clang does, which closes it only then.
func writtenOnce(how string) bool {
	how = strings.TrimLeft(how, string(vigil.Changed))
	how = strings.TrimPrefix(how, string(vigil.Gone))
	switch how = strings.ReplaceAll(how, string(vigil.Changed), ""); how {
	case "W", "CW", "M", "MW":
		return true
	}
	return false
}

// keptHere reports whether results of a command's compiles here can be kept.
func keptHere(outputs []unit.Output, appends func(unit.Output) bool) bool {
	for _, out := range outputs {
		if appends(out) || out.Kind == unit.OutputModule {
			return false
		}
	}
	return len(outputs) > 0
}
