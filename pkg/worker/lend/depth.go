package lend

import "time"

// depth is how many jobs are to be on their way to the cores.
type depth struct {
	spare    int  // credits beside one for each core
	lowQueue int  // the fewest jobs that waited since the last tick
	worked   bool // a job was begun since then
}

// maxDepth bounds depth.spare: so many jobs are on their way to the cores of a host
// at most. That is enough for compiles of a sixth of a round trip; shorter ones are
// not worth it.
func maxDepth(cores int) int { return max(16, 4*cores) }

// minDepth is as many jobs as there are cores: enough over one round trip for
// compiles as long as that.
func minDepth(cores int) int { return max(2, cores) }

// slackTime is how long a manager may take to use a credit, beside the round trip.
const slackTime = 20 * time.Millisecond

// Starved is to be called for a core that finds nothing to do, and reports whether a Round is
// due. If some client has work that it has no credit for, too few jobs are on their way:
// there shall be more (which grows to what the round trips take); settle takes them back. A
// client that has held a credit for longer than its way takes is behind with other things: it
// would only hold more. rtt returns the round-trip time of a connection; it is asked for where one
// has held a credit for some time.
func (l *Ledger) Starved(now time.Time, rtt func(*Conn) time.Duration) bool {
	if l.closed != nil || l.depth.spare >= maxDepth(l.o.Cores) {
		return false
	}
	for _, cl := range l.clients {
		if cl.demand > cl.held() && !cl.slack(now, rtt) {
			l.depth.spare++
			return true
		}
	}
	return false
}

// settle is called once a tick: where jobs always wait, one less would do, and where none
// comes most are of no use.
func (d *depth) settle(running, queued, least int) {
	more := d.spare - least
	switch {
	case more <= 0:
	case !d.worked && running == 0:
		d.spare -= (more + 1) / 2
	case d.lowQueue > 1:
		d.spare--
	}
	d.lowQueue, d.worked = queued, false
}
