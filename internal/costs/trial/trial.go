package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/figure"
)

// Result is what came of an experiment. Names can be printed. Times are CPU times here, of the compiler and all that it starts.
type Result struct {
	Unit    string   `json:"unit"`
	Headers []Header `json:"headers"`            // in the precompiled header, the one that should save most first
	Left    []Left   `json:"left_out,omitempty"` // headers that should be in it and cannot
	// Without and With are medians of Times compiles each. Estimated is what the headers take by the model; 0: nothing is known of them.
	Without   time.Duration `json:"without_ns"`
	With      time.Duration `json:"with_ns"`
	Estimated time.Duration `json:"estimated_ns"`
	Times     int           `json:"times"`
	// Made is what it took to make the precompiled header, and Bytes how large it is.
	Made  time.Duration `json:"made_ns"`
	Bytes int64         `json:"bytes"`
	Error string        `json:"error,omitempty"` // why there is no result
}

// Saves returns what the precompiled header saves the unit; negative: it costs that.
func (r *Result) Saves() time.Duration { return r.Without - r.With }

// Header is a header that the unit includes.
type Header struct {
	Name      string        `json:"name"`  // as the unit spells it
	Files     int           `json:"files"` // that it reads, itself among them
	Estimated time.Duration `json:"estimated_ns"`
}

// Left is a header that was left out.
type Left struct {
	Header
	Why string `json:"why"`
}

// times is how often a unit is compiled each way: compiles of more than a second scatter less, and three are enough.
const (
	times     = 5
	timesLong = 3
)

// Try makes a precompiled header of the n headers of a unit that should save it most, by what each file takes in a unit that reads it, and
// measures what it does save. It writes to a directory of its own only, which it removes.
func Try(ctx context.Context, u Unit, n int, each map[string]time.Duration) (r Result, err error) {
	r = Result{Unit: strings.Join(u.Words, " "), Headers: []Header{}}
	c, err := commandOf(u)
	if c != nil && c.source != "" {
		r.Unit = c.source
	}
	r.Unit = figure.Printable(r.Unit)
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "rdistcc-pch-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &trial{command: c, dir: dir, each: each, result: &r}
	version, err := t.run(ctx, dir, "--version")
	if err != nil {
		return r, err
	}
	c.clang = strings.Contains(version.out, "clang")
	if err := t.choose(ctx, n); err != nil {
		return r, err
	}
	return r, t.measure(ctx)
}

// trial is an experiment that goes on.
type trial struct {
	*command
	dir    string
	each   map[string]time.Duration
	result *Result
	plain  map[string]int // lines of the unit, preprocessed
	text   string         // of the precompiled header
}

// estimate returns what the files of a header take.
func (t *trial) estimate(i *include) (d time.Duration) {
	for _, f := range i.reads {
		d += t.each[figure.Printable(f)]
	}
	return d
}

// choose sets the headers, and those that are left out.
func (t *trial) choose(ctx context.Context, n int) error {
	list, err := t.includes(ctx, t.dir)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("it includes nothing")
	}
	pre, err := t.run(ctx, t.dir, "-E", t.source)
	if err != nil {
		return err
	}
	t.plain = linesOf(pre.out)
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.estimate(&list[b]), t.estimate(&list[a])), cmp.Compare(len(list[b].reads), len(list[a].reads)))
	})
	var chosen []int
	for _, i := range order {
		if len(chosen) == n {
			break
		}
		h := Header{figure.Printable(cmp.Or(list[i].spelled, list[i].file)), len(list[i].reads), t.estimate(&list[i])}
		why, err := t.unfit(ctx, &list[i])
		switch {
		case err != nil:
			return err
		case why != "":
			t.result.Left = append(t.result.Left, Left{h, figure.Printable(why)})
		default:
			chosen = append(chosen, i)
			t.result.Headers = append(t.result.Headers, h)
			t.result.Estimated += h.Estimated
		}
	}
	if len(chosen) == 0 {
		return errors.New("none of its headers can be precompiled")
	}
	slices.Sort(chosen) // in the unit's order
	for _, i := range chosen {
		t.text += list[i].line()
	}
	if why, err := t.changes(ctx, t.text); err != nil || why != "" {
		return cmp.Or(err, errors.New("together, its headers say something else than in the order of the unit"))
	}
	return nil
}

// unfit says why a header cannot be precompiled, or returns "".
func (t *trial) unfit(ctx context.Context, i *include) (string, error) {
	if i.spelled == "" {
		return "the unit includes it by a macro", nil
	}
	line := i.line()
	if what, err := t.fails(ctx, line); err != nil || what != "" {
		if uses := i.uses(); what != "" && len(uses) > 0 {
			return "it depends on macros before it: " + strings.Join(uses, ", "), err
		}
		return "it does not compile by itself: " + what, err
	}
	if what, err := t.fails(ctx, line+line); err != nil || what != "" {
		return "it has no guard against being read twice", err
	}
	why, err := t.changes(ctx, line)
	if uses := i.uses(); why == changed && len(uses) > 0 {
		why = "it depends on macros before it: " + strings.Join(uses, ", ")
	}
	return why, err
}

// header writes a header and returns its name.
func (t *trial) header(name, text string) (string, error) {
	file := filepath.Join(t.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// fails says why a header of this text does not compile by itself, or returns "".
func (t *trial) fails(ctx context.Context, text string) (string, error) {
	file, err := t.header("alone.h", text)
	if err != nil {
		return "", err
	}
	if _, err = t.run(ctx, t.dir, "-w", "-fsyntax-only", "-x", t.language, file); err != nil && ctx.Err() == nil {
		return err.Error(), nil
	}
	return "", err
}

// What a header in front of a unit changes.
const (
	readAgain = "it has no guard against being read twice"
	changed   = "what it says depends on what stands before it"
)

// changes says what else the unit reads if a header of this text stands in front of it, or returns "". Lines may come in another
// order: that is what a precompiled header does.
func (t *trial) changes(ctx context.Context, text string) (string, error) {
	file, err := t.header("first.h", text)
	if err != nil {
		return "", err
	}
	r, err := t.run(ctx, t.dir, "-include", file, "-E", t.source)
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return changed, nil
	}
	lines := linesOf(r.out)
	if maps.Equal(lines, t.plain) {
		return "", nil
	}
	for line, n := range t.plain {
		if lines[line] < n {
			return changed, nil
		}
	}
	return readAgain, nil
}

// measure makes the precompiled header, and compiles the unit with it and without, in turns.
func (t *trial) measure(ctx context.Context) error {
	file, err := t.header("try.h", t.text)
	if err != nil {
		return err
	}
	image, use := file+".gch", []string{"-include", file}
	if t.clang {
		use = []string{"-include-pch", image}
	}
	made, err := t.run(ctx, t.dir, "-x", t.language, file, "-o", image)
	if err != nil {
		return fmt.Errorf("the precompiled header: %w", err)
	}
	st, err := os.Stat(image)
	if err != nil {
		return err
	}
	t.result.Made, t.result.Bytes = made.cpu, st.Size()
	object := filepath.Join(t.dir, "unit.o")
	compile := func(words ...string) (time.Duration, error) {
		r, err := t.run(ctx, t.dir, append(words, "-c", t.source, "-o", object)...)
		if err == nil && len(words) > 2 && !t.clang && !strings.Contains(r.err, "! "+image) {
			return 0, errors.New("the compiler does not take the precompiled header that it has made")
		}
		return r.cpu, err
	}
	if _, err := compile(append(slices.Clone(use), "-H")...); err != nil {
		return err
	}
	var without, with []time.Duration
	for most := times; len(with) < most; {
		a, err := compile()
		if err != nil {
			return err
		}
		b, err := compile(use...)
		if err != nil {
			return err
		}
		without, with = append(without, a), append(with, b)
		if a > time.Second {
			most = timesLong
		}
	}
	slices.Sort(without)
	slices.Sort(with)
	t.result.Without, t.result.With, t.result.Times = without[len(without)/2], with[len(with)/2], len(with)
	return nil
}
