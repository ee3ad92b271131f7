package exp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// benchFunc is a Bench from a function.
type benchFunc func(Cell) (Values, error)

func (f benchFunc) Measure(_ context.Context, c Cell) (Values, error) { return f(c) }
func (benchFunc) Close() error                                        { return nil }

// sample returns an experiment of 2 by 3 cells that measures with f.
func sample(f benchFunc) *Experiment {
	return &Experiment{
		ID: "E0", Name: "sample", Question: "is a less than b?",
		Axes: func(Size) []Axis {
			return []Axis{{Name: "way", Levels: []string{"a", "b"}}, {Name: "size", Levels: Numbers(1, 1024, 1<<20), Bytes: true}}
		},
		Rounds:  func(Size) int { return 5 },
		Metrics: []Metric{{"took", "us", "time"}},
		Prepare: func(context.Context, *Setting) (Bench, error) { return f, nil },
		Views:   []View{{Title: "time by size", Metric: "took", X: "size", Lines: []string{"way"}}},
		Claims: []Predicate{{Claim: "a beats b everywhere", Says: "ours", Judge: func(r *Results) Verdict {
			return r.Along("size", 1, 1<<20, func(s string) Verdict {
				return r.Less(Cell{"way": "a", "size": s}, Cell{"way": "b", "size": s}, "took", 1)
			})
		}}},
	}
}

// TestRoundsInterleave: each round measures each cell once, in an order of its own that the seed fixes.
func TestRoundsInterleave(t *testing.T) {
	run := func(seed uint64) (turns []string) {
		e := sample(func(c Cell) (Values, error) {
			turns = append(turns, c.Key())
			return Values{"took": 1}, nil
		})
		if _, err := Run(t.Context(), e, Options{Size: CI, Seed: seed}); err != nil {
			t.Fatal(err)
		}
		return turns
	}
	turns := run(7)
	if len(turns) != 30 {
		t.Fatalf("%d measurements of 6 cells in 5 rounds", len(turns))
	}
	orders := make(map[string]bool)
	for r := range 5 {
		round := turns[6*r : 6*r+6]
		orders[strings.Join(round, ",")] = true
		if n := len(slices.Compact(slices.Sorted(slices.Values(round)))); n != 6 {
			t.Errorf("round %d measures %d cells of 6", r, n)
		}
	}
	if len(orders) < 4 {
		t.Errorf("only %d orders in 5 rounds", len(orders))
	}
	if !slices.Equal(turns, run(7)) || slices.Equal(turns, run(8)) {
		t.Error("the order does not follow from the seed")
	}
}

// TestUntoldCells: a cell that cannot be measured here is tried once and says why; another error ends the run.
func TestUntoldCells(t *testing.T) {
	tried := 0
	e := sample(func(c Cell) (Values, error) {
		if c["way"] == "b" && c["size"] == "1" {
			tried++
			return nil, fmt.Errorf("cell: %w", &Untold{"not as this user"})
		}
		return Values{"took": 1}, nil
	})
	r, err := Run(t.Context(), e, Options{Size: CI})
	if err != nil || tried != 1 {
		t.Fatalf("tried %d times, %v", tried, err)
	}
	if v := e.Claims[0].Verdict(r); v.Word != NotHere || v.Reason != "not as this user" {
		t.Errorf("%+v", v)
	}
	if s := r.section(); !strings.Contains(s, "not measured: size=1 way=b: not as this user") {
		t.Error(s)
	}
	broken := errors.New("broken")
	if _, err := Run(t.Context(), sample(func(Cell) (Values, error) { return nil, broken }), Options{Size: CI}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestMedians(t *testing.T) {
	if got := Quantile([]float64{9, 1, 5}, 0.5); got != 5 {
		t.Errorf("median %v", got)
	}
	if got := Quantile([]float64{4, 1, 3, 2}, 0.5); got != 2.5 {
		t.Errorf("median of an even number %v", got)
	}
	i := summarise([]float64{10, 11, 12, 13, 1000})
	if i.Median != 12 || i.Lo < 10 || i.Hi > 1000 || i.Lo > 11 || i.N != 5 {
		t.Errorf("%+v", i)
	}
	if j := summarise([]float64{10, 11, 12, 13, 1000}); i != j {
		t.Errorf("the same samples give %+v and %+v", i, j)
	}
	if i := summarise(nil); i.N != 0 {
		t.Errorf("%+v of nothing", i)
	}
}

// given returns results with made-up samples.
func given(e *Experiment, cores int, took func(c Cell, round int) float64) *Results {
	r := NewResults(e, Header{Size: CI, Cores: cores})
	for round := range 5 {
		for _, c := range e.Cells(CI) {
			r.Add(Sample{Cell: c, Round: round, Values: Values{"took": took(c, round)}})
		}
	}
	return r
}

func TestVerdicts(t *testing.T) {
	e := sample(nil)
	for _, c := range []struct {
		name string
		took func(c Cell, round int) float64
		want Word
	}{
		{"clearly less", func(c Cell, round int) float64 {
			return map[string]float64{"a": 1, "b": 2}[c["way"]] * float64(10+round)
		}, Holds},
		{"clearly more at one size", func(c Cell, round int) float64 {
			if c["way"] == "a" && c["size"] == "1024" {
				return 30
			}
			return map[string]float64{"a": 1, "b": 2}[c["way"]] * float64(10+round)
		}, Fails},
		{"now less, now more", func(c Cell, round int) float64 {
			if c["way"] == "a" {
				return []float64{8, 12, 9, 11, 10}[round]
			}
			return 10
		}, NotHere},
		{"a round slows both", func(c Cell, round int) float64 { // the intervals overlap, the ratios do not
			return map[string]float64{"a": 1, "b": 1.1}[c["way"]] * float64(int(10)<<round)
		}, Holds},
	} {
		if v := e.Claims[0].Verdict(given(e, 2, c.took)); v.Word != c.want || v.Reason == "" {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	two := NewResults(e, Header{Size: CI})
	for round := range 2 {
		for _, c := range e.Cells(CI) {
			two.Add(Sample{Cell: c, Round: round, Values: Values{"took": 1}})
		}
	}
	if v := e.Claims[0].Verdict(two); v.Word != NotHere || !strings.Contains(v.Reason, "2 rounds") {
		t.Errorf("two rounds: %+v", v)
	}
}

// TestTooFewCores: a claim that supposes processors which are not here is not refuted.
func TestTooFewCores(t *testing.T) {
	e := sample(nil)
	p := e.Claims[0]
	p.Cores = 4
	worse := func(c Cell, _ int) float64 { return map[string]float64{"a": 2, "b": 1}[c["way"]] }
	if v := p.Verdict(given(e, 2, worse)); v.Word != NotHere || !strings.Contains(v.Reason, "4 processors") {
		t.Errorf("%+v", v)
	}
	if v := p.Verdict(given(e, 4, worse)); v.Word != Fails {
		t.Errorf("%+v", v)
	}
}

func TestCross(t *testing.T) {
	e := sample(nil)
	cross := func(from, to float64) Verdict {
		r := given(e, 2, func(c Cell, round int) float64 {
			if c["way"] == "a" {
				return float64(c.Number("size")) // 1, 1024, 1048576
			}
			return 100000 + float64(round)
		})
		return r.Cross("size", Cell{"way": "a"}, Cell{"way": "b"}, "took", from, to)
	}
	if v := cross(1024, 1<<20); v.Word != Holds {
		t.Errorf("%+v", v)
	}
	if v := cross(1, 1024); v.Word != Fails {
		t.Errorf("%+v", v)
	}
	flat := given(e, 2, func(c Cell, _ int) float64 { return map[string]float64{"a": 1, "b": 2}[c["way"]] })
	if v := flat.Cross("size", Cell{"way": "a"}, Cell{"way": "b"}, "took", 1, 1<<20); v.Word != Fails {
		t.Errorf("lines that do not cross: %+v", v)
	}
}

func TestBeyond(t *testing.T) {
	e := sample(nil)
	r := given(e, 2, func(_ Cell, round int) float64 { return float64(10 + round) })
	c := e.Cells(CI)[0]
	for bound, want := range map[float64]Word{5: Holds, 12: NotHere, 20: Fails} {
		if v := r.Beyond(c, "took", bound); v.Word != want || Not(Not(v)) != v {
			t.Errorf("beyond %v: %+v", bound, v)
		}
	}
	if v := All(); v.Word != NotHere {
		t.Errorf("%+v", v)
	}
}

// TestRawRoundTrip: what was written raw, read again, gives the same document.
func TestRawRoundTrip(t *testing.T) {
	n := 0.0
	e := sample(func(c Cell) (Values, error) {
		if c["size"] == "1" {
			return nil, &Untold{"no"}
		}
		n++
		return Values{"took": n}, nil
	})
	var raw bytes.Buffer
	r, err := Run(t.Context(), e, Options{Size: CI, Seed: 3, Raw: &raw})
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(raw.String(), "\n"); lines != 1+5*4+2 {
		t.Errorf("%d lines for a header, 20 samples and 2 cells that cannot be measured", lines)
	}
	again, err := Read(&raw, func(id string) *Experiment { return map[string]*Experiment{"E0": e}[id] })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := again.section(), r.section(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if _, err := Read(strings.NewReader(`{"experiment":"E77"}`), func(string) *Experiment { return nil }); err == nil {
		t.Error("raw results of an unknown experiment are read")
	}
	if _, err := Read(strings.NewReader(""), nil); err == nil {
		t.Error("an empty file is read")
	}
}

// TestDocument: only the generated parts change, and a document that lacks one is left as it is.
func TestDocument(t *testing.T) {
	e := sample(func(c Cell) (Values, error) { return Values{"took": float64(c.Number("size"))}, nil })
	r, err := Run(t.Context(), e, Options{Size: CI})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "experiments.md")
	b1, e1 := marks(part)
	b2, e2 := marks("E0")
	text := "# head\n" + b1 + "old\n" + e1 + "by hand\n" + b2 + e2 + "tail\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := WriteDocument(path, []*Results{r}, "make exp"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# head\n" + b1, e1 + "by hand\n" + b2, e2 + "tail\n", "Of the claims, ", "Claims: ", "img/exp-sample-1.svg"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old\n") {
		t.Error("the old part is still there")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "img/exp-sample-1.svg")); err != nil {
		t.Error(err)
	}
	lacking := strings.Replace(text, b2, "", 1)
	if err := os.WriteFile(path, []byte(lacking), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteDocument(path, []*Results{r}, "make exp"); err == nil {
		t.Error("a document without a place for E0 was written")
	}
	if got, _ := os.ReadFile(path); string(got) != lacking {
		t.Error("it has changed")
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1.00", 0.01234: "0.0123", 123.4: "123", 123456: "123000", 0.0000012345: "1.23e-06", -5.5: "-5.50"} {
		if got := Short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for n, want := range map[int]string{64: "64 B", 4096: "4 KiB", 1408: "1408 B", 16 << 20: "16 MiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
