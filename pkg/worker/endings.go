package worker

import (
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// ending is why a connection ended: the label of a metric.
type ending string

const (
	endedClosed     ending = "closed"     // by either side, in order or not
	endedProtocol   ending = "protocol"   // the client broke the job protocol
	endedStream     ending = "stream"     // it broke the rules of iWARP: it was sent a Terminate
	endedTerminated ending = "terminated" // it sent a Terminate
	endedSilent     ending = "silent"     // no sign of life for Options.Silence
	endedUnread     ending = "unread"     // no answer to our RDMA Reads for Options.WindowTime
	endedPanic      ending = "panic"      // a bug of ours
	endedUnproven   ending = "unproven"   // no proof of the pre-shared key: AuthFailed was told
	endedCrowded    ending = "crowded"    // proven, but there was no place any more
	endedHoarding   ending = "hoarding"   // memory was short, and most of what lay in slots without a job was its client's
)

var endings = []ending{endedClosed, endedProtocol, endedStream, endedTerminated, endedSilent, endedUnread, endedPanic, endedUnproven, endedCrowded, endedHoarding}

// endingOf tells why the QP of a connection that has ended did: why is receive's
// reason, given what was decided elsewhere, end the QP's own word.
func endingOf(why error, given ending, end error) ending {
	var t *iwarp.TerminateError
	switch {
	case errors.Is(why, errPanic):
		return endedPanic
	case errors.Is(why, errUnproven):
		return endedUnproven
	case errors.Is(why, errCrowded):
		return endedCrowded
	case why != nil:
		return endedProtocol
	case given != "":
		return given
	case errors.As(end, &t) && t.FromPeer:
		return endedTerminated
	case errors.As(end, &t):
		return endedStream
	}
	return endedClosed
}

// markEnded counts the end of a connection, and holds it against the peer if no honest
// client's ends so.
func (c *conn) markEnded(why error, given ending) {
	end := c.qp.Err()
	e := endingOf(why, given, end)
	c.s.o.Metrics.connectionEnded(e)
	if violation(e, end) {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.s.offenders.Broke(c.peer, time.Now())
	}
}

func (m *Metrics) connectionEnded(e ending) {
	if m != nil {
		m.endings.WithLabelValues(string(e)).Inc()
	}
}

// cancelled counts jobs that a Cancel named, by where they were.
func (m *Metrics) cancelled(queued, running, unknown int) {
	if m != nil {
		m.cancels.WithLabelValues("queued").Add(float64(queued))
		m.cancels.WithLabelValues("running").Add(float64(running))
		m.cancels.WithLabelValues("unknown").Add(float64(unknown))
	}
}
