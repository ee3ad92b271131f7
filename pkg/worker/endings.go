package worker

import (
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// ending is why a connection ended: the label of a metric.
type ending string

const (
	endedClosed     ending = "closed"     // by either side, gracefully or not
	endedProtocol   ending = "protocol"   // the client violated the job protocol
	endedStream     ending = "stream"     // the client violated iWARP, and was sent a Terminate
	endedTerminated ending = "terminated" // the client sent a Terminate
	endedSilent     ending = "silent"     // no sign of life for Options.Silence
	endedUnread     ending = "unread"     // no answer to our RDMA Reads for Options.WindowTime
	endedPanic      ending = "panic"      // a bug of ours
	endedUnproven   ending = "unproven"   // no proof of the pre-shared key; AuthFailed was called
	endedCrowded    ending = "crowded"    // proven, but there was no place left
	endedHoarding   ending = "hoarding"   // memory was short, and its slots without a job held the most
)

var endings = []ending{endedClosed, endedProtocol, endedStream, endedTerminated, endedSilent, endedUnread, endedPanic, endedUnproven, endedCrowded, endedHoarding}

// endingOf returns why a connection has ended: why is the error of receive, given what was decided elsewhere,
// end the error of the QP.
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

// markEnded counts the end of a connection, and a violation of the peer if no honest client's connection ends
// that way.
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
