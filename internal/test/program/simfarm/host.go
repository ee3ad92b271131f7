package simfarm

import (
	"math"
	"time"

	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// Host describes a host as it really is.
type Host struct {
	Name    string
	Cores   int
	Speed   float64       // work per second of a process on a core of its own
	RTT     time.Duration // to every client
	Rate    float64       // bytes per second each way, for each client; 0 = no limit
	Memory  uint64        // bytes, 0 = plenty
	Fate    Fate          // at the start
	Foreign int           // processes of others, at the start
	Changes []Change      // in order of time
}

// Change is a change of a host in the middle of a build.
type Change struct {
	At      time.Duration
	Speed   float64 // from now on; 0 = unchanged
	Foreign int     // from now on; -1 = unchanged
	Fate    Fate
}

// Fate is the state of a host.
type Fate uint8

// Fates.
const (
	Same   Fate = iota // unchanged; at the start: well
	Closed             // its daemon has died: connections are reset and refused
	Silent             // it answers nothing
	Back
)

// daemon is a host at work: connections, cores, and which of them are lent to whom.
type daemon struct {
	Host
	e       *engine
	m       *machine
	fate    Fate // Same or Back: well
	conns   []*conn
	lend    *lend.Ledger // a new one for each life
	ticks   *event       // the next periodic check; nil: no client is connected
	awaits  bool         // work will be called when a pause ends
	average average
}

// newDaemon puts a host to work on its machine.
func newDaemon(h Host, e *engine, m *machine) *daemon {
	d := &daemon{Host: h, e: e, m: m, fate: h.Fate}
	d.open()
	d.average.value = float64(h.Foreign)
	return d
}

func (d *daemon) well() bool { return d.fate != Closed && d.fate != Silent }

// schedule schedules the changes.
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

// die ends everything that runs. Connected clients learn of a closed host at once and of a silent one by
// their heartbeat.
func (d *daemon) die(f Fate) {
	d.fate = f
	for len(d.m.tasks) > 0 {
		d.m.stop(d.m.tasks[0])
	}
	conns := d.conns
	d.conns = nil
	d.ticks.cancel()
	d.ticks = nil
	d.open()
	for _, c := range conns {
		after := d.RTT / 2
		if f == Silent {
			after = heartbeat
		}
		c.l.c.f.e.after(after, func() { c.l.ended(c, "reset") })
	}
}

// heartbeat is how long it takes to give up on a silent peer.
const heartbeat = 5 * time.Second

// view is a host's view of itself.
type view struct {
	running, queued int
	average         float64
}

func (d *daemon) view() view {
	d.average.step(d.e.now, len(d.m.tasks)+d.m.foreign)
	return view{running: d.lend.Running(), queued: d.lend.Queued(), average: d.average.value}
}

// average is a one-minute load average.
type average struct {
	value float64
	at    time.Duration
}

// step brings the average up to now, with n processes having run since the last step.
func (a *average) step(now time.Duration, n int) {
	k := math.Exp(-(now - a.at).Seconds() / 60)
	a.value, a.at = a.value*k+float64(n)*(1-k), now
}
