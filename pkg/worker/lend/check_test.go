package lend

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// survey looks at every state of a scene. It returns how many there are, and the shortest way to one where something is
// wrong.
func survey(sc *scene, broken mischief, most int) (states int, way []string, err error) {
	type node struct {
		before int32
		step   int16 // of moves of the one before
	}
	nodes := []node{{-1, 0}}
	seen := map[[16]byte]bool{newTable(sc, broken).key(): true}
	var steps []int16
	replay := func(i int32, names *[]string) (*table, error) {
		steps = steps[:0]
		for at := i; at > 0; at = nodes[at].before {
			steps = append(steps, nodes[at].step)
		}
		w := newTable(sc, broken)
		for k := len(steps) - 1; k >= 0; k-- {
			m := w.moves()[steps[k]]
			if names != nil {
				*names = append(*names, m.name)
			}
			if err := m.do(w); err != nil {
				return w, err
			}
		}
		return w, nil
	}
	fail := func(i int32, last string, err error) (int, []string, error) {
		var names []string
		_, _ = replay(i, &names)
		return len(nodes), append(names, last), err
	}
	for i := int32(0); int(i) < len(nodes); i++ {
		w, err := replay(i, nil)
		if err != nil {
			return len(nodes), nil, err
		}
		all := w.moves()
		if !slices.ContainsFunc(all, func(m move) bool { return m.inner }) {
			if err := w.stuck(); err != nil {
				return fail(i, "nothing", err)
			}
		}
		for k := range all {
			if k > 0 {
				w, _ = replay(i, nil)
			}
			m := w.moves()[k]
			err := m.do(w)
			if err == nil {
				err = w.wrong()
			}
			if err != nil {
				return fail(i, m.name, err)
			}
			if key := w.key(); !seen[key] {
				seen[key] = true
				nodes = append(nodes, node{i, int16(k)})
				if len(nodes) >= most {
					return len(nodes), nil, errors.New("too many states")
				}
			}
		}
	}
	return len(nodes), nil, nil
}

// TestEveryOrder: whatever the order in which credits, recalls, jobs, cancellations and answers cross, every credit is in one
// place, every job is answered once, and whoever wants a credit gets one in the end.
func TestEveryOrder(t *testing.T) {
	part.Skip(t)
	scenes := map[string]scene{
		"two managers":        {hosts: 1, managers: 2, cores: 1, jobs: 2},
		"one cancels":         {hosts: 1, managers: 2, cores: 1, jobs: 1, cancels: 2},
		"needs change":        {hosts: 1, managers: 2, cores: 1, jobs: 1, demands: 2},
		"one goes":            {hosts: 1, managers: 2, cores: 1, jobs: 1, cancels: 1, leaves: 1},
		"the host goes down":  {hosts: 1, managers: 2, cores: 1, jobs: 1, closes: 1},
		"a job on two hosts":  {hosts: 2, managers: 1, cores: 1, jobs: 1, cancels: 1, hedges: true, closes: 1},
		"two jobs, two hosts": {hosts: 2, managers: 1, cores: 1, jobs: 2, hedges: true},
	}
	if testing.Short() {
		delete(scenes, "two jobs, two hosts")
		delete(scenes, "a job on two hosts")
	}
	for name, sc := range scenes {
		t.Run(name, func(t *testing.T) {
			states, way, err := survey(&sc, honest, 1_000_000)
			t.Logf("%d states", states)
			if err != nil {
				t.Fatalf("%v after\n%s", err, strings.Join(way, "\n"))
			}
		})
	}
}

// TestCheckerFindsMischief: what comes of each rule that is left out is found.
func TestCheckerFindsMischief(t *testing.T) {
	one := scene{hosts: 1, managers: 2, cores: 1, jobs: 1, cancels: 1, leaves: 1}
	two := scene{hosts: 2, managers: 1, cores: 1, jobs: 1, cancels: 1, hedges: true}
	for name, c := range map[string]struct {
		broken mischief
		sc     scene
		want   string
	}{
		"a manager returns what it has spent":       {returnsSpent, one, "in 2 places"},
		"a host asks twice":                         {asksTwice, scene{hosts: 1, managers: 2, cores: 1, jobs: 1, closes: 1}, "asked"},
		"a host forgets that a credit is spent":     {losesSpent, one, "unspent credits"},
		"a manager that has gone":                   {grantsGone, one, "gone"},
		"a core is given back twice":                {freesTwice, one, "core"},
		"both answers are taken":                    {keepsLoser, two, "answered twice"},
		"a cancelled job that waits gets no answer": {skipsAnswer, one, "never answered"},
	} {
		t.Run(name, func(t *testing.T) {
			states, way, err := survey(&c.sc, c.broken, 300_000)
			if err == nil || way == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%d states: %v", states, err)
			}
			t.Logf("%v after %d states and %d steps:\n%s", err, states, len(way), strings.Join(way, "\n"))
		})
	}
}
