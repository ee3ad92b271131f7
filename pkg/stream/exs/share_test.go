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
	saturating      bool // the sender begins before any advert is there, so that there is always something on its way
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
	begin := l.rtt + time.Microsecond // the first adverts are there
	if w.saturating {
		begin = 0
	}
	at(begin, func() {
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

// loads calls f for all numbers of sends, multiples of these as receives, and round-trip times.
func loads(f func(what string, l link, w load)) {
	for _, rtt := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 48 * time.Millisecond} {
		l := link{rtt: rtt, rate: 1.25e9, copying: 5e9, handling: 2 * time.Microsecond}
		for _, sends := range []int{1, 2, 4, 16} {
			for _, receives := range []int{sends, 2 * sends, 4 * sends} {
				for _, saturating := range []bool{false, true} {
					w := load{size: 256 << 10, sends: sends, receives: receives, total: 1000 * 256 << 10, ring: uint64(sends) * 256 << 10, saturating: saturating}
					f(fmt.Sprintf("rtt %v, %d sends, %d receives, saturating %v", rtt, sends, receives, saturating), l, w)
				}
			}
		}
	}
}

// TestShares: whatever the two applications do, the stream is as fast as the better of its two ways alone. What goes direct depends
// on who is first, and on what there is to spare:
//
//   - With receives to spare that were there first, all of the stream is direct.
//   - Under a sender that saturates the connection from the start, with as many receives as sends, it goes through the ring: an
//     advert is sent when the ring is empty, and finds that more is on its way.
//   - The same happens without a head start where no send waits at the sender, as all of them are on their way at once. Where they do
//     wait, adverts come in time, and there is no reason to copy.
//
// A sender that was first keeps to the ring even if receives are posted to spare later on, as long as it never pauses. The papers'
// receivers post theirs first, and are direct. Nothing is lost by it here but the receiver's processor time for the copies.
func TestShares(t *testing.T) {
	loads(func(what string, l link, w load) {
		var rate, share [3]float64
		for p := range rate {
			w.policy = Policy(p)
			var took time.Duration
			took, share[p] = simulate(t, l, w)
			rate[p] = float64(w.total) / took.Seconds()
		}
		direct := share[Dynamic]
		t.Logf("%s: %.0f MB/s, %.2f of it direct; only direct %.0f, only indirect %.0f", what, rate[Dynamic]/1e6, direct, rate[Direct]/1e6, rate[Indirect]/1e6)
		if best := max(rate[Direct], rate[Indirect]); rate[Dynamic] < 0.95*best {
			t.Errorf("%s: %.3g bytes/s, and %.3g by the better way alone", what, rate[Dynamic], best)
		}
		if w.receives >= 2*w.sends && !w.saturating && direct < 0.95 {
			t.Errorf("%s: %.2f direct", what, direct)
		}
		inFlight := float64(w.sends)*float64(w.size) < l.rtt.Seconds()*l.rate
		if w.receives == w.sends && (w.saturating || inFlight) && direct > 0.30 {
			t.Errorf("%s: %.2f direct", what, direct)
		}
	})
}
