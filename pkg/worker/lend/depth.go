package lend

import "time"

// depth tracks how many jobs should be on their way to the cores.
type depth struct {
	spare    int  // credits in addition to one per core
	lowQueue int  // the fewest jobs that have waited at a time since the last tick
	worked   bool // a job was started since the last tick
}

// maxDepth returns the upper bound of depth.spare: the most jobs on their way to the cores of a host. That is
// enough for compiles that take a sixth of a round trip; shorter ones are not worth it.
func maxDepth(cores int) int { return max(16, 4*cores) }

// minDepth returns the lower bound of depth.spare: as many jobs as there are cores. That is enough for
// compiles that take as long as a round trip.
func minDepth(cores int) int { return max(2, cores) }

// slackTime is how long a manager may take to use a credit, in addition to the round trip.
const slackTime = 20 * time.Millisecond

// Starved is to be called for a core that finds nothing to do. It reports whether a Round is due. If some
// client has work but no credit for it, too few jobs are on their way, so Starved adds a spare credit; that
// way their number grows to what the round trips require, and settle takes them back. A client that has held
// a credit for longer than the round trip explains is busy with other things and would only hold more, so it
// does not count. rtt returns the round-trip time of a connection; it is called only for one that has held a
// credit for some time.
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

// settle reduces the spare credits down to least; it is called once a tick. If some job was waiting all the
// time, one less will do. If no job came at all, half of those above least go.
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
