package lend

import (
	"testing"
	"time"
)

// await adds a job whose source has to be fetched.
func (s *site) await(c *Conn) *Job {
	j := &Job{Owner: time.Second, Arrived: s.now}
	s.Await(c, j)
	return j
}

// fetches returns how many sources of each connection are fetched now.
func (s *site) fetches(conns ...*Conn) (n []int, jobs []*Job) {
	n = make([]int, len(conns))
	for j := s.Fetch(); j != nil; j = s.Fetch() {
		jobs = append(jobs, j)
		for i, c := range conns {
			if j.client == c.client {
				n[i]++
			}
		}
	}
	return n, jobs
}

// TestFetchesAreShared: as many sources are fetched in advance as there are cores, and a tenant that has them
// all does not keep another from its own.
func TestFetchesAreShared(t *testing.T) {
	s := newSite(Options{Cores: 4})
	a, b, c := s.add("a", 1), s.add("b", 1), s.add("c", 1)
	for range 10 {
		s.await(a)
	}
	n, jobs := s.fetches(a, b, c)
	if n[0] != 4 || s.Ahead() != 4 || s.Queued() != 6 {
		t.Fatalf("%v fetched, %d ahead, %d wait", n, s.Ahead(), s.Queued())
	}
	for range 10 {
		s.await(b)
	}
	if n, _ := s.fetches(a, b, c); n[0] != 0 || n[1] != 2 {
		t.Errorf("%v fetched, want 2 of the second tenant", n)
	}
	s.await(c)
	if n, _ := s.fetches(a, b, c); n[2] != 1 {
		t.Errorf("%v fetched, want 1 of the third", n)
	}
	// A core takes one that is there; one that never comes makes room as well.
	s.Enqueue(a, jobs[0])
	if got, _ := s.next(); got != jobs[0] || s.Ahead() != 6 {
		t.Errorf("a core takes %v, %d are ahead", got, s.Ahead())
	}
	for _, j := range jobs[1:] {
		s.Missed(j)
		s.Missed(j)
	}
	if n, _ := s.fetches(a, b, c); n[0] != 2 || n[1] != 0 {
		t.Errorf("%v fetched, want 2 of the first tenant", n)
	}
	s.Tick(s.now)
	s.SetMemory(1<<30, 5000)
	if n, _ := s.fetches(a, b, c); n[0]+n[1]+n[2] != 0 {
		t.Errorf("%v fetched although memory is short", n)
	}
}

// TestAwayJobsLeaveTheQueue: a job whose source was not fetched yet can be taken out like any other.
func TestAwayJobsLeaveTheQueue(t *testing.T) {
	s := newSite(Options{Cores: 1})
	c := s.add("a", 1)
	first, second := s.await(c), s.await(c)
	if j, _ := s.next(); j != nil {
		t.Fatal("a core took a job without a source")
	}
	if !s.Dequeue(first) || s.Dequeue(first) || s.Queued() != 1 {
		t.Errorf("%d wait", s.Queued())
	}
	if s.Fetch() != second || s.Dequeue(second) || s.Queued() != 0 || s.Ahead() != 1 {
		t.Errorf("%d wait, %d ahead", s.Queued(), s.Ahead())
	}
	s.Enqueue(c, second)
	if !s.Dequeue(second) || s.Ahead() != 0 {
		t.Errorf("%d ahead", s.Ahead())
	}
}

// TestSlotsAreShared: a tenant's credits bring as many slots as there can be spare credits, however many
// connections it has; another's bring theirs; and none while memory is short.
func TestSlotsAreShared(t *testing.T) {
	const slot = 1 << 20
	s := newSite(Options{Cores: 1})
	s.SetMemory(1<<30, 0)
	n := 0
	for range 3 * Most(1) {
		c := s.add("a", 1)
		k := s.Grant(c, s.now)
		if k.Bare = !s.BringsSlot(c, slot); !k.Bare {
			n++
		}
	}
	if n > Most(1) || n < Most(1)-1 {
		t.Errorf("%d slots, want about %d", n, Most(1))
	}
	b := s.add("b", 1)
	if !s.BringsSlot(b, slot) {
		t.Error("none for another tenant")
	}
	s.SetMemory(1<<30, 5000)
	if s.BringsSlot(b, slot) {
		t.Error("one under memory pressure")
	}
	s.SetMemory(10<<20, 0)
	if s.BringsSlot(b, slot) {
		t.Error("one although slots could take all memory")
	}
}
