package exp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
)

// Options say how an experiment is run.
type Options struct {
	Size   Size
	Rounds int       // 0: as many as the experiment has for its size
	Seed   uint64    // of the order of cells
	Raw    io.Writer // gets a Header and the Samples, each a line of JSON; nil: nothing does
	Say    func(format string, args ...any)
}

// Sample is one measurement.
type Sample struct {
	Cell   Cell   `json:"cell"`
	Round  int    `json:"round"`
	Turn   int    `json:"turn"` // place in the round's order
	Values Values `json:"values,omitempty"`
	Untold string `json:"untold,omitempty"` // why there are none
}

// Run measures every cell once in each round.
func Run(ctx context.Context, e *Experiment, o Options) (*Results, error) {
	if o.Rounds <= 0 {
		o.Rounds = e.Rounds(o.Size)
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	dir, err := os.MkdirTemp("", "rdistcc-exp")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	head := facts(e, &o)
	bench, err := e.Prepare(ctx, &Setting{Size: o.Size, Seed: o.Seed, Dir: dir, CPU: func(how string) { head.CPU = how }})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", e.ID, e.Name, err)
	}
	r := NewResults(e, head)
	raw := writer{w: o.Raw}
	raw.line(head)
	err = rounds(ctx, e, bench, &o, func(s Sample) {
		raw.line(s)
		r.Add(s)
	})
	if cerr := bench.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = raw.err
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", e.ID, e.Name, err)
	}
	return r, nil
}

// rounds does the measurements.
func rounds(ctx context.Context, e *Experiment, bench Bench, o *Options, take func(Sample)) error {
	cells := e.Cells(o.Size)
	untold := make(map[string]bool)
	for round := range o.Rounds {
		o.Say("%s %s: round %d of %d, %d cells", e.ID, e.Name, round+1, o.Rounds, len(cells)-len(untold))
		for turn, i := range order(o.Seed, round, len(cells)) {
			c := cells[i]
			if untold[c.Key()] {
				continue
			}
			v, err := bench.Measure(ctx, c)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s := Sample{Cell: c, Round: round, Turn: turn, Values: v}
			if why, ok := asUntold(err); ok {
				untold[c.Key()] = true
				s.Values, s.Untold = nil, why
			} else if err != nil {
				return fmt.Errorf("%s, round %d: %w", c.Key(), round+1, err)
			}
			take(s)
		}
	}
	return nil
}

// order returns the order in which a round measures n cells.
func order(seed uint64, round, n int) []int {
	return rand.New(rand.NewPCG(seed, uint64(round))).Perm(n)
}

// writer writes lines of JSON until one fails.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) line(v any) {
	if w.w == nil || w.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.w.Write(append(b, '\n'))
	}
	w.err = err
}
