package scheduler

import (
	"fmt"
	"testing"
)

// TestNamedJobs: for a job with a name, managers that know nothing of each other choose the same one of hosts that are
// equally good, wherever it stands in their lists; the names are spread evenly. What makes one host better counts first.
func TestNamedJobs(t *testing.T) {
	pick := func(name uint64, busy string, addrs ...string) string {
		s := New(Config{})
		for _, a := range addrs {
			up(s, t0, a, 4)
		}
		if busy != "" {
			wantRun(t, s.Pick(t0, job(hosts(busy)...)), busy)
		}
		j := job(hosts(addrs...)...)
		j.Name = name
		d := s.Pick(t0, j)
		if d.Verdict != Run {
			t.Fatalf("%+v", d)
		}
		return d.Host
	}
	where := make(map[string]int)
	const names = 400
	for name := range uint64(names) {
		name = (name + 1) * 0x9e3779b97f4a7c15
		one := pick(name, "", "a:1", "b:1", "c:1", "d:1")
		if other := pick(name, "", "d:1", "b:1", "a:1", "c:1"); other != one {
			t.Errorf("name %x goes to %s and %s", name, one, other)
		}
		if other := pick(name, one, "a:1", "b:1", "c:1", "d:1"); other == one {
			t.Errorf("name %x goes to %s, which has more to do", name, one)
		}
		where[one]++
	}
	for addr, n := range where {
		if n < names/8 || n > names/2 {
			t.Errorf("%d of %d names belong to %s", n, names, addr)
		}
	}
	if one := pick(0, "", "c:1", "b:1"); one != "c:1" {
		t.Errorf("a job without a name goes to %s, not to the first one", one)
	}
	if len(where) != 4 {
		t.Error(fmt.Sprint(where))
	}
}
