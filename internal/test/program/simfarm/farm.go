package simfarm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Case is a farm and the builds on it.
type Case struct {
	Name    string
	About   string // one line
	Hosts   []Host
	Clients []Client
	Warm    bool          // the clients have built the same before
	Noise   float64       // sigma of the variation of the same compile over time
	Sample  time.Duration // interval of sampling utilisation; 0 = none
	Stores  *Stores       // nil: hosts keep nothing, each job brings everything
}

// Outcome is the result of a case with a rule.
type Outcome struct {
	Rule     string
	Makespan time.Duration   // until the end of the last client's build
	Builds   []time.Duration // of each client
	Latency  []time.Duration // of all jobs from the moment when make started them, sorted
	Local    int             // jobs done on the client's own cores
	Hedges   int             // duplicates
	Stuck    int             // jobs that did not end
	Busy     float64         // core seconds on the hosts
	Sent     uint64          // bytes of jobs on the wire
	Lacks    int             // jobs whose host had dropped what they name, and was sent that again
	Use      []float64       // fraction of the hosts' cores in use, at each Case.Sample
}

// Percentile returns a percentile of the latencies, p in [0, 1].
func (o *Outcome) Percentile(p float64) time.Duration {
	if len(o.Latency) == 0 {
		return 0
	}
	i := int(math.Ceil(p*float64(len(o.Latency)))) - 1
	return o.Latency[max(0, min(i, len(o.Latency)-1))]
}

// farm is a run of a case.
type farm struct {
	*Case
	e       *engine
	daemons []*daemon
	clients []*client
	hedges  int
	use     []float64
}

// limit stops a run that does not end.
const limit = 24 * time.Hour

// Run runs a case with a rule, one of Rules. The same seed gives the same jobs and the same outcome.
func Run(c *Case, rule string, seed uint64) (*Outcome, error) {
	plan := rules[rule]
	if plan == nil {
		return nil, fmt.Errorf("no rule %q", rule)
	}
	f := &farm{Case: c, e: new(engine)}
	for i := range c.Hosts {
		f.addHost(c.Hosts[i])
	}
	left := 0
	for i := range c.Clients {
		cl := f.addClient(c.Clients[i], rand.New(rand.NewPCG(seed, uint64(i))))
		left += cl.left
	}
	ruleOf := plan(f, seed)
	for i, cl := range f.clients {
		cl.rule = ruleOf(cl)
		f.e.at(c.Clients[i].Start, cl.begin)
	}
	if c.Sample > 0 {
		f.e.at(0, f.sample)
	}
	f.e.run(limit, func() bool { return !slices.ContainsFunc(f.clients, func(c *client) bool { return c.left > 0 }) })
	return f.outcome(rule), nil
}

// localhost is the single client's own machine as a host.
const localhost = scheduler.LocalHost

func (f *farm) addHost(h Host) {
	m := &machine{e: f.e, cores: float64(h.Cores), speed: h.Speed, foreign: h.Foreign}
	d := newDaemon(h, f.e, m)
	d.schedule()
	f.daemons = append(f.daemons, d)
}

func (f *farm) addClient(spec Client, r *rand.Rand) *client {
	c := &client{Client: spec, f: f, left: len(spec.Jobs)}
	c.m = &machine{e: f.e, cores: float64(spec.Cores), speed: spec.Speed}
	for i := range spec.Jobs {
		j := &spec.Jobs[i]
		w := &work{Job: j, c: c, id: uint64(i + 1), tried: map[string]bool{}}
		w.cpu = time.Duration(float64(j.CPU) * math.Exp(f.Noise*r.NormFloat64()))
		c.works = append(c.works, w)
	}
	if spec.Local {
		// For the other rules the client's cores are one more host, last in the list.
		f.daemons = append(f.daemons, newDaemon(Host{Name: localhost, Cores: spec.Cores, Speed: spec.Speed}, f.e, c.m))
	}
	for i, d := range f.daemons {
		l := &link{c: c, d: d, i: i, up: pipe{rate: d.Rate}, down: pipe{rate: d.Rate}, seen: -time.Hour, asked: -time.Hour}
		if f.Stores != nil {
			l.store = newStore(f.Stores, d.Name, spec.Jobs)
		}
		c.links = append(c.links, l)
	}
	f.clients = append(f.clients, c)
	return c
}

// sample records how much of the farm computes.
func (f *farm) sample() {
	n, cores := 0.0, 0.0
	for _, d := range f.daemons {
		d.m.settle()
		if d.well() {
			cores += d.m.cores
			n += d.m.rate() / d.m.speed * float64(len(d.m.tasks))
		}
	}
	f.use = append(f.use, n/max(cores, 1))
	f.e.after(f.Sample, f.sample)
}

func (f *farm) outcome(rule string) *Outcome {
	o := &Outcome{Rule: rule, Use: f.use, Hedges: f.hedges}
	for _, c := range f.clients {
		o.Builds = append(o.Builds, c.end-c.Start)
		o.Makespan = max(o.Makespan, c.end)
		o.Stuck += c.left
		o.Lacks += c.lacks
		for _, w := range c.works {
			for _, f := range w.flights {
				if f.l.d.Name != localhost {
					o.Sent += f.bytes
				}
			}
			if w.ran {
				o.Latency = append(o.Latency, w.end-w.began)
			}
			if w.isLocal || len(w.flights) > 0 && w.flights[len(w.flights)-1].l.d.Name == localhost {
				o.Local++
			}
		}
	}
	for _, d := range f.daemons {
		d.m.settle()
		o.Busy += d.m.busy
	}
	slices.Sort(o.Latency)
	return o
}
