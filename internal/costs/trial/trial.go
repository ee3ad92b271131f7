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
	// Without and With are medians of Times compiles each. Parsed is what it takes without to find errors only (-fsyntax-only), which is all that
	// a precompiled header can save some of. Estimated is what the headers take by the model; 0: nothing is known of them.
	Without   time.Duration `json:"without_ns"`
	With      time.Duration `json:"with_ns"`
	Parsed    time.Duration `json:"parsed_ns"`
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
	list   []include      // of the unit, in its order
	begins string         // of the precompiled header: what the command includes in front of the unit
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

// in notes that a header is in the precompiled header.
func (t *trial) in(name string, i *include) {
	h := t.headerOf(name, i)
	t.result.Headers = append(t.result.Headers, h)
	t.result.Estimated += h.Estimated
}

func (t *trial) headerOf(name string, i *include) Header {
	return Header{figure.Printable(name), len(i.reads), t.estimate(i)}
}

// textOf returns a header of these headers, in the unit's order.
func (t *trial) textOf(set []int) string {
	set = slices.Compact(slices.Sorted(slices.Values(set)))
	text := t.begins
	for _, i := range set {
		text += t.list[i].line(filepath.Dir(t.source))
	}
	return text
}

// choose sets the headers, and those that are left out.
func (t *trial) choose(ctx context.Context, n int) error {
	forced, list, err := t.includes(ctx, t.dir)
	if err != nil {
		return err
	}
	if len(forced)+len(list) == 0 {
		return errors.New("it includes nothing")
	}
	pre, err := t.run(ctx, t.dir, append(t.unitWords(), "-E", t.source)...)
	if err != nil {
		return err
	}
	t.plain, t.list = linesOf(pre.out), list
	for i := range forced {
		t.begins += "#include \"" + forced[i].file + "\"\n"
		t.in("-include "+forced[i].spelled, &forced[i])
	}
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
		if slices.Contains(chosen, i) {
			continue
		}
		more, why, err := t.fit(ctx, i, chosen, n-len(chosen))
		if err != nil {
			return err
		}
		if why != "" {
			t.result.Left = append(t.result.Left, Left{t.headerOf(cmp.Or(list[i].spelled, list[i].file), &list[i]), figure.Printable(why)})
		}
		for _, j := range more {
			t.in(list[j].spelled, &list[j])
		}
		chosen = append(chosen, more...)
	}
	if t.text = t.textOf(chosen); t.text == "" {
		return errors.New("none of its headers can be precompiled")
	}
	return nil
}

// fit returns what is to be precompiled, of at most room headers more than are chosen, so that header i can be: it alone, with the unit's
// first header, which often is a configuration, or with all before it. Otherwise, it returns why not.
func (t *trial) fit(ctx context.Context, i int, chosen []int, room int) (more []int, why string, err error) {
	if t.list[i].spelled == "" {
		return nil, "the unit includes it by a macro", nil
	}
	var all []int
	for j := range t.list[:i] {
		if t.list[j].spelled != "" {
			all = append(all, j)
		}
	}
	groups := [][]int{{i}}
	if len(all) > 1 {
		groups = append(groups, []int{i, all[0]})
	}
	if len(all) > 0 {
		groups = append(groups, append([]int{i}, all...))
	}
	for _, group := range groups {
		more = slices.DeleteFunc(slices.Clone(group), func(j int) bool { return slices.Contains(chosen, j) })
		if len(more) > room {
			break
		}
		what, err := t.fails(ctx, t.textOf(group))
		if what != "" {
			what = "it does not compile by itself: " + what
		} else if err == nil {
			what, err = t.changes(ctx, t.textOf(append(slices.Clone(chosen), group...)))
		}
		switch {
		case err != nil:
			return nil, "", err
		case what == "":
			return more, "", nil
		}
		why = cmp.Or(why, what)
		if what == readAgain {
			break
		}
	}
	if uses := t.list[i].uses(); why != readAgain && len(uses) > 0 {
		why = "it depends on macros before it: " + strings.Join(uses, ", ")
	}
	return nil, why, nil
}

// header writes a header and returns its name.
func (t *trial) header(name, text string) (string, error) {
	file := filepath.Join(t.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// fails says why a header of this text does not compile by itself, or returns "".
func (t *trial) fails(ctx context.Context, text string) (string, error) {
	file, err := t.header("rdistcc-alone.h", text)
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
	file, err := t.header("rdistcc-first.h", text)
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
	file, err := t.header("rdistcc-try.h", t.text)
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
		r, err := t.run(ctx, t.dir, append(slices.Clone(words), "-c", t.source, "-o", object)...)
		if err == nil && slices.Contains(words, "-H") && !t.clang && !strings.Contains(r.err, "! "+image) {
			return 0, errors.New("the compiler does not take the precompiled header that it has made")
		}
		return r.cpu, err
	}
	if _, err := compile(append(slices.Clone(use), "-H")...); err != nil {
		return err
	}
	parsed, err := t.run(ctx, t.dir, append(t.unitWords(), "-fsyntax-only", t.source)...)
	if err != nil {
		return err
	}
	t.result.Parsed = parsed.cpu
	var without, with []time.Duration
	for most := times; len(with) < most; {
		a, err := compile(t.unitWords()...)
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
