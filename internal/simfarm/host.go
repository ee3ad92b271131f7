package simfarm

import (
	"math"
	"slices"
	"time"
)

// Host describes a host as it is in truth.
type Host struct {
	Name    string
	Cores   int
	Speed   float64       // work a second of a process on a core of its own
	RTT     time.Duration // to every client
	Rate    float64       // bytes/s each way, a client; 0 = no limit
	Memory  uint64        // bytes, 0 = plenty
	Fate    Fate          // at the start
	Foreign int           // processes of others, at the start
	Changes []Change      // in order of time
}

// Change of a host in the middle of a build.
type Change struct {
	At      time.Duration
	Speed   float64 // from now on; 0 = as it was
	Foreign int     // from now on; -1 = as it was
	Fate    Fate
}

// Fate of a host.
type Fate uint8

// Fates.
const (
	Same   Fate = iota // as it was; at the start: well
	Closed             // its daemon has died: connections are reset and refused
	Silent             // it answers nothing
	Back
)

// daemon is a host at work: connections, credits, a queue, and cores.
type daemon struct {
	Host
	e       *engine
	m       *machine
	fate    Fate // Same or Back: well
	conns   []*conn
	queue   []*flight
	running int
	average average
}

// conn is the daemon's side of a connection: what the client may hold, as
// pkg/worker shares it out.
type conn struct {
	l       *link
	credits int // granted and not spent, wherever they are
	tasks   int
	active  time.Duration // when its last job came
	ever    bool          // a job came
	recall  bool          // one is on its way
}

func (d *daemon) well() bool { return d.fate != Closed && d.fate != Silent }

// schedule makes the changes happen.
func (d *daemon) schedule() {
	for _, ch := range d.Changes {
		d.e.at(ch.At, func() {
			speed, foreign := d.m.speed, d.m.foreign
			if ch.Speed > 0 {
				speed = ch.Speed
			}
			if ch.Foreign >= 0 {
				foreign = ch.Foreign
			}
			d.average.step(d.e.now, len(d.m.tasks)+d.m.foreign)
			d.m.change(speed, foreign)
			switch ch.Fate {
			case Closed, Silent:
				d.die(ch.Fate)
			case Back:
				d.fate = Back
			case Same:
			}
		})
	}
}

// die ends all that runs. Who holds a connection hears of a closed one at once and
// of a silent one by its heartbeat.
func (d *daemon) die(f Fate) {
	d.fate = f
	d.queue = nil
	for len(d.m.tasks) > 0 {
		d.m.stop(d.m.tasks[0])
	}
	d.running = 0
	conns := d.conns
	d.conns = nil
	for _, c := range conns {
		after := d.RTT / 2
		if f == Silent {
			after = heartbeat
		}
		c.l.c.f.e.after(after, func() { c.l.ended(c, "reset") })
	}
}

// heartbeat is after how long a silent peer is given up.
const heartbeat = 5 * time.Second

// activeTime is how long after its last job a client counts as one that builds
// (pkg/worker).
const activeTime = 10 * time.Second

// spare is the number of credits beyond each client's first (pkg/worker).
func (d *daemon) spare() int { return d.Cores + max(2, d.Cores) }

func (c *conn) held() int { return c.credits + c.tasks }

func (d *daemon) building(c *conn) bool {
	return c.tasks > 0 || c.ever && d.e.now-c.active < activeTime
}

// count gives what shares depend on.
func (d *daemon) count() (active, free int) {
	free = d.spare()
	for _, c := range d.conns {
		free += 1 - c.held()
		if d.building(c) {
			active++
		}
	}
	return active, free
}

// share is how many credits c may hold.
func (d *daemon) share(c *conn, active int) int {
	switch {
	case active == 0:
		return 1 + d.spare()/max(1, len(d.conns))
	case d.building(c):
		return 1 + d.spare()/active
	}
	return 1
}

// rebalance grants what is free to those below their share, and asks those above
// to return what they do not use when it is not enough.
func (d *daemon) rebalance() {
	active, free := d.count()
	short := false
	for _, c := range d.conns {
		n := min(d.share(c, active)-c.held(), max(free, 0))
		if d.share(c, active) > c.held()+max(n, 0) {
			short = true
		}
		if n <= 0 {
			continue
		}
		free -= n
		c.credits += n
		d.e.after(d.RTT/2, func() { c.l.granted(c, n) })
	}
	if !short {
		return
	}
	for _, c := range d.conns {
		if over := min(c.held()-d.share(c, active), c.credits); over > 0 && !c.recall {
			c.recall = true
			d.e.after(d.RTT/2, func() { c.l.recalled(c, over) })
		}
	}
}

// arrive takes a job that a client has sent.
func (d *daemon) arrive(f *flight) {
	if !d.well() || !slices.Contains(d.conns, f.conn) {
		return // lost with the connection: the client's side tells
	}
	f.conn.credits = max(f.conn.credits-1, 0)
	f.conn.tasks++
	f.conn.active, f.conn.ever = d.e.now, true
	d.queue = append(d.queue, f)
	d.work()
}

// work starts what there are places for, in order of arrival.
func (d *daemon) work() {
	for len(d.queue) > 0 && d.running < d.Cores {
		f := d.queue[0]
		d.queue = d.queue[1:]
		d.running++
		d.average.step(d.e.now, len(d.m.tasks)+d.m.foreign)
		f.began = d.e.now
		f.task = d.m.start(f.w.cpu, func() { d.finish(f) })
	}
}

// finish sends a result, with a view of the load and a credit.
func (d *daemon) finish(f *flight) {
	d.average.step(d.e.now, len(d.m.tasks)+1+d.m.foreign)
	d.running--
	c := f.conn
	c.tasks--
	active, free := d.count()
	next := 0
	if free > 0 && c.held() < d.share(c, active) {
		next = 1
		c.credits++
	}
	d.work()
	v := d.view()
	at := f.l.down.send(d.e.now, f.w.Out) + d.RTT/2
	wall := d.e.now - f.began
	d.e.at(at, func() { f.l.result(f, next, v, wall) })
	d.rebalance()
}

// drop forgets a job that its client does not want any more.
func (d *daemon) drop(f *flight) {
	if i := slices.Index(d.queue, f); i >= 0 {
		d.queue = slices.Delete(d.queue, i, i+1)
	} else if f.task != nil && slices.Contains(d.m.tasks, f.task) {
		d.m.stop(f.task)
		d.running--
	} else {
		return // not here yet, or done: its answer is on its way
	}
	f.conn.tasks--
	f.conn.credits++
	d.e.after(d.RTT/2, func() { f.l.result(f, 1, d.view(), 0) })
	d.work()
}

// view is what a host says of itself.
type view struct {
	running, queued int
	average         float64
}

func (d *daemon) view() view {
	d.average.step(d.e.now, len(d.m.tasks)+d.m.foreign)
	return view{running: d.running, queued: len(d.queue), average: d.average.value}
}

// average is a load average over one minute.
type average struct {
	value float64
	at    time.Duration
}

// step brings it up to now, n processes having run since the last step.
func (a *average) step(now time.Duration, n int) {
	k := math.Exp(-(now - a.at).Seconds() / 60)
	a.value, a.at = a.value*k+float64(n)*(1-k), now
}
