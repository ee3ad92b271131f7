package exs

import (
	"container/heap"
	"fmt"
	"testing"
	"time"
)

// link is what the simulation runs on: a network and two hosts, in virtual time.
type link struct {
	rtt      time.Duration
	rate     float64       // bytes a second of the network
	copying  float64       // bytes a second that the receiver copies
	handling time.Duration // of the receiver's application, between a completion and the next receive
}

// load is what two applications do: the sender keeps so many sends outstanding, the receiver so many receives.
type load struct {
	size            uint64
	sends, receives int
	total           uint64 // bytes
	ring            uint64
	policy          Policy
}

type event struct {
	at time.Duration
	n  int
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { x := (*e)[len(*e)-1]; *e = (*e)[:len(*e)-1]; return x }

// simulate returns how long a load takes, and which part of it went direct.
func simulate(t *testing.T, l link, w load) (took time.Duration, direct float64) {
	t.Helper()
	s, r := NewSender(w.ring, w.policy), NewReceiver(w.ring)
	var q events
	var now time.Duration
	n := 0
	at := func(when time.Duration, do func()) { n++; heap.Push(&q, event{when, n, do}) }
	var wire, cpu time.Duration // busy until then
	var posted, got, directly uint64
	var id uint64
	var pump, drain, talk func()
	post := func() { id++; r.Post(id, w.size, true) }
	send := func() {
		if posted < w.total {
			posted += w.size
			s.Post(w.size)
		}
	}
	completed := func() {
		at(now+l.handling, func() { post(); drain(); talk() })
	}
	pump = func() {
		for wire <= now {
			queued := len(s.sends)
			next, ok := s.Next()
			if !ok {
				return
			}
			d, last := next.Data, len(s.sends) < queued
			wire = max(wire, now) + time.Duration(float64(d.Len)/l.rate*1e9)
			arrives := wire + l.rtt/2
			if d.Direct {
				directly += d.Len
			}
			at(arrives, func() {
				_, done, err := r.Data(d)
				if err != nil {
					t.Fatal(err)
				}
				if d.Direct {
					got += d.Len
				}
				if done {
					completed()
				}
				drain()
				talk()
			})
			if last {
				at(arrives+l.rtt/2, func() { send(); pump() })
			}
			at(wire, pump)
		}
	}
	drain = func() { // one copy at a time takes the receiver's processor
		if cpu > now {
			return
		}
		x, _, done, ok := r.Copy()
		if !ok {
			return
		}
		cpu = now + time.Duration(float64(x.Len)/l.copying*1e9)
		at(cpu, func() {
			got += x.Len
			if done {
				completed()
			}
			drain()
			talk()
		})
	}
	talk = func() {
		for {
			if k, ok := r.Ack(); ok {
				at(now+l.rtt/2, func() {
					if err := s.Ack(k); err != nil {
						t.Fatal(err)
					}
					pump()
				})
				continue
			}
			a, ok := r.Advertise()
			if !ok {
				return
			}
			at(now+l.rtt/2, func() {
				if err := s.Advert(a); err != nil {
					t.Fatal(err)
				}
				pump()
			})
		}
	}
	at(0, func() {
		for range w.receives {
			post()
		}
		talk()
	})
	at(l.rtt+time.Microsecond, func() { // the first adverts are there
		for range w.sends {
			send()
		}
		pump()
	})
	for q.Len() > 0 && got < w.total {
		e := heap.Pop(&q).(event)
		now = e.at
		e.do()
	}
	if got < w.total {
		t.Fatalf("%d of %d bytes have come, and nothing goes on", got, w.total)
	}
	return now, float64(directly) / float64(got)
}

// TestShares: with receives to spare the stream is direct. Where the receiver has no more of them than the sender has sends, and
// all of these are on their way at once, an advert comes too late, and the stream goes through the ring. (Where they queue
// at the sender, adverts come in time, and there is no reason to copy.) Either way it is as fast as the better of the two.
func TestShares(t *testing.T) {
	for _, rtt := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 48 * time.Millisecond} {
		l := link{rtt: rtt, rate: 1.25e9, copying: 5e9, handling: 2 * time.Microsecond}
		for _, sends := range []int{1, 2, 4, 16} {
			for _, receives := range []int{sends, 2 * sends, 4 * sends} {
				w := load{size: 256 << 10, sends: sends, receives: receives, total: 1000 * 256 << 10, ring: uint64(sends) * 256 << 10}
				var rate, share [3]float64
				for p := range rate {
					w.policy = Policy(p)
					var took time.Duration
					took, share[p] = simulate(t, l, w)
					rate[p] = float64(w.total) / took.Seconds()
				}
				what := fmt.Sprintf("rtt %v, %d sends, %d receives", rtt, sends, receives)
				t.Logf("%s: %.0f MB/s, %.2f of it direct; only direct %.0f, only indirect %.0f", what, rate[Dynamic]/1e6, share[Dynamic], rate[Direct]/1e6, rate[Indirect]/1e6)
				if best := max(rate[Direct], rate[Indirect]); rate[Dynamic] < 0.95*best {
					t.Errorf("%s: %.3g bytes/s, and %.3g by the better way alone", what, rate[Dynamic], best)
				}
				if receives >= 2*sends && share[Dynamic] < 0.95 {
					t.Errorf("%s: %.2f direct", what, share[Dynamic])
				}
				inFlight := float64(sends)*float64(w.size) < rtt.Seconds()*l.rate
				if receives == sends && inFlight && share[Dynamic] > 0.30 {
					t.Errorf("%s: %.2f direct", what, share[Dynamic])
				}
			}
		}
	}
}
