package link

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// The user reads "build7:7632 lost (connection refused)", without the chain of wrapped errors.
func TestDialErrorSaysTheCause(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	unknown := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "build7", Server: "10.0.0.53:53", IsNotFound: true}}
	unresolved := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "build7", Server: "10.0.0.53:53"}}
	no := job.Rejection{Cause: job.CauseDenied, Detail: "not in its allow list"}
	for want, err := range map[string]error{
		"connection refused": fmt.Errorf("iwarp: dial build7:7632: %w", refused),
		"no such host: correct its name in the host list, or in DNS or /etc/hosts": fmt.Errorf("iwarp: dial build7:7632: %w", unknown),
		"lookup build7: server misbehaving":                                        fmt.Errorf("iwarp: dial build7:7632: %w", unresolved),
		"rejected (denied): not in its allow list":                                 &iwarp.RejectedError{PrivateData: no.Append(nil)},
		"it hung up": fmt.Errorf("iwarp: dial build7:7632: %w", &identity.Error{Cause: identity.CauseClosed, Text: "it hung up", Err: syscall.ECONNRESET}),
		"it speaks TLS: set auth.tls here as it is there": fmt.Errorf("iwarp: dial build7:7632: %w", iwarp.ErrPeerTLS),
		"something else": fmt.Errorf("something else"),
	} {
		if got := dialError(err).Error(); got != want {
			t.Errorf("dialError(%v) says %q, want %q", err, got, want)
		}
	}
}

// TestDialAtDistccsPort: a host that refuses or hangs up at distccd's port is said to be at that port, and no other, nor one of which
// more is known.
func TestDialAtDistccsPort(t *testing.T) {
	const note = "; 3632 is distccd's port, that of rdistccd is 7632"
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	no := job.Rejection{Cause: job.CauseDenied, Detail: "not in its allow list"}
	hung := &identity.Error{Cause: identity.CauseClosed, Text: "it hung up", Err: syscall.ECONNRESET}
	for _, c := range []struct {
		addr string
		err  error
		want string
	}{
		{"build7:3632", refused, "connection refused" + note},
		{"[::1]:3632", syscall.ECONNRESET, "connection reset by peer" + note},
		{"build7:3632", hung, "it hung up" + note},
		{"build7:7632", refused, "connection refused"},
		{"build7:3632", &iwarp.RejectedError{PrivateData: no.Append(nil)}, "rejected (denied): not in its allow list"},
		{"build7:3632", &net.DNSError{Err: "server misbehaving", Name: "build7"}, "lookup build7: server misbehaving"},
		{"build7:3632", &identity.Error{Cause: identity.CauseUnknownCA, Text: "another CA"}, "another CA"},
		{"build7:3632", os.ErrDeadlineExceeded, "i/o timeout"},
	} {
		if got := atPort(c.addr, c.err).Error(); got != c.want {
			t.Errorf("%s, %v: %q, want %q", c.addr, c.err, got, c.want)
		}
	}
	if !HungUp(atPort("build7:3632", hung)) {
		t.Error("the note hides the cause")
	}
}
