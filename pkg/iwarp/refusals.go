package iwarp

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// StartupRefusal is the reason why a listener gave up a connection before there was a stream
// whose Terminate would tell.
type StartupRefusal uint8

// Causes, in the order in which they are checked.
const (
	RefusedAdmit     StartupRefusal = iota // ListenOptions.Admit returned an error
	RefusedPlaces                          // MaxPending start-ups are under way
	RefusedHost                            // MaxPendingPerHost start-ups of the same host are under way
	RefusedMalformed                       // not MPA, or against its rules
	RefusedLate                            // RequestTimeout, DecideTimeout, or no first FPDU in time
	RefusedGone                            // the peer has gone
	RefusedTransport                       // the transport below reported an error, such as TLS

	NumStartupRefusals // length of a table indexed by StartupRefusal
)

func (r StartupRefusal) String() string {
	return [...]string{"admit", "places", "host", "malformed", "late", "gone", "transport"}[r]
}

// refusals counts start-ups by refusal.
type refusals [NumStartupRefusals]atomic.Uint64

func (r *refusals) add(why StartupRefusal) { r[why].Add(1) }

func (r *refusals) load() (n [NumStartupRefusals]uint64) {
	for i := range r {
		n[i] = r[i].Load()
	}
	return n
}

// startupRefusal classifies the error of a start-up.
func startupRefusal(err error) StartupRefusal {
	var m *mpa.Error
	switch {
	case errors.As(err, &m), errors.Is(err, errEarly):
		return RefusedMalformed
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return RefusedLate
	case errors.Is(err, errClosedEarly), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return RefusedGone
	}
	return RefusedTransport
}

// errEarly means that an initiator sent something between its Request and our Reply.
var errEarly = errors.New("sent data before the Reply")
