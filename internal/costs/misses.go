package costs

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/internal/figure"
)

// Cache says what the cache of results was worth.
type Cache struct {
	Asked int           `json:"asked"` // compiles for which it was asked
	Hits  int           `json:"hits"`
	Saved time.Duration `json:"saved_ns"` // what the hits would have taken
	// Missed are why it had no result, the costliest first.
	Missed []Miss `json:"missed"`
}

// Causes of a miss.
const (
	CauseChanged = "changed"  // a file has changed since the unit was compiled last, appeared or gone away
	CauseCommand = "command"  // the unit's command, or its compiler, is another one
	CauseFirst   = "first"    // there is no compile of the unit before it
	CauseLost    = "not-kept" // nothing has changed: the result was not kept, or is gone
)

// Miss is why the cache had no result of compiles.
type Miss struct {
	Cause    string        `json:"cause"`
	File     string        `json:"file,omitempty"` // CauseChanged: the file. If several have changed, the one that is the cause most often
	Compiles int           `json:"compiles"`
	CPU      time.Duration `json:"cpu_ns"` // what they took
}

// Says says why the cache had no result, to somebody who works in dir.
func (m *Miss) Says(dir string) string {
	switch m.Cause {
	case CauseChanged:
		return figure.Near(dir, m.File) + " has changed"
	case CauseCommand:
		return "the command or the compiler has changed"
	case CauseFirst:
		return "nothing is known of an earlier compile"
	}
	return "nothing has changed: the result was not kept, or is gone"
}

// past is a compile of a unit, and whether it counts.
type past struct {
	*journal.Compile
	counts bool
}

// cacheOf works out what the cache was worth to the compiles that count. byUnit has all of each unit in the order in which they ended.
func cacheOf(l *journal.Log, byUnit map[[2]string][]past) Cache {
	x := Cache{Missed: []Miss{}}
	causes := make(map[Miss]*Miss) // by cause and file
	note := func(c *journal.Compile, cause, file string) {
		key := Miss{Cause: cause, File: file}
		m := causes[key]
		if m == nil {
			m = &key
			causes[Miss{Cause: cause, File: file}] = m
		}
		m.Compiles++
		m.CPU += c.CPU
	}
	type several struct {
		c     *journal.Compile
		files []string
	}
	var open []several
	often := make(map[string]int)
	for _, list := range byUnit {
		var last *journal.Compile // of which is known what it read
		for _, p := range list {
			c := p.Compile
			if p.counts && c.Asked {
				x.Asked++
			}
			switch {
			case !p.counts:
			case c.Place == journal.Cached:
				x.Saved += c.CPU
				if c.Asked {
					x.Hits++
				}
			case c.Asked && last == nil:
				note(c, CauseFirst, "")
			case c.Asked && c.Reads != nil:
				if files := changed(l, last, c); len(files) > 0 {
					open = append(open, several{c, files})
					for _, f := range files {
						often[f]++
					}
				} else if c.Command != last.Command {
					note(c, CauseCommand, "")
				} else {
					note(c, CauseLost, "")
				}
			}
			if c.Reads != nil {
				last = c
			}
		}
	}
	for _, o := range open {
		note(o.c, CauseChanged, slices.MinFunc(o.files, func(a, b string) int { return cmp.Or(cmp.Compare(often[b], often[a]), cmp.Compare(a, b)) }))
	}
	for _, m := range causes {
		x.Missed = append(x.Missed, *m)
	}
	slices.SortFunc(x.Missed, func(a, b Miss) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Compiles, a.Compiles), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.File, b.File))
	})
	return x
}

// changed returns the names of the files in which what was read differs: those with another content and, where both compiles tell
// exactly, or neither does, those that only one of them read.
func changed(l *journal.Log, before, now *journal.Compile) (names []string) {
	old := make(map[string]bool)
	a, b := before.Reads, now.Reads
	var gone, came []uint32
	for len(a)+len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			gone, a = append(gone, a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			came, b = append(came, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	for _, f := range gone {
		old[l.Files[f].Name] = true
	}
	for _, f := range came {
		if name := l.Files[f].Name; old[name] || before.Exact == now.Exact {
			names = append(names, name)
			delete(old, name)
		}
	}
	if before.Exact == now.Exact {
		for name := range old {
			names = append(names, name)
		}
	}
	return names
}
