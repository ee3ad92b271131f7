package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// budget is the CPU time that packages may use, tests and all processes that these wait for. The file has a line for
// each: its directory, a blank, seconds. What has no line gets ungranted.
type budget map[string]time.Duration

// ungranted is for packages without a line: what a small one needs.
const ungranted = 5 * time.Second

// noise is the factor between the CPU times of equal work on two machines, or on one beside other work, whose processes
// share cores and caches with it: between a budget and so much of it nobody can tell a package that grew from a bad day.
const noise = 2

func readBudget(file string) (budget, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	b := make(budget)
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 2 {
			return nil, fmt.Errorf("%s:%d: %q, want PACKAGE SECONDS", file, i+1, line)
		}
		seconds, err := strconv.ParseFloat(words[1], 64)
		if err != nil || seconds <= 0 {
			return nil, fmt.Errorf("%s:%d: %q are no seconds", file, i+1, words[1])
		}
		if b[words[0]] > 0 {
			return nil, fmt.Errorf("%s:%d: %s has two lines", file, i+1, words[0])
		}
		b[words[0]] = time.Duration(seconds * float64(time.Second))
	}
	return b, nil
}

// of returns what a package may use.
func (b budget) of(pkg string) time.Duration { return cmp.Or(b[pkg], ungranted) }

// longestFirst sorts packages so that the longest do not begin last: before all, those that wait for longer than they compute.
func (b budget) longestFirst(pkgs []string, waiting ...string) {
	slices.SortStableFunc(pkgs, func(x, y string) int {
		switch xWaits, yWaits := slices.Contains(waiting, x), slices.Contains(waiting, y); {
		case xWaits && !yWaits:
			return -1
		case yWaits && !xWaits:
			return 1
		}
		return cmp.Compare(b[y], b[x])
	})
}

// over returns the packages that used more than they may, if there is a budget.
func (b budget) over(used map[string]usage) (over []usage) {
	if len(b) == 0 {
		return nil
	}
	for _, u := range used {
		if u.cpu > b.of(u.pkg) {
			over = append(over, u)
		}
	}
	slices.SortFunc(over, func(x, y usage) int { return cmp.Compare(x.pkg, y.pkg) })
	return over
}

// fails reports whether a package that is over its budget fails for it.
func (b budget) fails(u usage) bool { return u.cpu > noise*b.of(u.pkg) }

// sum returns what all packages of used used, and what they may use.
func (b budget) sum(used map[string]usage) (cpu, may time.Duration) {
	for _, u := range used {
		cpu += u.cpu
		may += b.of(u.pkg)
	}
	return cpu, may
}

// writeBudget writes what packages used, the most first.
func writeBudget(file string, used map[string]usage) error {
	var all []usage
	for _, u := range used {
		all = append(all, u)
	}
	slices.SortFunc(all, func(x, y usage) int { return cmp.Compare(y.cpu, x.cpu) })
	var b strings.Builder
	for _, u := range all {
		fmt.Fprintf(&b, "%s %.1f\n", u.pkg, u.cpu.Seconds())
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
