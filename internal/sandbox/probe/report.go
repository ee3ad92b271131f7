package probe

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Line is the outcome of one attempt.
type Line struct {
	Name, Class string
	Reachable   bool
	Why         string // for a refused one: the name of an error or signal
}

// Report holds the outcomes of all attempts, in order.
type Report []Line

// Parse reads what Main has written. Incomplete output is an error: a probe that was killed half-way has
// reported nothing.
func Parse(out []byte) (Report, error) {
	var r Report
	seen := map[string]bool{}
	for line := range bytes.Lines(out) {
		f := strings.Fields(string(line))
		if len(f) == 2 && f[0] == "end" {
			if n, err := strconv.Atoi(f[1]); err != nil || n != len(r) {
				return nil, fmt.Errorf("probe: %d attempts, but it reports %s", len(r), f[1])
			}
			return r, r.whole(seen)
		}
		if len(f) != 4 || f[2] != "reachable" && f[2] != "refused" || seen[f[0]] {
			return nil, fmt.Errorf("probe: line %q", line)
		}
		seen[f[0]] = true
		r = append(r, Line{f[0], f[1], f[2] == "reachable", f[3]})
	}
	return nil, fmt.Errorf("probe: it ended after %d attempts", len(r))
}

// whole returns an error if an attempt is missing that this program would make.
func (r Report) whole(seen map[string]bool) error {
	for _, a := range Attempts() {
		if !seen[a.Name] {
			return fmt.Errorf("probe: no result for %s", a.Name)
		}
	}
	return nil
}

// Reachable returns what can be reached beyond the needs.
func (r Report) Reachable() []string {
	var names []string
	for _, l := range r {
		if l.Reachable && l.Class != Need && l.Class != Oracle {
			names = append(names, l.Name)
		}
	}
	return names
}

// Works returns an error that names what a compile needs and did not get: refusing everything is not a sandbox.
func (r Report) Works() error {
	var lacks []string
	found := false
	for _, l := range r {
		if l.Class == Need {
			found = true
			if !l.Reachable {
				lacks = append(lacks, l.Name+" ("+l.Why+")")
			}
		}
	}
	switch {
	case len(lacks) > 0:
		return errors.New("probe: a compile lacks " + strings.Join(lacks, ", "))
	case !found:
		return errors.New("probe: nothing that a compile needs was tried")
	}
	return nil
}

// Result returns the outcome of an attempt.
func (r Report) Result(name string) (Line, bool) {
	if i := slices.IndexFunc(r, func(l Line) bool { return l.Name == name }); i >= 0 {
		return r[i], true
	}
	return Line{}, false
}
