package simfarm

import (
	"container/heap"
	"time"
)

// engine is simulated time: it runs events in order of time, and those of the same moment in the order in
// which they were requested.
type engine struct {
	now    time.Duration // since the start
	events events
	seq    uint64
}

// event is something that will happen; cancel prevents it.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (e *event) cancel() {
	if e != nil {
		e.do = nil
	}
}

func (e *engine) at(t time.Duration, do func()) *event {
	ev := &event{at: max(t, e.now), seq: e.seq, do: do}
	e.seq++
	heap.Push(&e.events, ev)
	return ev
}

func (e *engine) after(d time.Duration, do func()) *event { return e.at(e.now+d, do) }

// run continues until done returns true, nothing is left, or the limit is reached.
func (e *engine) run(limit time.Duration, done func() bool) {
	for len(e.events) > 0 && !done() {
		ev := heap.Pop(&e.events).(*event)
		if ev.at > limit {
			e.now = limit
			return
		}
		e.now = ev.at
		if do := ev.do; do != nil {
			ev.do = nil
			do()
		}
	}
}

type events []*event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *events) Pop() any {
	old := *q
	ev := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return ev
}
