package distcc

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/distcc/proto"
)

// Results of requests, as the metric names them.
const (
	ran       = "ran"       // the compiler ran, and its answer was sent
	refused   = "refused"   // the command, the compiler or the moment is not right
	malformed = "malformed" // it is not distcc's protocol, or too long
	failed    = "failed"    // a limit of the compile, or a fault here
	gone      = "gone"      // the client did not wait
	denied    = "denied"    // the address is in no network that is allowed
	busy      = "busy"      // too many connections, or no memory
)

// Metrics counts requests. A nil *Metrics counts nothing.
type Metrics struct{ requests *prometheus.CounterVec }

// NewMetrics registers metrics in which every series exists from the start.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rdistccd_distcc_requests_total", Help: "Requests of distcc's clients, by result.",
	}, []string{"result"})}
	for _, result := range []string{ran, refused, malformed, failed, gone, denied, busy} {
		m.requests.WithLabelValues(result)
	}
	if err := r.Register(m.requests); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *Metrics) count(result string) {
	if m != nil {
		m.requests.WithLabelValues(result).Inc()
	}
}

// resultOf returns the result of a request that ended with err.
func resultOf(err error) string {
	var no *job.Refusal
	switch {
	case err == nil:
		return ran
	case errors.Is(err, errGone):
		return gone
	case errors.Is(err, proto.ErrMalformed), errors.Is(err, proto.ErrTooMuch):
		return malformed
	case errors.Is(err, errMemory):
		return busy
	case errors.As(err, &no):
		switch no.Cause {
		case job.CauseTimeout, job.CauseLimit, job.CauseTooBig, job.CauseInternal, job.CauseDisk, job.CauseUndeclared:
			return failed
		}
		return refused
	}
	return failed
}
