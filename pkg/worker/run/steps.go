package run

import (
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// setSteps makes c run the programs that the driver would run.
func (p *Place) setSteps(tc *toolchain.Toolchain, c *privatetree.Command, recipe *driver.Recipe, names driver.Names) {
	for i := range recipe.Steps() {
		argv := recipe.Step(i, names)
		switch {
		case filepath.Base(argv[0]) != argv[0]:
		case tc.Root != "":
			argv[0] = lookAmong(tc.Files, argv[0])
		default:
			argv[0] = p.h.lookPath(argv[0])
		}
		if i == 0 {
			c.Argv = argv
		} else {
			c.Then = append(c.Then, privatetree.Program{Argv: argv})
		}
	}
}

// runSteps runs the programs that setSteps has set: cc1 and as at the same time if possible, with the FIFO temp
// between them. The driver would run one after the other, but their output is the same.
func (p *Place) runSteps(proc *Process, tc *toolchain.Toolchain, c *privatetree.Command, temp string, out *capture.Capture, until time.Time) (Outcome, error) {
	if len(c.Then) == 0 || lists(c.Then[0].Argv) || !p.h.pairs.allowed(tc.ID) {
		return proc.runIn(p.tree, c, left(until))
	}
	c.Between = temp
	both, err := proc.runIn(p.tree, c, left(until))
	if err != nil || both.Stopped != job.CauseNone {
		return both, err
	}
	p.h.pairs.ended(tc.ID, both.Apart)
	if !both.Apart {
		return both, nil
	}
	if err := out.Rewind(); err != nil {
		return both, err
	}
	c.Between = ""
	o, err := proc.runIn(p.tree, c, left(until))
	o.after(&both)
	return o, err
}

// lists reports whether an assembler's words make it write a listing, which may have any length, to its stdout.
func lists(as []string) bool {
	for _, w := range as {
		if strings.HasPrefix(w, "-a") {
			return true
		}
	}
	return false
}

// pairs remembers the compilers whose assemblers do not read a FIFO to its end: to run them at the same time
// as cc1 would be wasted work in each compile.
type pairs struct {
	mu sync.Mutex
	// apart counts compiles in a row that had to run again. From mostApart on, it counts those run in turn as
	// well.
	apart map[unit.ToolchainID]int
}

const (
	mostApart = 3  // compiles in a row that had to run again, before a compiler's programs run in turn
	inTurn    = 64 // compiles that then run in turn; the reason may have been the jobs of one client
)

// RanAgain returns how many compiles in a row by a compiler ran a second time, one program after the other,
// because its assembler ended without having read everything.
func (h *Host) RanAgain(id unit.ToolchainID) int {
	h.pairs.mu.Lock()
	defer h.pairs.mu.Unlock()
	return h.pairs.apart[id]
}

// allowed reports whether the next compile's programs may run at the same time.
func (p *pairs) allowed(id unit.ToolchainID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.apart[id]
	if n < mostApart {
		return true
	}
	if p.apart[id]++; n+1 == mostApart+inTurn {
		p.apart[id] = mostApart - 1
	}
	return false
}

// ended records whether cc1 and as had to run again, one after the other.
func (p *pairs) ended(id unit.ToolchainID, apart bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !apart:
		delete(p.apart, id)
	case p.apart == nil:
		p.apart = map[unit.ToolchainID]int{id: 1}
	default:
		p.apart[id]++
	}
}
