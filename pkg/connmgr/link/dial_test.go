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
