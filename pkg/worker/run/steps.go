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

// setSteps makes c run what the driver would.
func (p *Place) setSteps(c *privatetree.Command, recipe *driver.Recipe, names driver.Names) {
	for i := range recipe.Steps() {
		argv := recipe.Step(i, names)
		if filepath.Base(argv[0]) == argv[0] {
			argv[0] = p.h.lookPath(argv[0])
		}
		if i == 0 {
			c.Argv = argv
		} else {
			c.Then = append(c.Then, privatetree.Program{Argv: argv})
		}
	}
}

// runSteps runs what setSteps has set: cc1 and as at the same time where that can be, with temp between them. The
// driver would run one after the other; nothing that they write tells of it.
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

// lists reports whether an assembler writes a listing, of any length, to its standard output.
func lists(as []string) bool {
	for _, w := range as {
		if strings.HasPrefix(w, "-a") {
			return true
		}
	}
	return false
}

// pairs knows the compilers whose assemblers do not read a FIFO to its end: those would run each time for nothing.
type pairs struct {
	mu    sync.Mutex
	apart map[unit.ToolchainID]int // compiles in a row that ran again, and from mostApart on that ran in turn
}

const (
	mostApart = 3  // after so many a compiler's programs run in turn
	inTurn    = 64 // for so many compiles: what did not let them may have been a client's alone
)

// RanAgain returns how many compiles in a row by a compiler ran a second time, as its programs did not get along at the
// same time.
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
