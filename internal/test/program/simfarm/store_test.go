package simfarm

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestHeadersKeepTotals(t *testing.T) {
	shape := Shape{Jobs: 500, Median: time.Second, Sigma: 0.9}
	jobs, plain := Synthetic(rand.New(rand.NewPCG(1, 1)), shape), Synthetic(rand.New(rand.NewPCG(1, 1)), shape)
	Headers(jobs)
	size := map[int]uint64{}
	var all, shared uint64
	for i := range jobs {
		j := &jobs[i]
		own := j.Bytes
		for _, p := range j.Shared {
			if size[p.ID] == 0 {
				size[p.ID] = p.Bytes
			}
			if size[p.ID] != p.Bytes {
				t.Fatalf("part %d has %d bytes, and %d of another job", p.ID, p.Bytes, size[p.ID])
			}
			own -= p.Bytes
			shared += p.Bytes
		}
		all += j.Bytes
		if own == 0 || own > j.Bytes {
			t.Errorf("%s: of %d bytes %d are its own", j.Name, j.Bytes, own)
		}
		if j.Bytes != plain[i].Bytes || j.CPU != plain[i].CPU {
			t.Errorf("%s has changed otherwise", j.Name)
		}
	}
	if shared < all/4*3 {
		t.Errorf("%d of %d bytes are shared, want three quarters", shared, all)
	}
}

func TestStoreDropsWhatWasUsedLongestAgo(t *testing.T) {
	a, b, c := Part{0, 100}, Part{1, 200}, Part{2, 300}
	job := func(parts ...Part) *Job {
		j := &Job{Bytes: 10, Shared: parts}
		for _, p := range parts {
			j.Bytes += p.Bytes
		}
		return j
	}
	s := newStore(&Stores{Limit: 450}, "h", []Job{*job(a, b, c)})
	for i, x := range []struct {
		j                 *Job
		first, late, held uint64
	}{
		{job(a, b), 310, 0, 0},
		{job(a, b), 10, 0, 300},
		{job(a, c), 310, 0, 100}, // b goes
		{job(a, c), 10, 0, 400},
		{job(b), 10, 200, 200}, // the client believes that it is there; a goes
		{job(c), 10, 300, 300}, // c went too: 500 bytes are more than 450
		{job(c), 10, 0, 300},
	} {
		first, late := s.needs(x.j)
		if held := s.held(x.j); first != x.first || late != x.late || held != x.held {
			t.Errorf("job %d moves %d bytes and %d late, %d held; want %d, %d, %d", i, first, late, held, x.first, x.late, x.held)
		}
		s.take(x.j)
		if s.size > s.limit {
			t.Errorf("after job %d it keeps %d bytes, more than %d", i, s.size, s.limit)
		}
	}
	s.clear()
	if first, late := s.needs(job(a)); first != 110 || late != 0 {
		t.Errorf("on a new connection a job moves %d bytes and %d late, want 110 and 0", first, late)
	}
	var none *store
	if first, late := none.needs(job(a)); first != 110 || late != 0 {
		t.Errorf("without a store a job moves %d bytes and %d late, want 110 and 0", first, late)
	}
}

// TestSharedHeadersGoOnce: what the second job moves is its own alone, and what a host has
// dropped costs a round trip beside the bytes.
func TestSharedHeadersGoOnce(t *testing.T) {
	jobs := jobsOf(time.Millisecond, time.Millisecond, time.Millisecond)
	for i := range jobs {
		jobs[i].Bytes, jobs[i].Shared = 1e6, []Part{{ID: i % 2, Bytes: 900e3}}
	}
	hosts := []Host{{Name: "a", Cores: 8, Speed: 1, RTT: 100 * time.Millisecond, Rate: 1e6}}
	for _, c := range []struct {
		name  string
		s     *Stores
		want  time.Duration // beside the 250 ms of connecting and a round trip
		sent  uint64
		lacks int
	}{
		{"no store", nil, 3 * time.Second, 3e6, 0},
		{"cold", &Stores{}, 2100 * time.Millisecond, 2100e3, 0},
		{"warm", &Stores{Warm: true}, 300 * time.Millisecond, 300e3, 0},
		{"room for one part", &Stores{Limit: 1e6}, 3100 * time.Millisecond, 3e6, 1},
	} {
		o := mustRun(t, &Case{Name: c.name, Hosts: hosts, Stores: c.s, Clients: []Client{{Cores: 4, Speed: 1, J: 8, Jobs: jobs}}}, Fastest)
		if !around(o.Makespan, 250*time.Millisecond+c.want) || o.Sent != c.sent || o.Lacks != c.lacks {
			t.Errorf("%s: %v, %d bytes, %d lacks; want %v, %d, %d", c.name, o.Makespan, o.Sent, o.Lacks, 250*time.Millisecond+c.want, c.sent, c.lacks)
		}
	}
}

// TestOneWarmHostDoesNotGetAll: if one host holds all headers and the others none, the build is shared
// among all, as fast as with the oracle.
func TestOneWarmHostDoesNotGetAll(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		b := &builder{Scale: Small, r: rand.New(rand.NewPCG(seed, 7))}
		hosts := b.same(4)
		for i := range hosts {
			hosts[i].RTT, hosts[i].Rate = 20*time.Millisecond, 5e6
		}
		jobs := Synthetic(b.r, Shape{Jobs: 400, Median: 900 * time.Millisecond, Sigma: 0.9, Size: 2e6})
		Headers(jobs)
		c := &Case{Name: "one warm", Hosts: hosts, Warm: true, Stores: &Stores{Warm: true, Only: "h2"}, Clients: []Client{b.client("a", hosts, jobs)}}
		told, untold, best := mustRun(t, c, Scheduler), mustRun(t, c, Untold), mustRun(t, c, Oracle)
		if told.Makespan > best.Makespan*21/20 || told.Makespan > untold.Makespan {
			t.Errorf("seed %d: makespan %v, the oracle's is %v, that without being told %v", seed, told.Makespan, best.Makespan, untold.Makespan)
		}
	}
}

// TestNoJobStarvesWithStores: however much another host holds, a job is done in a time
// that is of the size of its own.
func TestNoJobStarvesWithStores(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates builds of thousands of jobs")
	}
	b := &builder{Scale: Small, r: rand.New(rand.NewPCG(1, 99))}
	for _, c := range b.stores() {
		o, best := mustRun(t, c, Scheduler), mustRun(t, c, Oracle)
		if o.Percentile(1) > best.Percentile(1)*5/4 || o.Percentile(0.99) > best.Percentile(0.99)*5/4 {
			t.Errorf("%s: jobs take up to %v, 99 of 100 %v; the oracle's %v and %v", c.Name, o.Percentile(1), o.Percentile(0.99), best.Percentile(1), best.Percentile(0.99))
		}
		if o.Local > 0 {
			t.Errorf("%s: %d jobs were done here", c.Name, o.Local)
		}
	}
}
