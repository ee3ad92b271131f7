package worker

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/worker/shares"
)

// tenant is whom managers work for, as far as this host can tell by itself: the name in
// the certificate that the peer has proven to own, else its address, and all of this
// machine together. Credits, cores and memory are divided among tenants first, each as
// much as any other, and a tenant's part among its managers: what a peer says of
// itself, its boot number, weight, builds and demand, moves nothing but that part.
//
// All of it is guarded by Server.mu, but for large, which guards itself.
type tenant struct {
	name    string
	clients []*client // with a connection that has introduced itself, in order of arrival
	conns   int       // connections, introduced or not
	// unproven are those of conns whose client has yet to prove that it has the key.
	unproven int
	left     time.Time // when the last of them ended

	queued, runs int // jobs of all its clients
	// width is how many these were at most since the last tick, widthLast before that one;
	// ended is when the last one left its core.
	width, widthLast int
	ended            time.Time
	yielding         int // of runs, those that are being ended for somebody else

	// pass is the core time that it has had, in seconds; vtime is client.pass of that of
	// its clients which was served last.
	pass, vtime float64

	// What its compiles really take: averages in which the last ones count most.
	meanWall time.Duration
	meanRSS  float64 // bytes
	excess   float64 // of what a compile took over what the client said; at least 1

	// room counts large memory: sources that were fetched or unpacked, results kept. most
	// is how much there can be of it, in bytes.
	room *semaphore.Weighted
	most int64

	patience float64   // free lapses that are left to it, see lapsedLocked
	lapse    time.Time // when that was counted last

	held time.Time // until then it runs no more than its part, see yieldLocked
}

// localTenant is the tenant of all peers on this machine without a name of their own.
const localTenant = "local"

// tenantOf names the tenant of a connection. Of IPv6 it is the /64, as one host has all
// of that to choose from.
func tenantOf(info iwarp.ConnInfo) string {
	if info.Peer != "" {
		return info.Peer
	}
	ap, err := netip.ParseAddrPort(info.Remote.String())
	if err != nil {
		return info.Remote.String()
	}
	ip := ap.Addr().Unmap().WithZone("")
	switch {
	case ip.IsLoopback():
		return localTenant
	case ip.Is6():
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}

const (
	// tenantKept is how long a tenant without connections is remembered: who comes again
	// finds what it had of the cores counted.
	tenantKept = time.Minute
	// tenantsKept bounds how many of those there are.
	tenantsKept = 1024
)

// connsLocked is how many connections the tenant of that name has, without those whose
// client has proven nothing yet: anybody at its address can make such.
func (s *Server) connsLocked(name string) int {
	for _, t := range s.tenants {
		if t.name == name {
			return t.conns - t.unproven
		}
	}
	return 0
}

// tenantLocked finds or makes a tenant.
func (s *Server) tenantLocked(name string) *tenant {
	for _, t := range s.tenants {
		if t.name == name {
			return t
		}
	}
	t := &tenant{name: name, pass: s.vtime, excess: 1, patience: lapses, most: s.largePart()}
	t.room = semaphore.NewWeighted(t.most)
	s.tenants = append(s.tenants, t)
	return t
}

// forgetLocked forgets tenants that have been away for long, and of very many the first.
func (s *Server) forgetLocked(now time.Time) {
	away := 0
	for _, t := range s.tenants {
		if t.conns == 0 {
			away++
		}
	}
	s.tenants = slices.DeleteFunc(s.tenants, func(t *tenant) bool {
		if t.conns > 0 || now.Sub(t.left) < tenantKept && away <= tenantsKept {
			return false
		}
		away--
		return true
	})
}

// mostConns is how many connections one tenant can have: nobody keeps all others out.
func (s *Server) mostConns() int { return (s.o.Clients + 1) / 2 }

// largePart is how much of the large memory one tenant can have, in bytes: half of it, but
// what one job can take, which has its source packed and unpacked.
func (s *Server) largePart() int64 {
	if s.o.ClientBytes > 0 {
		return s.o.ClientBytes
	}
	biggest := max(s.o.Source, s.o.Result)
	return max(1, s.o.Large/2, min(s.o.Large, biggest+biggest/4))
}

// mostLocked is how many credits a tenant can hold: as many slots as fit limits.client-bytes,
// and one for each connection in any case.
func (t *tenant) mostLocked(o *Options) int {
	if o.ClientBytes <= 0 {
		return shares.Unlimited
	}
	return max(t.conns, int(min(o.ClientBytes/o.Slot, shares.Unlimited)))
}

// admissible says why a further job of t's may not wait here; its others that do are
// those that no core has taken yet.
func (s *Server) admissibleLocked(t *tenant) *job.Refusal {
	waiting := -t.runs
	for _, cl := range t.clients {
		for _, c := range cl.conns {
			waiting += len(c.tasks)
		}
	}
	if s.o.ClientQueued > 0 && waiting > s.o.ClientQueued {
		s.o.Metrics.limited(limitQueued)
		return refuse(job.CauseFull, "%d jobs of this client wait here already (limits.client-queued)", s.o.ClientQueued)
	}
	return nil
}

// spreadLocked divides total credits: among the tenants, as much to each as to any other
// until it has what its clients need, then each one's among its clients by their parts.
// What each client gets is added to its share; what is left is returned.
func (s *Server) spreadLocked(total int, need func(cl *client) int) (left int) {
	s.claims = s.claims[:0]
	for _, t := range s.tenants {
		sum, has := 0, 0
		for _, cl := range t.clients {
			has += cl.share
			sum = min(sum+need(cl), shares.Unlimited)
		}
		s.claims = append(s.claims, shares.Claim{Weight: 1, Need: max(0, min(sum, t.mostLocked(&s.o)-has))})
	}
	left = total
	for i, n := range shares.Divide(total, s.claims) {
		if n == 0 {
			continue
		}
		t := s.tenants[i]
		claims := make([]shares.Claim, len(t.clients))
		for i, cl := range t.clients {
			claims[i] = shares.Claim{Weight: cl.part(), Need: need(cl)}
		}
		for i, n := range shares.Divide(n, claims) {
			t.clients[i].share += n
			left -= n
		}
	}
	return left
}

const (
	// lapses are what a tenant may do in vain without a pause: jobs that are refused for
	// what they are, credits returned.
	lapses = 2000
	// lapseRate is how many more it may in a second.
	lapseRate = 1000
)

// lapsedLocked counts something that cost work here and gave nobody an object. Who has
// no patience left gets no credit until the next tick: a loop of refused jobs is then a
// small part of one core's work.
func (t *tenant) lapsedLocked(now time.Time) {
	if t.lapse.IsZero() {
		t.lapse = now
	}
	t.patience = min(lapses, t.patience+lapseRate*now.Sub(t.lapse).Seconds()) - 1
	t.lapse = now
}

// triedLocked says whether it is to wait before it gets a credit.
func (t *tenant) triedLocked(now time.Time) bool {
	return t.patience <= 0 && t.patience+lapseRate*now.Sub(t.lapse).Seconds() <= 0
}

// learnLocked takes what a compile of the tenant's took: rss in bytes, or 0 if not known.
func (t *tenant) learnLocked(took time.Duration, said, rss uint64) {
	t.meanWall += (took - t.meanWall) / 8
	if rss == 0 {
		return
	}
	by := 8.0
	if float64(rss) > t.meanRSS {
		by = 2 // what is large counts at once
	}
	t.meanRSS += (float64(rss) - t.meanRSS) / by
	if said > 0 {
		x := max(1, float64(rss)/float64(said))
		if by = 8.0; x > t.excess {
			by = 2
		}
		t.excess += (x - t.excess) / by
	}
}

// memoryLocked is what a job is expected to take, in bytes. The client's word counts as
// far as earlier jobs of its tenant have borne it out; without a word it is what they
// took, or anybody's where it has had none. 0: nothing is known.
func (s *Server) memoryLocked(t *task) uint64 {
	tn, said := t.c.client.tenant, float64(t.m.Memory)
	usual := tn.meanRSS
	if usual == 0 {
		usual = s.meanRSS
	}
	if said == 0 {
		return uint64(usual)
	}
	return uint64(max(said, min(said*tn.excess, 2*usual, math.MaxInt64)))
}

// A build has pauses shorter than any of its compiles: from the end of one to the next job
// the client writes the object and make starts another command. A core that somebody else
// gets in such a pause is gone for as long as that one's job takes, which may be far longer
// than the build's own. So a tenant's part is kept for it over a pause, as far as it has
// used it lately.
const (
	// pauseLeast and pauseMost bound how long: what its jobs take, so that no more than half
	// of its own part is idle.
	pauseLeast, pauseMost = 20 * time.Millisecond, 200 * time.Millisecond
	// heldPause is how long against a tenant that had to yield.
	heldPause = 2 * time.Second
)

func (t *tenant) pause() time.Duration { return min(max(t.meanWall, pauseLeast), pauseMost) }

// pauses says whether it is about to have the next job, as it looks.
func (t *tenant) pauses(now time.Time, least time.Duration) bool {
	return now.Sub(t.ended) < max(least, t.pause())
}

// kept is how many cores beside those that it has are kept for it.
func (t *tenant) kept(fair int, now time.Time) int {
	if !t.pauses(now, 0) {
		return 0
	}
	return max(0, min(fair, max(t.width, t.widthLast))-t.runs)
}

// widthsLocked is called once a tick: what counts of widths is the last one or two.
func (s *Server) widthsLocked() {
	for _, t := range s.tenants {
		t.widthLast, t.width = t.width, t.queued+t.runs
	}
}

// parts are how the cores are divided now.
type parts struct {
	fair int // cores that each tenant has for itself while all those that build want more
	held int // the same for one that had to yield
	kept int // cores that are kept for tenants that pause
}

func (s *Server) partsLocked(now time.Time) (p parts) {
	build, pause := 0, 0
	for _, t := range s.tenants {
		switch {
		case t.queued+t.runs > 0 || t.pauses(now, 0):
			build++
		case t.pauses(now, heldPause):
			pause++
		}
	}
	p.fair = max(1, s.o.Jobs/max(1, build))
	p.held = max(1, s.o.Jobs/max(1, build+pause))
	for _, t := range s.tenants {
		p.kept += t.kept(p.fair, now)
	}
	return p
}

// mayRunLocked says whether a further job of the tenant's may start.
func (s *Server) mayRunLocked(t *tenant, p parts, now time.Time) bool {
	switch {
	case s.o.ClientRunning > 0 && t.runs >= s.o.ClientRunning:
		return false
	case now.Before(t.held):
		return t.runs < p.held
	}
	return t.runs < p.fair || s.o.Jobs-s.running > p.kept-t.kept(p.fair, now)
}

// awaitPauseLocked has the cores look again when the first pause ends for which some stand
// idle.
func (s *Server) awaitPauseLocked(now time.Time) {
	if s.awaiting || s.running >= s.o.Jobs {
		return
	}
	first := pauseMost + 1
	for _, t := range s.tenants {
		if left := t.pause() - now.Sub(t.ended); left > 0 {
			first = min(first, left)
		}
	}
	if first > pauseMost {
		return
	}
	s.awaiting = true
	time.AfterFunc(first+time.Millisecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.awaiting = false
		s.wake.Broadcast()
	})
}
