package ctl

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// progressLine shows the progress of a build in the last line of a terminal.
//
// The build writes to the same terminal, at times of its own. So the last line is taken out of what scrolls (DECSTBM):
// whatever the build prints stays above it. Each update is one write, which saves the cursor, goes to the last line and
// returns, so it is never in the middle of the build's text. Nothing is drawn before the build has compiled something,
// and none of that is needed for the build.
//
// A nil progressLine shows nothing.
type progressLine struct {
	out        *os.File
	rows, cols int // 0: no room
	drawn      bool
	began      time.Time
	samples    []sample // of the last rateOver
}

// sample says how many commands had ended at a time.
type sample struct {
	at   time.Time
	done int
}

// rateOver is the time over which the rate is taken.
const rateOver = 10 * time.Second

// The least room on a terminal for a progress line.
const (
	leastRows = 4
	leastCols = 20
)

// progressLine returns the progress line of standard error, or nil if that is no terminal, or one that obeys nothing.
func (c *ctl) progressLine() *progressLine {
	out, ok := c.err.(*os.File)
	if term := c.getenv("TERM"); !ok || !isTerminal(out) || term == "" || term == "dumb" {
		return nil
	}
	p := &progressLine{out: out, began: time.Now()}
	p.resize()
	return p
}

// resize takes the size of the terminal.
func (p *progressLine) resize() {
	if p == nil {
		return
	}
	p.clear()
	p.rows, p.cols = 0, 0
	size, err := unix.IoctlGetWinsize(int(p.out.Fd()), unix.TIOCGWINSZ)
	if err == nil && size.Row >= leastRows && size.Col >= leastCols {
		p.rows, p.cols = int(size.Row), int(size.Col)
	}
}

// show draws the state of a build, if it has begun to compile.
func (p *progressLine) show(log *builds.Log, running int) {
	if p == nil || p.rows == 0 {
		return
	}
	now := time.Now()
	s := log.Counts()
	if s.Jobs+running == 0 {
		return
	}
	// In the background, the terminal belongs to another command.
	if group, err := unix.IoctlGetInt(int(p.out.Fd()), unix.TIOCGPGRP); err == nil && group != unix.Getpgrp() {
		p.clear()
		return
	}
	p.draw(p.text(now, s, running))
}

// text returns the line.
func (p *progressLine) text(now time.Time, s builds.Counts, running int) string {
	p.samples = append(p.samples, sample{now, s.Jobs})
	for len(p.samples) > 2 && now.Sub(p.samples[0].at) > rateOver {
		p.samples = p.samples[1:]
	}
	var parts []string
	for _, x := range []struct {
		place, what string
	}{{report.PlaceRemote, "on hosts"}, {report.PlaceCached, "cached"}, {report.PlaceLocal, "here"}} {
		if n := s.Places[x.place]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, x.what))
		}
	}
	text := fmt.Sprintf("rdistcc: %d done, %d running", s.Jobs, running)
	first := p.samples[0]
	if d := now.Sub(first.at); d > 0 {
		text += fmt.Sprintf(", %.1f/s", float64(s.Jobs-first.done)/d.Seconds())
	}
	text += ", " + figure.Age(now.Sub(p.began))
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text[:min(len(text), p.cols-1)] // a full line could wrap
}

// Sequences that terminals have in common (ECMA-48, VT100).
const (
	saveCursor, restoreCursor = "\x1b7", "\x1b8"
	nextLine, upOne           = "\x1bD", "\x1b[A" // in the same column; scrolls at the end
	scrollAll                 = "\x1b[r"
	eraseLine                 = "\x1b[2K"
)

func (p *progressLine) draw(text string) {
	out := ""
	if !p.drawn {
		// The cursor may be in the last line, which moves up then.
		out = nextLine + upOne + saveCursor + fmt.Sprintf("\x1b[1;%dr", p.rows-1) + restoreCursor
	}
	p.drawn = true
	p.write(out + saveCursor + fmt.Sprintf("\x1b[%d;1H\x1b[0m", p.rows) + eraseLine + text + restoreCursor)
}

// clear removes the line, and leaves the terminal as it was.
func (p *progressLine) clear() {
	if p == nil || !p.drawn {
		return
	}
	p.drawn = false
	p.write(saveCursor + fmt.Sprintf("\x1b[%d;1H", p.rows) + eraseLine + scrollAll + restoreCursor)
}

func (p *progressLine) write(text string) {
	_, _ = p.out.WriteString(text) // a terminal that is gone needs none
}
