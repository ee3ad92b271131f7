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

// StartupRefusal is why a listener gave a connection up before there was a stream:
// there is no Terminate then that would tell.
type StartupRefusal uint8

// Causes, in the order in which they are looked for.
const (
	RefusedAdmit     StartupRefusal = iota // by ListenOptions.Admit
	RefusedPlaces                          // MaxPending start-ups are under way
	RefusedHost                            // MaxPendingPerHost of the same host are
	RefusedMalformed                       // no MPA, or against its rules
	RefusedLate                            // RequestTimeout, DecideTimeout, or no first FPDU in time
	RefusedGone                            // the peer has gone
	RefusedTransport                       // the transport below says so: TLS, say

	NumStartupRefusals // length of a table by StartupRefusal
)

func (r StartupRefusal) String() string {
	return [...]string{"admit", "places", "host", "malformed", "late", "gone", "transport"}[r]
}

// refusals counts them.
type refusals [NumStartupRefusals]atomic.Uint64

func (r *refusals) add(why StartupRefusal) { r[why].Add(1) }

func (r *refusals) load() (n [NumStartupRefusals]uint64) {
	for i := range r {
		n[i] = r[i].Load()
	}
	return n
}

// startupRefusal tells from an error of a start-up what it counts as.
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

// errEarly: an initiator has nothing to say between its Request and our Reply.
var errEarly = errors.New("sent data before the Reply")
