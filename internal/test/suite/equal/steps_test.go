package equal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// clear empties the place.
func (p *place) clear() error {
	p.laid = nil
	out, scratch := p.outside()
	for _, dir := range []string{p.work, p.tmp, out, scratch} {
		if err := remove(dir); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// run runs all steps in the place, whatever it was used for.
func (s sequence) run(t *testing.T, p *place, v variant, total *tally) error {
	return s.each(t.Context(), p, v, func(st step, w verdict) bool {
		found := slices.Concat(w.diffs, st.misplaced(w))
		var known []string
		strict := st.race == nil && w.plain.status == 0 // what fails is run here anyway
		for _, k := range st.known {
			if v.is(k.where) {
				known = append(known, k.text)
				strict = strict && !k.maybe
			}
		}
		total.add(w.plain, w.wrapped, len(known) > 0)
		switch {
		case len(known) > 0 && len(found) == 0 && strict:
			t.Errorf("line %d: is right now, but is marked as known: %s", st.line, strings.Join(known, "; "))
		case len(known) > 0:
			t.Logf("line %d: known: %s: %s", st.line, strings.Join(known, "; "), strings.Join(found, "\n"))
		case len(found) > 0:
			t.Errorf("line %d of %s: %s\n%s\n%v", st.line, s.place, strings.Join(found, "\n"), st.cmd, w.wrapped.jobs)
			if err := w.keep(fmt.Sprint(s.name, "-", v, "-", st.line)); err != nil {
				t.Error(err)
			}
		}
		return true
	})
}

// each lays the files in the place and goes from step to step, as long as tell wants.
func (s sequence) each(ctx context.Context, p *place, v variant, tell func(step, verdict) bool) error {
	if err := p.clear(); err != nil {
		return err
	}
	f := fixtures{time: time.Now().Add(-time.Hour).Truncate(time.Second)}
	for _, file := range s.files {
		file.Name = strings.ReplaceAll(file.Name, "$X", v.suffix())
		if err := f.write(p.work, file); err != nil {
			return err
		}
	}
	for _, st := range s.steps {
		for _, a := range st.before {
			if err := p.act(ctx, a, v); err != nil {
				return fmt.Errorf("line %d: %w", st.line, err)
			}
		}
		look := p.here
		if st.race != nil {
			look = p.race
		}
		found, err := look(ctx, st, v)
		if err != nil {
			return fmt.Errorf("line %d: %w", st.line, err)
		}
		for _, w := range found {
			if !tell(st, w) {
				return nil
			}
		}
	}
	return nil
}

// act does what happens before a command.
func (p *place) act(ctx context.Context, a action, v variant) error {
	if a.farm != "" {
		if err := farmVerbs[a.farm](ctx, p.g); err != nil {
			return err
		}
		// One that waits for the host, as those of the sequence do not.
		o, err := p.execute(ctx, `cd "$T" && echo 'int w;' > w.c && RDISTCC_FALLBACK=0 $CC -c w.c -o /dev/null`, command{}, true, v.vars(p, true)...)
		if err == nil && o.status != 0 {
			err = fmt.Errorf("no host after %s: %s", a.farm, o.stderr)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", prelude+a.shell)
	cmd.Dir = p.work
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), v.vars(p, false)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", a.shell, err, out)
	}
	return nil
}

// here compares a command in the tree as it is: first with rdistcc, at once, so that no time has passed
// since the tree was changed, once for each of the place's passes, then plain. It returns a verdict for each pass.
func (p *place) here(ctx context.Context, st step, v variant) (all []verdict, err error) {
	c := command{line: st.cmd, cc: v.cc}
	before, err := snapshot(p.work, nil)
	if err != nil {
		return nil, err
	}
	for _, cached := range p.order() {
		p.cached = cached
		o, err := p.observe(ctx, c, v, true, before)
		if err != nil {
			return nil, err
		}
		all = append(all, verdict{wrapped: o})
	}
	plain, err := p.observe(ctx, c, v, false, before)
	if err != nil {
		return nil, err
	}
	for i := range all {
		w := &all[i]
		w.plain = plain
		found := differences(w.plain, w.wrapped, c)
		for _, what := range slices.Sorted(maps.Keys(found)) {
			w.diffs = append(w.diffs, what+": "+found[what])
		}
	}
	return all, nil
}

// order returns the place's passes.
func (p *place) order() []bool {
	if len(p.passes) == 0 {
		return []bool{false}
	}
	return p.passes
}

// observe runs the command and takes away what it has made.
func (p *place) observe(ctx context.Context, c command, v variant, wrapped bool, before map[string]entry) (o outcome, err error) {
	if o, err = p.execute(ctx, c.line, c, wrapped, v.vars(p, wrapped)...); err != nil {
		return o, err
	}
	after, err := snapshot(p.work, before)
	if err != nil {
		return o, err
	}
	o.files = changes(before, after)
	for name := range o.files {
		if old, was := before[name]; was {
			return o, fmt.Errorf("the command has changed %s, %d bytes", name, len(old.data))
		}
		err = errors.Join(err, remove(filepath.Join(p.work, name)))
	}
	out, _ := p.outside()
	made, serr := snapshot(out, nil)
	tmp, terr := snapshot(p.tmp, nil)
	for name, e := range made {
		o.files["out/"+name] = e
	}
	for name := range tmp {
		o.left = append(o.left, name)
	}
	return o, errors.Join(err, serr, terr, remove(out), os.Mkdir(out, 0o755))
}

// misplaced is what is wrong with where the compiles ran, and with how it was
// known what they read.
func (st step) misplaced(w verdict) (wrong []string) {
	if len(w.wrapped.report) == 0 && w.plain.status < 126 {
		wrong = append(wrong, "rdistcc reported nothing")
	}
	for _, j := range w.wrapped.jobs {
		switch {
		case slices.Contains(trouble, j.Reason):
			wrong = append(wrong, "trouble: "+j.Reason)
		case asText() || w.plain.status != 0 || st.at == "any":
		case j.Twice:
			wrong = append(wrong, "ran on a host and then here: "+j.Reason)
		case j.Where == "local":
			wrong = append(wrong, "ran here: "+j.Reason)
		case *inputs != "list" && j.Inputs != "" && len(st.how) > 0 && !slices.Contains(st.how, j.Inputs):
			wrong = append(wrong, fmt.Sprintf("inputs by %s, want %s", j.Inputs, strings.Join(st.how, " or ")))
		}
	}
	return wrong
}

// raceRounds is how often a command runs while its files change.
const raceRounds = 4

// race runs the command while a file changes between two states: the result is that of one of them, and
// afterwards that of the file's current state. It runs as in the first of the place's passes.
func (p *place) race(ctx context.Context, st step, v variant) ([]verdict, error) {
	p.cached = p.order()[0]
	w, err := p.compete(ctx, st, v)
	return []verdict{w}, err
}

func (p *place) compete(ctx context.Context, st step, v variant) (w verdict, err error) {
	c := command{line: st.cmd, cc: v.cc}
	name := filepath.Join(p.work, strings.ReplaceAll(st.race[1], "$X", v.suffix()))
	_, scratch := p.outside()
	aside := filepath.Join(scratch, "aside")
	var turn func(round, state int) error
	if st.race[0] == "blink" {
		turn = func(_, state int) error {
			if state == 0 {
				return os.Rename(aside, name)
			}
			return os.Rename(name, aside)
		}
	} else {
		text, err := os.ReadFile(name)
		if err != nil {
			return w, err
		}
		at := bytes.IndexByte(text, st.race[2][0])
		if at < 0 {
			return w, fmt.Errorf("%s has no %s", name, st.race[2])
		}
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return w, err
		}
		defer func() { file.Close() }()
		turn = func(round, state int) error {
			text[at] = st.race[2+state][0]
			if round%2 == 0 { // in place: one byte is there or is not
				_, err := file.WriteAt(text[at:at+1], int64(at))
				return err
			}
			if err := os.WriteFile(aside, text, 0o644); err != nil {
				return err
			}
			if err := os.Rename(aside, name); err != nil {
				return err
			}
			file.Close()
			file, err = os.OpenFile(name, os.O_RDWR, 0)
			return err
		}
	}
	state := 0
	var want [2]outcome
	for state = range want {
		if state == 1 {
			if err := turn(0, 1); err != nil {
				return w, err
			}
		}
		before, err := snapshot(p.work, nil)
		if err != nil {
			return w, err
		}
		o, err := p.observe(ctx, c, v, false, before)
		if err != nil {
			return w, err
		}
		want[state] = o
	}
	if len(differences(want[0], want[1], c)) == 0 {
		return w, fmt.Errorf("%v makes no difference", st.race)
	}
	for round := range raceRounds {
		stop, stopped := make(chan struct{}), make(chan error)
		go func() {
			var err error
			for err == nil {
				select {
				case <-stop:
					stopped <- nil
					return
				case <-time.After(100 * time.Microsecond):
				}
				state = 1 - state
				err = turn(round, state)
			}
			stopped <- err
		}()
		got, err := p.execute(ctx, c.line, c, true, v.vars(p, true)...)
		close(stop)
		if err := errors.Join(err, <-stopped); err != nil {
			return w, err
		}
		out, _ := p.outside()
		made, err := snapshot(out, nil)
		if err != nil {
			return w, err
		}
		got.files = make(map[string]entry)
		for name, e := range made {
			got.files["out/"+name] = e
		}
		if err := errors.Join(remove(out), os.Mkdir(out, 0o755)); err != nil {
			return w, err
		}
		if a, b := differences(want[0], got, c), differences(want[1], got, c); len(a) > 0 && len(b) > 0 {
			w.diffs = append(w.diffs, fmt.Sprintf("round %d: neither what it was (%v) nor what it became (%v): %v", round, a, b, got.jobs))
		}
		// And now that it is still, without any time between.
		before, err := snapshot(p.work, nil)
		if err != nil {
			return w, err
		}
		if got, err = p.observe(ctx, c, v, true, before); err != nil {
			return w, err
		}
		w.plain, w.wrapped = want[state], got
		if d := differences(want[state], got, c); len(d) > 0 {
			w.diffs = append(w.diffs, fmt.Sprintf("after round %d: %v: %v", round, d, got.jobs))
		}
	}
	if state == 1 {
		err = turn(0, 0)
	}
	return w, err
}
