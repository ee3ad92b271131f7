package simfarm

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func TestMachineSharesItsCores(t *testing.T) {
	e := new(engine)
	m := &machine{e: e, cores: 2, speed: 2}
	var ended []time.Duration
	note := func() { ended = append(ended, e.now.Round(time.Microsecond)) }
	for range 3 { // 3 on 2 cores: each gets 4/3 a second
		m.start(4*time.Second, note)
	}
	e.at(1500*time.Millisecond, func() { m.change(2, 1) }) // 4 processes: 1 a second, 2 s are left
	e.at(2500*time.Millisecond, func() { m.stop(m.tasks[0]) })
	// Two with 1 s left, of three processes: 4/3 a second.
	e.run(time.Hour, func() bool { return len(ended) == 2 })
	want := []time.Duration{3250 * time.Millisecond, 3250 * time.Millisecond}
	if !reflect.DeepEqual(ended, want) {
		t.Errorf("tasks ended at %v, want %v", ended, want)
	}
	if m.busy < 5.499 || m.busy > 5.501 { // 1.5 s of 2 cores, 1 s of 1.5, 0.75 s of 4/3
		t.Errorf("%.3f core seconds were used, want 5.5", m.busy)
	}
}

func jobsOf(cpu ...time.Duration) (jobs []Job) {
	for _, c := range cpu {
		jobs = append(jobs, Job{CPU: c})
	}
	return jobs
}

func mustRun(t *testing.T, c *Case, rule string) *Outcome {
	t.Helper()
	o, err := Run(c, rule, 1)
	if err != nil {
		t.Fatal(err)
	}
	if o.Stuck > 0 {
		t.Fatalf("%s, %s: %d jobs did not end", c.Name, rule, o.Stuck)
	}
	return o
}

// around allows for round trips and the granularity of work.
func around(got, want time.Duration) bool {
	return got >= want-time.Millisecond && got < want+want/20+20*time.Millisecond
}

func TestOracleTakesTheEarliestEnd(t *testing.T) {
	const s = time.Second
	hosts := []Host{{Name: "slow", Cores: 1, Speed: 1}, {Name: "fast", Cores: 1, Speed: 3}}
	client := func(jobs []Job) []Client { return []Client{{Cores: 4, Speed: 1, J: 8, Jobs: jobs}} }
	dies := []Host{{Name: "slow", Cores: 1, Speed: 1}, {Name: "fast", Cores: 1, Speed: 3, Changes: []Change{{At: 1500 * time.Millisecond, Foreign: -1, Fate: Closed}}}}
	busy := []Host{{Name: "slow", Cores: 1, Speed: 1}, {Name: "fast", Cores: 1, Speed: 3, Foreign: 5}}
	for _, c := range []struct {
		name  string
		hosts []Host
		jobs  []Job
		want  time.Duration
	}{
		{"two jobs wait for the fast host", hosts, jobsOf(3*s, 3*s), 2 * s},
		{"four need both", hosts, jobsOf(3*s, 3*s, 3*s, 3*s), 3 * s},
		{"the long one first", hosts, jobsOf(s, s, s, 9*s), 3 * s},
		{"what would die goes elsewhere", dies, jobsOf(3*s, 3*s), 3 * s},
		{"foreign load counts", busy, jobsOf(2*s, s), 2 * s},
	} {
		if o := mustRun(t, &Case{Name: c.name, Hosts: c.hosts, Clients: client(c.jobs)}, Oracle); !around(o.Makespan, c.want) {
			t.Errorf("%s: makespan %v, want %v", c.name, o.Makespan, c.want)
		}
	}
}

func TestDistccTakesFirstSlotsFirst(t *testing.T) {
	hosts := []Host{{Name: "a", Cores: 4, Speed: 1}, {Name: "b", Cores: 1, Speed: 0.1}}
	jobs := jobsOf(time.Second, time.Second, time.Second)
	o := mustRun(t, &Case{Name: "order", Hosts: hosts, Clients: []Client{{Cores: 4, Speed: 1, J: 8, Jobs: jobs}}}, Distcc)
	if !around(o.Makespan, 10*time.Second) {
		t.Errorf("makespan %v, want 10 s: the second job goes to the second host", o.Makespan)
	}
	o = mustRun(t, &Case{Name: "order", Hosts: hosts, Clients: []Client{{Cores: 4, Speed: 1, J: 8, Jobs: jobs}}}, Fastest)
	if !around(o.Makespan, time.Second) {
		t.Errorf("makespan %v of fastest first, want 1 s", o.Makespan)
	}
}

func TestLinksCarryOneMessageAtATime(t *testing.T) {
	jobs := jobsOf(time.Millisecond, time.Millisecond, time.Millisecond)
	for i := range jobs {
		jobs[i].Bytes = 1e6
	}
	hosts := []Host{{Name: "a", Cores: 8, Speed: 1, RTT: 100 * time.Millisecond, Rate: 1e6}}
	o := mustRun(t, &Case{Name: "link", Hosts: hosts, Clients: []Client{{Cores: 4, Speed: 1, J: 8, Jobs: jobs}}}, Fastest)
	if !around(o.Makespan, 3250*time.Millisecond) { // connected after 150 ms, 3 s of bytes, a round trip
		t.Errorf("makespan %v, want 3.25 s", o.Makespan)
	}
}

func TestSameSeedSameOutcome(t *testing.T) {
	cases, err := Cases(Scale{Hosts: 8, Jobs: 200, List: 80}, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if a, b := mustRun(t, c, Scheduler), mustRun(t, c, Scheduler); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two runs differ: %v and %v", c.Name, a.Makespan, b.Makespan)
		}
	}
}

func TestSharesOfManyClients(t *testing.T) {
	hosts := []Host{{Name: "a", Cores: 8, Speed: 1, RTT: time.Millisecond}, {Name: "b", Cores: 8, Speed: 1, RTT: time.Millisecond}}
	c := &Case{Name: "many", Hosts: hosts, Warm: true}
	r := rand.New(rand.NewPCG(1, 1))
	for range 8 {
		c.Clients = append(c.Clients, Client{Cores: 4, Speed: 1, J: 20, Jobs: Synthetic(r, Shape{Jobs: 100, Median: time.Second, Sigma: 0.3})})
	}
	o := mustRun(t, c, Scheduler)
	first, last := o.Builds[0], o.Builds[0]
	for _, b := range o.Builds {
		first, last = min(first, b), max(last, b)
	}
	if last > first*5/4 {
		t.Errorf("builds of the same size took %v to %v: the farm is not shared evenly", first, last)
	}
	if o.Local > 0 {
		t.Errorf("%d jobs were done on their own machines", o.Local)
	}
}
