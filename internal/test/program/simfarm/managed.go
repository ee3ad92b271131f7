package simfarm

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/history"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// managed is a connection manager around a pkg/scheduler, as in pkg/connmgr: the scheduler sees what a
// manager sees, when it sees it.
type managed struct {
	c       *client
	s       *scheduler.Scheduler
	list    []scheduler.Host
	byName  map[string]*link
	alarm   *event // for Due, Pick and Hedges
	history *history.Store
	flying  map[uint64]*work // works with a flight
	req     map[*work]*scheduler.Job
	shares  map[*work]bool
	told    bool // the scheduler is told what hosts hold
}

// epoch is the start of simulated time; to the scheduler a zero time means none.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

var tool = [16]byte{1}

func keyOf(j *Job) history.Key { return history.Of(tool, j.Name, nil) }

// emptyHistory returns a history without a file.
func emptyHistory() *history.Store {
	s, err := history.Open("/nonexistent/history", 1<<20)
	if err != nil {
		panic(err) // a file that does not exist is an empty history
	}
	return s
}

// manager returns the rule of a manager that tells its scheduler what hosts hold, or does not.
func manager(told bool) func(f *farm, seed uint64) func(c *client) rule {
	return func(f *farm, seed uint64) func(c *client) rule { return newManaged(f, seed, told) }
}

func newManaged(f *farm, seed uint64, told bool) func(c *client) rule {
	return func(c *client) rule {
		r := rand.New(rand.NewPCG(seed, 1<<32+uint64(len(c.Name))))
		m := &managed{
			c: c, s: scheduler.New(scheduler.Config{Rand: r.Float64}), byName: map[string]*link{}, history: emptyHistory(),
			flying: map[uint64]*work{}, req: map[*work]*scheduler.Job{}, shares: map[*work]bool{}, told: told,
		}
		for _, l := range c.links {
			if l.d.Name == localhost {
				continue // the scheduler knows it already
			}
			m.list = append(m.list, scheduler.Host{Addr: l.d.Name})
			m.byName[l.d.Name] = l
		}
		if f.Warm {
			for range 2 { // builds before this one
				for i := range c.Jobs {
					j := &c.Jobs[i]
					m.history.Learn(keyOf(j), j.Bytes, time.Duration(float64(j.CPU)*math.Exp(f.Noise*r.NormFloat64())), j.RSS)
				}
			}
		}
		return m
	}
}

func (m *managed) now() time.Time { return epoch.Add(m.c.f.e.now) }

func (m *managed) start() {
	m.s.Ensure(m.now(), m.list)
	m.s.Up(m.now(), scheduler.LocalHost, scheduler.Capacity{Jobs: m.c.Cores})
	m.dial()
}

// dial connects to the hosts that are due.
func (m *managed) dial() {
	due, next := m.s.Due(m.now())
	for _, addr := range due {
		m.s.Connecting(m.now(), addr)
		m.byName[addr].connect()
	}
	m.wakeAt(next)
}

// wakeAt requests a turn at a time; zero is never. An earlier request stands.
func (m *managed) wakeAt(t time.Time) {
	if t.IsZero() {
		return
	}
	at := max(t.Sub(epoch), m.c.f.e.now+time.Millisecond)
	if m.alarm != nil && m.alarm.do != nil && m.alarm.at <= at {
		return
	}
	m.alarm.cancel()
	m.alarm = m.c.f.e.at(at, func() {
		m.c.kick()
	})
}

func (m *managed) up(l *link) {
	m.s.Up(m.now(), l.d.Name, scheduler.Capacity{Jobs: l.d.Cores, Toolchains: 1, Tree: true, Memory: l.d.Memory})
	m.s.Toolchains(l.d.Name, tool)
	m.s.Link(m.now(), l.d.Name, scheduler.Link{RTT: l.d.RTT})
}

func (m *managed) lost(l *link, why string) { m.s.Lost(m.now(), l.d.Name, why, false) }

func (m *managed) credits(l *link) { m.s.Credits(m.now(), l.d.Name, l.unspent) }

func (m *managed) load(l *link, v view) {
	m.s.Load(m.now(), l.d.Name, scheduler.Load{Running: v.running, Queued: v.queued, Average: v.average, MemoryFree: 64 << 30})
}

// job returns w as the scheduler sees it.
func (m *managed) job(w *work) *scheduler.Job {
	j := m.req[w]
	if j == nil {
		j = &scheduler.Job{
			Hosts: m.list, Tried: w.tried, Toolchain: tool, Size: w.Bytes, Bytes: w.Bytes, Since: m.now(),
			Build: 1, Local: m.c.Local, Tree: true, Cost: m.history.Predict(keyOf(w.Job), w.Bytes),
		}
		if m.told {
			j.Held = m.c.heldOf(w.Job)
		}
		m.req[w] = j
	}
	return j
}

func (m *managed) turn() {
	m.dial()
	m.hedge()
	waiting := slices.Clone(m.c.waiting)
	jobs := make([]*scheduler.Job, len(waiting))
	for i, w := range waiting {
		jobs[i] = m.job(w)
	}
	for _, i := range m.s.Order(m.now(), jobs) {
		w := waiting[i]
		d := m.s.Pick(m.now(), jobs[i])
		switch d.Verdict {
		case scheduler.Run:
			m.c.take(w)
			m.fly(w, d.Host, false)
		case scheduler.Local:
			m.c.take(w)
			m.shares[w] = d.Share
			m.c.runHere(w)
		case scheduler.Wait:
			m.wakeAt(d.Until)
		}
	}
	m.hedge()
}

// hedge sends duplicates: before other jobs take the places, and after them to learn when there will be more.
func (m *managed) hedge() {
	hedges, next := m.s.Hedges(m.now())
	for _, h := range hedges {
		m.fly(m.flying[h.ID], h.Host, true)
		m.c.f.hedges++
	}
	m.wakeAt(next)
}

// fly sends w to a host with one of its credits.
func (m *managed) fly(w *work, addr string, hedge bool) {
	m.s.Started(m.now(), w.id, addr, m.job(w))
	m.flying[w.id] = w
	m.byName[addr].send(w, hedge)
}

func (m *managed) done(f *flight, wall time.Duration) {
	addr := f.l.d.Name
	rep := scheduler.Report{ID: f.w.id, Source: f.w.Name}
	switch {
	case wall >= 0:
		rep.Wall, rep.CPU = wall, time.Duration(float64(f.w.cpu)/f.l.d.m.speed)
		rep.RSS, rep.Bytes, rep.Result = f.w.RSS, f.bytes, f.w.Out
		m.history.Learn(keyOf(f.w.Job), f.w.Bytes, time.Duration(float64(rep.CPU)*m.s.Speed(addr, tool)), f.w.RSS)
		if l := f.l; l.d.Rate > 0 {
			m.s.Link(m.now(), addr, scheduler.Link{RTT: l.d.RTT, Rate: l.d.Rate})
		}
		m.s.Done(m.now(), addr, scheduler.OK, rep)
	case f.l.conn != f.conn:
		m.s.Done(m.now(), addr, scheduler.Gone, rep)
	default:
		m.s.Done(m.now(), addr, scheduler.Unused, rep)
	}
}

func (m *managed) ended(w *work) {
	if m.shares[w] {
		m.s.Done(m.now(), scheduler.LocalHost, scheduler.OK, scheduler.Report{ID: w.id})
	}
	delete(m.shares, w)
	delete(m.flying, w.id)
	delete(m.req, w)
}
