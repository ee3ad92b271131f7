package run

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// askTime bounds one run of a driver with -###, which takes 1 ms, or seconds on a busy machine. What is not answered is not
// asked again.
const askTime = 10 * time.Second

// ask returns the recipe for a client's words, or nil if there is none. The words have passed the policy, and
// -### executes nothing. Still, a driver reads words that a client chose, so it is confined where compiles are.
func (p *Place) ask(tc *toolchain.Toolchain, words []string, dir string, need bool) *driver.Recipe {
	env := []string{"PATH=" + SearchPath, "LC_ALL=C"}
	id := string(tc.ID[:])
	switch {
	case p.h.Confined:
		return p.h.recipes.GetBy(id, tc.Exec, words, env, need, func(args []string) (string, error) { return p.askConfined(tc.Exec, args, env, dir) })
	case need:
		return p.h.recipes.Need(p.h.Context, id, tc.Exec, words, env, dir)
	}
	return p.h.recipes.Get(p.h.Context, id, tc.Exec, words, env, dir)
}

// noFlag returns the first of the job's words that are in no table that its compiler does not take for a flag, or "". The
// answer is the compiler's own, and binds nobody else: one that was sent may lie about itself.
func (p *Place) noFlag(j *Job) string {
	tc, env := j.Toolchain, []string{"PATH=" + SearchPath, "LC_ALL=C"}
	for _, w := range p.unlisted {
		takes := false
		if id := string(tc.ID[:]); p.h.Cluster != nil {
			takes = p.h.takesAway(j, w)
		} else if p.h.Confined {
			takes = p.h.flags.TakesBy(id, tc.Exec, tc.Family, w, func(args []string) (string, error) { return p.askConfined(tc.Exec, args, env, "/") })
		} else {
			takes = p.h.flags.Takes(p.h.Context, id, tc.Exec, tc.Family, w, env)
		}
		if !takes {
			return w
		}
	}
	return ""
}

// askConfined runs the driver at path with args in the place's tree and returns what it wrote to stdout and
// stderr.
func (p *Place) askConfined(path string, args, env []string, dir string) (string, error) {
	pipes := capture.NewPipes(p.h.Output)
	defer pipes.Close()
	out, err := pipes.Joined()
	if err != nil {
		return "", err
	}
	c := p.command(append(env, "TMPDIR="+p.temporary()), dir, out, askTime)
	c.Argv = append([]string{path}, args...)
	var proc Process
	o, err := proc.runIn(p.tree, c, askTime)
	if err != nil {
		return "", err
	}
	if !o.Well() {
		return "", fmt.Errorf("%s -###: exit %d, signal %d", path, o.Exit, o.Signal)
	}
	words, err := out.Written(0)
	return string(words), err
}
