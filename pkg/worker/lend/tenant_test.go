package lend

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestTenantsShareCores: neither a hundred boot numbers, nor weights, builds and lies
// about how long jobs take, give one tenant more of the cores than another.
func TestTenantsShareCores(t *testing.T) {
	s := newSite(Options{Cores: 4})
	honest := s.add("10.0.0.1", 1)
	var hostile []*Conn
	for range 100 {
		c := s.add("10.0.0.2", MaxWeight)
		c.client.SetDemand(-1, MaxBuilds)
		hostile = append(hostile, c)
	}
	got := map[string]time.Duration{}
	const span = 2000 * time.Second
	s.run(s.now.Add(span), func() {
		for len(honest.client.queue) < 4 {
			s.submit(honest, time.Second, Job{Expect: time.Second})
		}
		for _, c := range hostile {
			for len(c.client.queue) < 4 {
				s.submit(c, 5*time.Second, Job{Expect: time.Millisecond})
			}
		}
	}, func(j *Job) { got[j.client.tenant.name] += s.now.Sub(j.started) })
	for name, d := range got {
		if want := 2 * span; math.Abs((d - want).Seconds()) > 0.03*want.Seconds() {
			t.Errorf("%s had %v of the cores, want %v", name, d, want)
		}
	}
	if len(got) != 2 {
		t.Errorf("%d tenants ran jobs", len(got))
	}
}

// TestAttackJobFlood (job-flood): 99 in 100 of an honest client's jobs are done within twice the time that
// they take on its fair share of the cores, whatever another client floods the host with.
func TestAttackJobFlood(t *testing.T) {
	const takes, jobs = 3 * time.Second, 300
	floods := map[string]func(s *site, c *Conn){
		"100,000 jobs at once": func(s *site, c *Conn) {
			for len(c.client.queue) < 100_000 {
				s.submit(c, 100*time.Millisecond, Job{})
			}
		},
		"jobs as long as the honest ones": func(s *site, c *Conn) {
			for len(c.client.queue) < 100 {
				s.submit(c, takes, Job{})
			}
		},
		"long ones that are said to be short": func(s *site, c *Conn) {
			for len(c.client.queue) < 100 {
				s.submit(c, 10*time.Second, Job{Expect: time.Millisecond})
			}
		},
		"endless ones": func(s *site, c *Conn) {
			for len(c.client.queue) < 100 {
				s.submit(c, 10*time.Minute, Job{Expect: 100 * time.Millisecond})
			}
		},
	}
	// latencies are those of an honest client that has as many jobs under way as its part
	// of the cores, with a pause between two of them.
	latencies := func(cores, width int, flood func(s *site, c *Conn)) (out []time.Duration) {
		s := newSite(Options{Cores: cores})
		honest := s.add("10.0.0.1", 1)
		hostile := s.add("10.0.0.2", 1)
		next := make([]time.Time, width) // when each place asks again
		for i := range next {
			next[i] = s.now.Add(10*time.Second + time.Duration(i)*700*time.Millisecond)
		}
		under := map[*Job]int{}
		for len(out) < jobs {
			s.run(s.now.Add(time.Millisecond), func() {
				if flood != nil {
					flood(s, hostile)
				}
				for i, at := range next {
					if !at.IsZero() && !s.now.Before(at) {
						under[s.submit(honest, takes, Job{Expect: takes})] = i
						next[i] = time.Time{}
					}
				}
			}, func(j *Job) {
				if j.client == honest.client {
					out = append(out, s.now.Sub(j.Arrived))
					next[under[j]] = s.now.Add(200 * time.Millisecond)
					delete(under, j)
				}
			})
		}
		slices.Sort(out)
		return out
	}
	for name, flood := range floods {
		alone := latencies(2, 2, nil) // its share of four cores
		beside := latencies(4, 2, flood)
		p99 := func(d []time.Duration) time.Duration { return d[len(d)*99/100] }
		t.Logf("%s: p50 %v, p99 %v, most %v; alone on its share %v, %v", name, beside[len(beside)/2], p99(beside), beside[len(beside)-1], alone[len(alone)/2], p99(alone))
		if p99(beside) > 2*p99(alone) {
			t.Errorf("%s: 99 in 100 jobs end within %v, want at most twice %v", name, p99(beside), p99(alone))
		}
	}
}

// TestClientLimits: Options.Running and Options.Queued apply to a tenant, however many clients it has.
func TestClientLimits(t *testing.T) {
	s := newSite(Options{Cores: 8, Running: 3, Queued: 5})
	a, b, other := s.add("a", 1), s.add("a", 1), s.add("b", 1)
	refused := 0
	for i := range 20 {
		c := []*Conn{a, b}[i%2]
		c.Came(s.now)
		if s.Crowded(c.Tenant()) {
			refused++
			c.Answered()
			continue
		}
		s.submit(c, time.Second, Job{})
		for j, _ := s.next(); j != nil; j, _ = s.next() {
		}
	}
	if a.tenant.runs != 3 || a.tenant.queued != 5 || refused != 12 {
		t.Errorf("%d run, %d wait, %d were refused; want 3, 5, 12", a.tenant.runs, a.tenant.queued, refused)
	}
	s.submit(other, time.Second, Job{})
	if j, _ := s.next(); j == nil || j.client != other.client {
		t.Error("another client's job does not run")
	}
}
