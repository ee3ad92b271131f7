package simfarm

import (
	"math"
	"time"
)

// machine is the cores of a host or of a client, shared evenly by all processes on them: the tasks here and
// the foreign ones.
type machine struct {
	e       *engine
	cores   float64
	speed   float64 // work per second of a process on a core of its own
	foreign int     // computing processes of others
	tasks   []*task // in order of their start
	last    time.Duration
	next    *event
	busy    float64 // core seconds used by tasks
}

// task is a process with a given amount of work.
type task struct {
	left float64 // seconds on a core of speed 1
	done func()
}

// rate returns the work per second that each process gets.
func (m *machine) rate() float64 {
	n := float64(len(m.tasks) + m.foreign)
	return m.speed * min(1, m.cores/max(n, 1))
}

// settle brings all tasks up to the present.
func (m *machine) settle() {
	d := (m.e.now - m.last).Seconds()
	m.last = m.e.now
	if d == 0 || len(m.tasks) == 0 {
		return
	}
	r := m.rate()
	for _, t := range m.tasks {
		t.left -= d * r
	}
	if m.speed > 0 {
		m.busy += d * r / m.speed * float64(len(m.tasks))
	}
}

// plan schedules a wake-up for the end of the next task.
func (m *machine) plan() {
	m.next.cancel()
	m.next = nil
	if len(m.tasks) == 0 {
		return
	}
	least := math.Inf(1)
	for _, t := range m.tasks {
		least = min(least, t.left)
	}
	r := m.rate()
	if r <= 0 {
		return // stopped: a change of its speed plans again
	}
	// Rounded up: otherwise a task with less than a nanosecond left would plan for ever.
	d := time.Duration(math.Ceil(max(least, 0) / r * 1e9))
	m.next = m.e.after(d, m.wake)
}

func (m *machine) wake() {
	m.settle()
	var ended []*task
	rest := m.tasks[:0]
	for _, t := range m.tasks {
		if t.left <= 1e-9 {
			ended = append(ended, t)
		} else {
			rest = append(rest, t)
		}
	}
	clear(m.tasks[len(rest):])
	m.tasks = rest
	m.plan()
	for _, t := range ended {
		t.done()
	}
}

func (m *machine) start(work time.Duration, done func()) *task {
	m.settle()
	t := &task{left: max(work.Seconds(), 1e-6), done: done}
	m.tasks = append(m.tasks, t)
	m.plan()
	return t
}

// stop removes a task that is not done.
func (m *machine) stop(t *task) {
	m.settle()
	for i, o := range m.tasks {
		if o == t {
			m.tasks = append(m.tasks[:i:i], m.tasks[i+1:]...)
			break
		}
	}
	m.plan()
}

// change sets the machine's speed and foreign load from now on.
func (m *machine) change(speed float64, foreign int) {
	m.settle()
	m.speed, m.foreign = speed, foreign
	m.plan()
}

// pipe carries bytes one way, one message after the other.
type pipe struct {
	rate float64 // bytes/s
	free time.Duration
}

// send returns when the last byte is out.
func (p *pipe) send(now time.Duration, bytes uint64) time.Duration {
	p.free = max(p.free, now) + p.takes(bytes)
	return p.free
}

func (p *pipe) takes(bytes uint64) time.Duration {
	if p.rate <= 0 {
		return 0
	}
	return time.Duration(float64(bytes) / p.rate * 1e9)
}
