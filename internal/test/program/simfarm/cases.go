package simfarm

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Scale says how large the cases are.
type Scale struct {
	Hosts int // at least 8
	Jobs  int // approximate, for each build
	List  int // hosts in the list of mostly dead ones, of which a tenth answers
}

// Sizes: for the test suite, for the report (a minute or two of CPU), and one that takes half an hour.
var (
	Small = Scale{Hosts: 8, Jobs: 1500, List: 80}
	Large = Scale{Hosts: 32, Jobs: 4000, List: 320}
	Huge  = Scale{Hosts: 100, Jobs: 12000, List: 1000}
)

// Cases returns the situations by which a scheduler is judged, drawn from a seed.
func Cases(s Scale, seed uint64) ([]*Case, error) {
	b := &builder{Scale: s, r: rand.New(rand.NewPCG(seed, 99))}
	cases := []*Case{
		b.identical(), b.mixed(true), b.mixed(false), b.shared(), b.foreign(), b.highRTT(), b.slowLinks(), b.lost(), b.straggler(), b.tail(), b.dead(), b.local(),
	}
	recorded, err := b.recorded()
	if err != nil {
		return nil, err
	}
	cases = append(cases, recorded)
	cases = append(cases, b.stores()...)
	for _, c := range cases {
		c.Sample = 500 * time.Millisecond
	}
	return cases, nil
}

type builder struct {
	Scale
	r *rand.Rand
}

// same returns n hosts of 8 cores in a local network.
func (b *builder) same(n int) []Host {
	hosts := make([]Host, n)
	for i := range hosts {
		hosts[i] = Host{Name: fmt.Sprintf("h%d", i+1), Cores: 8, Speed: 1, RTT: 300 * time.Microsecond, Rate: 110e6}
	}
	return hosts
}

// unequal returns n hosts as they accumulate over the years: a quarter old and slow, some large and fast,
// in no order.
func (b *builder) unequal(n int) []Host {
	hosts := b.same(n)
	for i := range hosts {
		h := &hosts[i]
		switch i % 4 {
		case 0:
			h.Cores, h.Speed = 4, 0.4+0.1*b.r.Float64()
		case 1, 2:
			h.Cores, h.Speed = 8, 0.8+0.3*b.r.Float64()
		case 3:
			h.Cores, h.Speed = 16, 1.4+0.4*b.r.Float64()
		}
	}
	b.r.Shuffle(n, func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	return hosts
}

// client returns a client that builds with a -j that fits the farm.
func (b *builder) client(name string, hosts []Host, jobs []Job) Client {
	places := 0
	for _, h := range hosts {
		if h.Fate == Same {
			places += h.Cores
		}
	}
	return Client{Name: name, Cores: max(8, places/12), Speed: 1, Jobs: jobs, J: places*5/4 + 4}
}

func (b *builder) build() []Job {
	return Synthetic(b.r, Shape{Jobs: b.Jobs, Median: 900 * time.Millisecond, Sigma: 0.9})
}

func (b *builder) identical() *Case {
	hosts := b.same(b.Hosts)
	return &Case{Name: "identical", About: "identical idle hosts", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, b.build())}}
}

func (b *builder) mixed(warm bool) *Case {
	hosts := b.unequal(b.Hosts)
	name, about := "mixed", "hosts of 4, 8 and 16 cores, speeds 0.4 to 1.8; the history of an earlier build is known"
	if !warm {
		name, about = "mixed, cold", "the same, with an empty history"
	}
	return &Case{Name: name, About: about, Hosts: hosts, Warm: warm, Noise: 0.05, Clients: []Client{b.client("a", hosts, b.build())}}
}

func (b *builder) shared() *Case {
	hosts := b.unequal(b.Hosts)
	c := &Case{Name: "shared", About: "the mixed farm, three builds that start one after another", Hosts: hosts, Warm: true, Noise: 0.05}
	for i := range 3 {
		jobs := Synthetic(b.r, Shape{Jobs: b.Jobs / 2, Median: 900 * time.Millisecond, Sigma: 0.9})
		cl := b.client(fmt.Sprintf("c%d", i), hosts, jobs)
		cl.Start = time.Duration(i) * 3 * time.Second
		c.Clients = append(c.Clients, cl)
	}
	return c
}

func (b *builder) foreign() *Case {
	hosts := b.unequal(b.Hosts)
	for i := range hosts {
		h := &hosts[i]
		switch i % 3 {
		case 0: // someone's computation, all the time
			h.Foreign = h.Cores
		case 1: // comes and goes
			for at := time.Duration(b.r.IntN(4000)) * time.Millisecond; at < 5*time.Minute; at += time.Duration(4+b.r.IntN(8)) * time.Second {
				n := 0
				if len(h.Changes)%2 == 0 {
					n = 2 * h.Cores
				}
				h.Changes = append(h.Changes, Change{At: at, Foreign: n})
			}
		}
	}
	return &Case{Name: "foreign load", About: "the mixed farm; a third of the hosts also does other work, another third does so now and then", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, b.build())}}
}

func (b *builder) highRTT() *Case {
	hosts := b.unequal(b.Hosts)
	for i := range hosts {
		hosts[i].RTT, hosts[i].Rate = 50*time.Millisecond, 50e6
	}
	jobs := Synthetic(b.r, Shape{Jobs: 2 * b.Jobs, Median: 150 * time.Millisecond, Sigma: 0.9})
	return &Case{Name: "high RTT", About: "the mixed farm 50 ms away, short jobs (C)", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, jobs)}}
}

func (b *builder) slowLinks() *Case {
	hosts := b.unequal(b.Hosts)
	for i := range hosts {
		if i%2 == 0 {
			hosts[i].RTT, hosts[i].Rate = 10*time.Millisecond, 2.5e6
		}
	}
	return &Case{Name: "slow links", About: "the mixed farm; every second host behind 20 Mbit/s", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, b.build())}}
}

func (b *builder) lost() *Case {
	hosts := b.unequal(b.Hosts)
	for i := range hosts {
		switch i % 6 {
		case 0:
			hosts[i].Changes = []Change{{At: 4 * time.Second, Foreign: -1, Fate: Closed}}
		case 1:
			hosts[i].Changes = []Change{{At: 5 * time.Second, Foreign: -1, Fate: Silent}}
		}
	}
	return &Case{Name: "hosts lost", About: "the mixed farm; in mid-build, a sixth of the hosts dies and a sixth falls silent", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, b.build())}}
}

func (b *builder) straggler() *Case {
	hosts := b.unequal(b.Hosts)
	for i := range hosts {
		if i%6 == 0 {
			hosts[i].Changes = []Change{{At: 4 * time.Second, Foreign: -1, Speed: hosts[i].Speed / 30}}
		}
	}
	return &Case{Name: "stragglers", About: "the mixed farm; in mid-build, a sixth of the hosts becomes 30 times slower", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, b.build())}}
}

func (b *builder) tail() *Case {
	hosts := b.unequal(b.Hosts)
	jobs := Synthetic(b.r, Shape{Jobs: b.Jobs, Median: 400 * time.Millisecond, Sigma: 1.1, Giants: max(3, b.Hosts/8)})
	return &Case{Name: "long tail", About: "the mixed farm; a few units of 20 to 30 times the median, started last", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, jobs)}}
}

func (b *builder) dead() *Case {
	hosts := b.unequal(b.List)
	for i := range hosts {
		if i%10 != 3 {
			hosts[i].Fate = Closed
			if i%2 == 0 {
				hosts[i].Fate = Silent
			}
		}
	}
	return &Case{Name: "dead hosts", About: "a list in which nine tenths of the hosts do not answer", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, b.build())}}
}

func (b *builder) local() *Case {
	hosts := b.unequal(max(2, b.Hosts/4))
	c := &Case{Name: "local cores", About: "a quarter of the hosts; the build host's own cores, as many as a host has, count as one more host", Hosts: hosts, Warm: true, Noise: 0.05,
		Clients: []Client{b.client("a", hosts, Synthetic(b.r, Shape{Jobs: b.Jobs / 3, Median: 900 * time.Millisecond, Sigma: 0.9}))}}
	c.Clients[0].Local = true
	return c
}

func (b *builder) recorded() (*Case, error) {
	var jobs []Job
	for _, name := range []string{"leveldb", "redis", "yaml", "sqlite"} {
		part, err := Recorded(name)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, part...)
	}
	jobs = Repeat(jobs, max(1, b.Jobs/len(jobs)))
	hosts := b.unequal(b.Hosts)
	return &Case{Name: "recorded", About: "the mixed farm; recorded compiles of leveldb, redis, yaml-cpp and sqlite3, one after another", Hosts: hosts, Warm: true,
		Noise: 0.05, Clients: []Client{b.client("a", hosts, jobs)}}, nil
}

// stores returns three cases of one farm and one build: hosts 20 ms and 100 Mbit/s away that keep headers,
// and C++ with 2 MB per unit, of which a link carries six a second.
func (b *builder) stores() []*Case {
	hosts := b.unequal(b.Hosts)
	for i := range hosts {
		hosts[i].RTT, hosts[i].Rate = 20*time.Millisecond, 12.5e6
	}
	jobs := Synthetic(b.r, Shape{Jobs: b.Jobs, Median: 900 * time.Millisecond, Sigma: 0.9, Size: 2e6})
	Headers(jobs)
	c := func(name, about string, s Stores) *Case {
		return &Case{Name: name, About: about, Hosts: hosts, Warm: true, Noise: 0.05, Stores: &s, Clients: []Client{b.client("a", hosts, jobs)}}
	}
	return []*Case{
		c("cold store", "the mixed farm behind 100 Mbit/s and 20 ms, C++ with 2 MB of headers per unit; hosts keep headers, but start with none", Stores{}),
		c("warm store", "the same, but the hosts start with all headers of the build", Stores{Warm: true}),
		c("small store", "the same, but a host has room for only 12 MB, a fifth to a quarter of the headers", Stores{Warm: true, Limit: 12e6}),
	}
}
