package lend

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// The checker explores every order in which managers, hosts and the messages between them can act, for a few jobs. Who gets a credit, who is
// asked for one and which job runs is decided by the Ledger that ships; what managers and hosts do with that follows
// docs/protocol.md. A state cannot be copied, so each one is made anew from the steps that lead to it.

// scene bounds what is explored.
type scene struct {
	hosts, managers int
	cores           int
	jobs            int  // of each manager
	cancels, leaves int  // in all
	closes          int  // how often a host takes no more work
	demands         int  // how often a manager says that it has other use for places than before
	hedges          bool // a job may be sent to a second host, and the first answer counts
}

// mischief is a rule that is left out. The checker has to find what comes of it.
type mischief uint8

const (
	honest       mischief = iota
	returnsSpent          // a manager that is asked for credits counts those that it has just spent
	asksTwice             // a host asks again before its last question is answered
	losesSpent            // a host does not note that a job has spent its credit
	grantsGone            // a host forgets to end a connection whose manager has gone
	freesTwice            // a cancelled job gives its core back, and does so again when its compiler has ended
	keepsLoser            // the second answer to a job is taken too
	skipsAnswer           // a cancelled job that waits is dropped without an answer
)

// table is one state: hosts and managers, and what is between them.
type table struct {
	sc       *scene
	broken   mischief
	now      time.Time
	hosts    []*host
	managers []*manager
	cancels  int
	leaves   int
	closes   int
	demands  int
}

type host struct {
	*Ledger
	conns  []*seat // by manager; nil once that has gone
	closed bool
}

// seat is a connection between a manager and a host.
type seat struct {
	conn     *Conn
	credits  map[uint64]*Credit // as the host has lent them
	jobs     map[int]*task      // as the host knows them
	toRecall int                // what the next Recall asks for
	asked    int                // Recalls that are not acknowledged
	up, down []note

	held []uint64 // the manager's unspent credits
}

type task struct {
	id      int
	lent    Job
	running bool
	stopped bool // its client has cancelled it
}

// note is a message.
type note struct {
	what   string // up: job, return, ack, cancel, demand; down: grant, recall, result
	job    int
	credit uint64 // 0: none
	n      int
}

type manager struct {
	gone bool
	idle bool // it has no use for places
	jobs []wish
}

// wish is a job of a manager's.
type wish struct {
	at        []int // hosts that have it and have not answered
	sent      int   // how often it was sent
	cancelled bool
	answers   int // that were taken
	done      bool
}

func newTable(sc *scene, broken mischief) *table {
	w := &table{sc: sc, broken: broken, now: time.Unix(1e9, 0)}
	for range sc.managers {
		w.managers = append(w.managers, &manager{jobs: make([]wish, sc.jobs)})
	}
	for range sc.hosts {
		h := &host{Ledger: New(Options{Cores: sc.cores, Conns: 8, Credits: 8})}
		for m := range sc.managers {
			c := h.Connect(fmt.Sprint("tenant", m), false)
			h.Join(c, [16]byte{byte(m + 1)}, 1, 0)
			w.managers[m].idle = sc.demands > 0 && m > 0
			c.client.SetDemand(demand(w.managers[m]), 1)
			h.conns = append(h.conns, &seat{conn: c, credits: map[uint64]*Credit{}, jobs: map[int]*task{}})
		}
		w.hosts = append(w.hosts, h)
		w.rebalance(h)
	}
	return w
}

// demand returns how many places a manager says that it has use for: none, or more than there are.
func demand(m *manager) int {
	if m.idle {
		return 0
	}
	return 20
}

// rebalance is what a host does whenever something has changed (Server.rebalanceLocked).
func (w *table) rebalance(h *host) {
	r := h.Round(w.now)
	for to := r.Next(); to != nil; to = r.Next() {
		s := h.seatOf(to)
		k := r.Grant()
		s.credits[k.ID] = k
		s.down = append(s.down, note{what: "grant", credit: k.ID})
	}
	for _, s := range h.conns {
		s.toRecall = 0
	}
	for _, x := range r.Recalls() {
		h.seatOf(x.Conn).toRecall = x.Count
	}
	for _, s := range h.conns {
		s.ask(w.broken)
	}
}

// ask sends the Recall that is due, unless one is under way.
func (s *seat) ask(broken mischief) {
	if s.toRecall > 0 && (s.asked == 0 || broken == asksTwice) {
		s.down = append(s.down, note{what: "recall", n: s.toRecall})
		s.asked++
		s.toRecall = 0
	}
}

func (h *host) seatOf(c *Conn) *seat {
	i := slices.IndexFunc(h.conns, func(s *seat) bool { return s.conn == c })
	return h.conns[i]
}

// move is one thing that can happen.
type move struct {
	name  string
	inner bool // it happens by itself, in any case
	do    func(w *table) error
}

// moves returns what can happen, always in the same order.
func (w *table) moves() (all []move) {
	add := func(inner bool, do func(w *table) error, format string, args ...any) {
		all = append(all, move{fmt.Sprintf(format, args...), inner, do})
	}
	for hi, h := range w.hosts {
		for mi, s := range h.conns {
			if len(s.up) > 0 {
				add(true, func(w *table) error { return w.arrive(hi, mi) }, "host %d hears %+v of manager %d", hi, s.up[0], mi)
			}
			if len(s.down) > 0 && !w.managers[mi].gone {
				add(true, func(w *table) error { return w.hear(hi, mi) }, "manager %d hears %+v of host %d", mi, s.down[0], hi)
			}
			for _, id := range s.running() {
				add(true, func(w *table) error { return w.ends(hi, mi, id) }, "job %d of manager %d ends on host %d", id, mi, hi)
			}
		}
		if h.Running() < w.sc.cores && h.Queued() > 0 {
			add(true, func(w *table) error { return w.start(hi) }, "host %d starts a job", hi)
		}
		if !h.closed && w.closes < w.sc.closes {
			add(false, func(w *table) error {
				w.closes++
				w.hosts[hi].closed = true
				w.hosts[hi].Close(job.Refuse(job.CauseDraining, "going down"))
				w.rebalance(w.hosts[hi])
				return nil
			}, "host %d takes no more work", hi)
		}
	}
	for mi, m := range w.managers {
		if m.gone {
			continue
		}
		for id := range m.jobs {
			j := &m.jobs[id]
			for hi, h := range w.hosts {
				may := j.sent == 0 || w.sc.hedges && j.sent == 1 && len(j.at) == 1 && j.at[0] != hi
				if len(h.conns[mi].held) > 0 && may && !j.done && !j.cancelled && (id == 0 || m.jobs[id-1].sent > 0) {
					add(false, func(w *table) error { return w.submit(hi, mi, id) }, "manager %d sends job %d to host %d", mi, id, hi)
				}
			}
			if len(j.at) > 0 && !j.cancelled && w.cancels < w.sc.cancels {
				add(false, func(w *table) error { w.cancels++; return w.cancel(mi, id) }, "manager %d cancels job %d", mi, id)
			}
		}
		if w.demands < w.sc.demands {
			add(false, func(w *table) error {
				w.demands++
				m := w.managers[mi]
				m.idle = !m.idle
				for _, h := range w.hosts {
					h.conns[mi].up = append(h.conns[mi].up, note{what: "demand", n: demand(m)})
				}
				return nil
			}, "manager %d wants other places", mi)
		}
		if w.leaves < w.sc.leaves {
			add(false, func(w *table) error { w.leaves++; return w.leave(mi) }, "manager %d is gone", mi)
		}
	}
	return all
}

// running returns the jobs of the connection that have a core.
func (s *seat) running() (ids []int) {
	for id, t := range s.jobs {
		if t.running {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// submit spends a credit on a job.
func (w *table) submit(hi, mi, id int) error {
	s, j := w.hosts[hi].conns[mi], &w.managers[mi].jobs[id]
	last := len(s.held) - 1
	k := s.held[last]
	if w.broken != returnsSpent {
		s.held = s.held[:last]
	}
	s.up = append(s.up, note{what: "job", job: id, credit: k})
	j.sent++
	j.at = append(j.at, hi)
	return nil
}

// cancel asks every host that has the job to end it.
func (w *table) cancel(mi, id int) error {
	j := &w.managers[mi].jobs[id]
	j.cancelled = true
	for _, hi := range j.at {
		s := w.hosts[hi].conns[mi]
		s.up = append(s.up, note{what: "cancel", job: id})
	}
	return nil
}

// arrive gives a host the oldest message of a manager.
func (w *table) arrive(hi, mi int) error {
	h := w.hosts[hi]
	s := h.conns[mi]
	m := s.up[0]
	s.up = s.up[1:]
	switch m.what {
	case "job":
		k := s.credits[m.credit]
		if k == nil {
			return fmt.Errorf("job %d spends credit %d, which is not its manager's", m.job, m.credit)
		}
		if w.broken != losesSpent {
			s.conn.Spent(k)
		}
		delete(s.credits, m.credit)
		t := &task{id: m.job}
		s.jobs[m.job] = t
		s.conn.Came(w.now)
		if h.closed {
			w.answer(h, s, t)
			return nil
		}
		t.lent = Job{Owner: t, Arrived: w.now}
		h.Enqueue(s.conn, &t.lent)
	case "return":
		k := s.credits[m.credit]
		if k == nil {
			return fmt.Errorf("credit %d is returned, which is not its manager's", m.credit)
		}
		s.conn.Spent(k)
		delete(s.credits, m.credit)
		w.rebalance(h)
	case "demand":
		s.conn.client.SetDemand(m.n, 1)
		w.rebalance(h)
	case "ack":
		s.asked--
		s.ask(w.broken)
	case "cancel":
		t := s.jobs[m.job]
		switch {
		case t == nil: // it has been answered meanwhile
		case t.running:
			t.stopped = true // the core ends it
			if w.broken == freesTwice {
				h.Ended(&t.lent, true, w.now)
			}
		case h.Dequeue(&t.lent) && w.broken != skipsAnswer:
			w.answer(h, s, t)
		}
	}
	return nil
}

// start gives a core to the job that the ledger chooses.
func (w *table) start(hi int) error {
	h := w.hosts[hi]
	turn := h.Next(w.now)
	for turn.Act == Look {
		h.Looked(0, w.now) // it is not known
		turn = h.Next(w.now)
	}
	if turn.Act != Start || turn.No != nil {
		return fmt.Errorf("%d jobs wait, a core is free, and it gets %+v", h.Queued(), turn)
	}
	turn.Job.Owner.(*task).running = true
	return nil
}

// ends takes a job from its core.
func (w *table) ends(hi, mi, id int) (err error) {
	h := w.hosts[hi]
	t := h.conns[mi].jobs[id]
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a job leaves a core that it does not have: %v", r)
		}
	}()
	t.running = false
	h.Ended(&t.lent, t.stopped, w.now)
	w.answer(h, h.conns[mi], t)
	return nil
}

// answer sends a job's result, and the next credit with it if one is due.
func (w *table) answer(h *host, s *seat, t *task) {
	delete(s.jobs, t.id)
	s.conn.Answered()
	m := note{what: "result", job: t.id}
	if h.Due(s.conn, w.now) {
		k := h.Grant(s.conn, w.now)
		s.credits[k.ID] = k
		m.credit = k.ID
	}
	s.down = append(s.down, m)
	w.rebalance(h)
}

// hear gives a manager the oldest message of a host.
func (w *table) hear(hi, mi int) error {
	s, man := w.hosts[hi].conns[mi], w.managers[mi]
	m := s.down[0]
	s.down = s.down[1:]
	switch m.what {
	case "grant":
		s.held = append(s.held, m.credit)
	case "recall":
		for range min(m.n, len(s.held)) {
			last := len(s.held) - 1
			s.up = append(s.up, note{what: "return", credit: s.held[last]})
			s.held = s.held[:last]
		}
		s.up = append(s.up, note{what: "ack"})
	case "result":
		if m.credit != 0 {
			s.held = append(s.held, m.credit)
		}
		j := &man.jobs[m.job]
		i := slices.Index(j.at, hi)
		if i < 0 {
			return fmt.Errorf("host %d answers job %d, which it does not have", hi, m.job)
		}
		j.at = slices.Delete(slices.Clone(j.at), i, i+1)
		if j.done && w.broken != keepsLoser {
			return nil // the other host was first
		}
		if j.done = true; !j.cancelled || w.broken == keepsLoser {
			j.answers++
		}
		for _, other := range j.at { // it is not needed there any more
			o := w.hosts[other].conns[mi]
			o.up = append(o.up, note{what: "cancel", job: m.job})
		}
		if j.answers > 1 {
			return fmt.Errorf("job %d of manager %d is answered twice", m.job, mi)
		}
	}
	return nil
}

// leave ends a manager's connections.
func (w *table) leave(mi int) error {
	w.managers[mi].gone = true
	for _, h := range w.hosts {
		s := h.conns[mi]
		s.conn.End()
		for _, id := range slices.Sorted(keys(s.jobs)) {
			t := s.jobs[id]
			if t.running {
				h.Ended(&t.lent, true, w.now)
			} else {
				h.Dequeue(&t.lent)
			}
			delete(s.jobs, id)
			s.conn.Answered()
		}
		for _, k := range s.credits {
			s.conn.Spent(k)
		}
		s.credits, s.held, s.up, s.down = map[uint64]*Credit{}, nil, nil, nil
		if w.broken != grantsGone {
			h.Leave(s.conn, w.now)
		} else {
			s.conn.ended = false
		}
		w.rebalance(h)
		if len(s.credits) > 0 {
			return errors.New("a manager that has gone gets a credit")
		}
	}
	return nil
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// wrong returns what does not hold in a state.
func (w *table) wrong() error {
	for hi, h := range w.hosts {
		total, conns := 0, 0
		for mi, s := range h.conns {
			if w.managers[mi].gone {
				continue
			}
			conns++
			total += s.conn.held()
			if len(s.credits) != len(s.conn.credits) {
				return fmt.Errorf("host %d counts %d unspent credits of manager %d, and has lent %d", hi, len(s.conn.credits), mi, len(s.credits))
			}
			if err := s.owners(); err != nil {
				return fmt.Errorf("host %d, manager %d: %w", hi, mi, err)
			}
			if s.asked > 1 {
				return fmt.Errorf("host %d has asked manager %d twice at a time", hi, mi)
			}
		}
		if most := Most(w.sc.cores) + conns; total > most {
			return fmt.Errorf("host %d has lent %d credits; there are %d", hi, total, most)
		}
		if h.Running() > w.sc.cores {
			return fmt.Errorf("%d jobs run on host %d", h.Running(), hi)
		}
	}
	return nil
}

// owners reports whether every credit is in one place: with the manager, or on its way there or back.
func (s *seat) owners() error {
	at := make(map[uint64]int)
	for _, k := range s.held {
		at[k]++
	}
	for _, m := range slices.Concat(s.up, s.down) {
		if m.credit != 0 {
			at[m.credit]++
		}
	}
	for k, n := range at {
		if n > 1 || s.credits[k] == nil {
			return fmt.Errorf("credit %d is in %d places; lent: %v", k, n, s.credits[k] != nil)
		}
	}
	if len(at) != len(s.credits) {
		return fmt.Errorf("%d credits are lent, and %d are somewhere", len(s.credits), len(at))
	}
	return nil
}

// stuck returns what somebody waits for in a state in which nothing happens by itself any more.
func (w *table) stuck() error {
	for mi, m := range w.managers {
		if m.gone {
			continue
		}
		open := 0
		for hi, h := range w.hosts {
			if !h.closed {
				open++
			}
			s := h.conns[mi]
			switch {
			case h.closed && len(s.held) > 0:
				return fmt.Errorf("host %d takes no work, and manager %d keeps %d credits", hi, mi, len(s.held))
			case !h.closed && len(s.held) == 0:
				return fmt.Errorf("manager %d has no credit of host %d, and nothing is under way", mi, hi)
			case s.conn.held() > s.conn.client.share && s.conn.held() > 1 && !h.closed && w.lacks(h):
				return fmt.Errorf("manager %d keeps %d credits of host %d, more than its share, and another one lacks some", mi, len(s.held), hi)
			}
		}
		for id := range m.jobs {
			if j := &m.jobs[id]; len(j.at) > 0 {
				return fmt.Errorf("job %d of manager %d is never answered", id, mi)
			}
		}
	}
	return nil
}

// lacks reports whether a manager of the host has fewer credits than its share.
func (w *table) lacks(h *host) bool {
	return slices.ContainsFunc(h.clients, func(cl *Client) bool { return cl.held() < cl.share })
}

// key tells states apart. Credits are numbered as they are found, since it does not matter which one is where.
func (w *table) key() [16]byte {
	var b []byte
	num := func(n ...int) {
		for _, n := range n {
			b = binary.AppendVarint(b, int64(n))
		}
	}
	for _, h := range w.hosts {
		num(h.Running(), h.Queued(), h.depth.spare, btoi(h.closed))
		for _, j := range h.running {
			num(j.Owner.(*task).id)
		}
		for _, t := range h.tenants {
			num(int(t.pass*1e6), len(t.clients))
			for _, cl := range t.clients {
				num(cl.runs, len(cl.queue), int(cl.pass*1e6))
				for _, j := range cl.queue {
					num(j.Owner.(*task).id)
				}
			}
		}
		for _, s := range h.conns {
			num(len(s.held), len(s.credits), s.toRecall, s.asked, s.conn.jobs, len(s.jobs))
			for _, id := range slices.Sorted(keys(s.jobs)) {
				num(id, btoi(s.jobs[id].running), btoi(s.jobs[id].stopped))
			}
			for _, list := range [][]note{s.up, s.down} {
				num(len(list))
				for _, m := range list {
					num(int(m.what[0])<<8|int(m.what[2]), m.job, btoi(m.credit != 0), m.n)
				}
			}
		}
	}
	for _, m := range w.managers {
		num(btoi(m.gone), btoi(m.idle))
		for i := range m.jobs {
			j := &m.jobs[i]
			num(j.sent, btoi(j.cancelled), j.answers, btoi(j.done), len(j.at))
			num(j.at...)
		}
	}
	num(w.cancels, w.leaves, w.closes, w.demands)
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
