package simfarm

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// Client describes a machine that builds.
type Client struct {
	Name  string
	Cores int
	Speed float64
	Jobs  []Job
	J     int           // as in make -j
	Start time.Duration // of the build
	Local bool          // its cores are a host too; only for the case's single client
}

// client is a manager and the build around it: make starts J jobs at a time. Each lists what it reads,
// waits for a host, and ends with its result.
type client struct {
	Client
	f       *farm
	m       *machine
	links   []*link // by host
	rule    rule
	next    int
	listing int     // jobs listing now, at most twice the cores
	unlists []*work // waiting for that
	waiting []*work // waiting for a host, in order of arrival
	here    int     // compiles here, at most as many as cores
	inhere  []*work // waiting for that
	kicked  bool
	works   []*work
	left    int
	lacks   int // jobs whose host had dropped what they name
	end     time.Duration
}

// work is a job on its way through the farm.
type work struct {
	*Job
	c        *client
	id       uint64
	cpu      time.Duration // true amount of work this time
	began    time.Duration
	ready    time.Duration // when it was listed
	end      time.Duration
	tried    map[string]bool
	troubles int
	flights  []*flight
	local    *task
	isLocal  bool
	ran      bool
}

// flight is one attempt of a work on a host.
type flight struct {
	w     *work
	l     *link
	conn  *conn
	sent  time.Duration
	began time.Duration // on the host
	task  *task
	lent  lend.Job // its turn on a core there
	hedge bool
	bytes uint64 // moved there for it
	over  bool   // the client no longer counts on it
}

// rule places the jobs of one client.
type rule interface {
	start()
	up(l *link)
	lost(l *link, why string)
	credits(l *link)
	load(l *link, v view)
	turn()                              // c.waiting, or a host, has changed
	done(f *flight, wall time.Duration) // a result, or with wall < 0 none: lost, or unwanted
	ended(w *work)                      // wherever it ran
}

// link is the client's side of a connection to a host.
type link struct {
	c        *client
	d        *daemon
	i        int
	up, down pipe
	store    *store // the host's store for this client; nil: it keeps nothing
	conn     *conn  // nil: not connected
	unspent  int
	flights  []*flight
	asked    time.Duration // when the board was last requested
	seen     time.Duration // time of the last view
}

// connectTime is how long it takes to give up on an attempt to connect.
const connectTime = 2 * time.Second

// connect tries once; the outcome is rule.up or rule.lost.
func (l *link) connect() {
	e, d := l.c.f.e, l.d
	switch {
	case d.well():
		e.after(d.RTT*3/2, func() { // TCP and MPA, then Hello and Welcome
			if !d.well() {
				l.c.rule.lost(l, "reset")
				return
			}
			l.conn = d.connect(l)
			l.unspent = 0
			l.c.rule.up(l)
			l.c.rule.load(l, d.view())
			d.rebalance()
			l.c.kick()
		})
	case d.fate == Closed:
		e.after(d.RTT, func() { l.c.rule.lost(l, "refused"); l.c.kick() })
	default:
		e.after(connectTime, func() { l.c.rule.lost(l, "no answer"); l.c.kick() })
	}
}

// ended handles the end of a connection when the client learns of it.
func (l *link) ended(c *conn, why string) {
	if l.conn != c {
		return
	}
	l.conn, l.unspent = nil, 0
	l.store.clear()
	flights := l.flights
	l.flights = nil
	l.c.rule.lost(l, why)
	for _, f := range flights {
		l.c.failed(f)
	}
	l.c.kick()
}

func (l *link) granted(c *conn, n int) {
	if l.conn != c {
		return
	}
	l.unspent += n
	l.c.rule.credits(l)
	l.c.kick()
}

func (l *link) recalled(c *conn, n int) {
	if l.conn != c {
		return
	}
	n = min(n, l.unspent)
	l.unspent -= n
	l.c.rule.credits(l)
	l.c.f.e.after(l.d.RTT/2, func() { l.d.returned(c, n) })
}

// send puts a job on its way.
func (l *link) send(w *work, hedge bool) *flight {
	e := l.c.f.e
	first, late := l.store.needs(w.Job)
	l.store.take(w.Job)
	f := &flight{w: w, l: l, conn: l.conn, sent: e.now, hedge: hedge, bytes: first + late}
	w.flights = append(w.flights, f)
	l.flights = append(l.flights, f)
	l.unspent--
	land := func() {
		if f.over {
			l.d.undelivered(f)
			return
		}
		l.d.arrive(f)
	}
	at := l.up.send(e.now, first) + l.d.RTT/2
	if late == 0 {
		e.at(at, land)
		return f
	}
	l.c.lacks++
	e.at(at+l.d.RTT/2, func() { e.at(l.up.send(e.now, late)+l.d.RTT/2, land) })
	return f
}

// arrives returns when w would reach the host if it were sent now.
func (l *link) arrives(w *work) time.Duration {
	first, late := l.store.needs(w.Job)
	at := max(l.c.f.e.now, l.up.free) + l.up.takes(first) + l.d.RTT/2
	if late > 0 {
		at += l.d.RTT + l.up.takes(late)
	}
	return at
}

// result handles a result that reaches the client, with or without a credit.
func (l *link) result(f *flight, next int, v view, wall time.Duration) {
	if l.conn != f.conn {
		return
	}
	l.unspent += next
	if i := slices.Index(l.flights, f); i >= 0 {
		l.flights = slices.Delete(l.flights, i, i+1)
	}
	l.seen = l.c.f.e.now
	if !f.over && !f.w.ran {
		f.over = true
		l.c.rule.done(f, wall)
		l.c.finish(f.w)
		for _, o := range f.w.flights {
			if !o.over {
				l.c.callOff(o)
			}
		}
	}
	l.c.rule.credits(l)
	l.c.rule.load(l, v)
	l.c.kick()
}

// refused handles the end of a flight whose core went to another client: another host will try.
func (l *link) refused(f *flight, next int, v view) {
	if l.conn != f.conn {
		return
	}
	l.unspent += next
	if i := slices.Index(l.flights, f); i >= 0 {
		l.flights = slices.Delete(l.flights, i, i+1)
	}
	l.seen = l.c.f.e.now
	if !f.over {
		f.over = true
		l.c.rule.done(f, -1)
		f.w.tried[l.d.Name] = true
		l.c.again(f.w)
	}
	l.c.rule.credits(l)
	l.c.rule.load(l, v)
	l.c.kick()
}

// callOff cancels a flight whose result is no longer needed.
func (c *client) callOff(f *flight) {
	f.over = true
	c.rule.done(f, -1)
	c.f.e.after(f.l.d.RTT/2, func() { f.l.d.drop(f) })
}

// failed handles an attempt that failed because of the host: another host tries, and after two of them this machine.
func (c *client) failed(f *flight) {
	if f.over {
		return
	}
	f.over = true
	c.rule.done(f, -1)
	w := f.w
	w.tried[f.l.d.Name] = true
	w.troubles++
	c.again(w)
}

// again looks for another place for a work, unless another copy of it still runs.
func (c *client) again(w *work) {
	for _, o := range w.flights {
		if !o.over {
			return
		}
	}
	if w.troubles >= 2 {
		c.runHere(w)
		return
	}
	c.waiting = append([]*work{w}, c.waiting...)
}

// begin starts the build.
func (c *client) begin() {
	c.rule.start()
	for c.next < len(c.works) && c.next < c.J {
		c.admit()
	}
}

// admit makes make start a job.
func (c *client) admit() {
	w := c.works[c.next]
	c.next++
	w.began = c.f.e.now
	c.unlists = append(c.unlists, w)
	c.list()
}

// list does the work that a job costs its own machine before it can be sent.
func (c *client) list() {
	for len(c.unlists) > 0 && c.listing < 2*c.Cores {
		w := c.unlists[0]
		c.unlists = c.unlists[1:]
		c.listing++
		c.refresh()
		c.m.start(w.List, func() {
			c.listing--
			w.ready = c.f.e.now
			c.waiting = append(c.waiting, w)
			c.list()
			c.kick()
		})
	}
}

// viewFresh is the age up to which a view of a host is used when a job comes (pkg/connmgr).
const viewFresh = 500 * time.Millisecond

// refresh reads the boards of hosts not heard of for a while.
func (c *client) refresh() {
	now := c.f.e.now
	for _, l := range c.links {
		if l.conn == nil || now-l.seen < viewFresh || now-l.asked < 100*time.Millisecond {
			continue
		}
		l.asked = now
		c.f.e.after(l.d.RTT/2, func() {
			if !l.d.well() {
				return
			}
			v, of := l.d.view(), l.conn
			c.f.e.after(l.d.RTT/2, func() {
				if l.conn == of && of != nil {
					l.seen = c.f.e.now
					c.rule.load(l, v)
					c.kick()
				}
			})
		})
	}
}

// runHere compiles on the client's own cores.
func (c *client) runHere(w *work) {
	w.isLocal = true
	c.inhere = append(c.inhere, w)
	c.locals()
}

func (c *client) locals() {
	for len(c.inhere) > 0 && c.here < c.Cores {
		w := c.inhere[0]
		c.inhere = c.inhere[1:]
		c.here++
		w.local = c.m.start(w.cpu, func() {
			c.here--
			w.local = nil
			c.finish(w)
			c.locals()
			c.kick()
		})
	}
}

func (c *client) finish(w *work) {
	if w.ran {
		return
	}
	w.ran, w.end = true, c.f.e.now
	c.left--
	c.end = w.end
	c.rule.ended(w)
	if c.next < len(c.works) {
		c.admit()
	}
}

// kick requests a turn of the rule, one for everything that happens at this moment.
func (c *client) kick() {
	if c.kicked {
		return
	}
	c.kicked = true
	c.f.e.after(0, func() {
		c.kicked = false
		c.rule.turn()
	})
}

// take removes a work from those that wait.
func (c *client) take(w *work) {
	if i := slices.Index(c.waiting, w); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
}
