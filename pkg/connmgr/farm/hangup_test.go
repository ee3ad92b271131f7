package farm

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// TestHostThatHangsUp: a job that must not run locally does not wait for a host that does nothing but hang up, whether on TLS or on what
// it takes for nonsense, but does for one that hangs up only at first, as a proxy does before its daemon is there.
func TestHostThatHangsUp(t *testing.T) {
	for name, hang := range map[string]func() (net.Conn, error){
		"on TLS": func() (net.Conn, error) {
			return nil, &identity.Error{Cause: identity.CauseClosed, Text: "it hung up on TLS", Err: io.EOF}
		},
		"on a Request": func() (net.Conn, error) {
			near, far := net.Pipe()
			go func() { // ends with the connection
				_, _ = far.Read(make([]byte, 1))
				_ = far.Close()
			}()
			return near, nil
		},
	} {
		for _, up := range []time.Duration{hangUpTime / 2, time.Hour} {
			t.Run(name+" for "+up.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { hangsUp(t, hang, up) })
			})
		}
	}
}

// hangsUp runs a job for a host that hangs up until a time has passed.
func hangsUp(t *testing.T, hang func() (net.Conn, error), until time.Duration) {
	n := daemontest.NewNetwork(t)
	began := time.Now()
	cfg := n.Config()
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		if time.Since(began) < until {
			return hang()
		}
		return dial(ctx, addr)
	}
	near, err := iwarp.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, near, n.Open(), nil)
	d := daemontest.Start(t, r.far, "10.0.0.1:7632", nil)
	hosts := list(d.Addr)
	r.f.Want(hosts, nil)
	q := scheduler.Job{Hosts: hosts, Tried: make(map[string]bool), Toolchain: daemontest.Toolchain, Since: time.Now(), Strict: true}
	g, err := r.f.Pick(t.Context(), NewRequest(r.ids.Add(1), q))
	switch took := time.Since(began); {
	case err != nil:
		t.Fatal(err)
	case until < hangUpTime && g.Host == nil:
		t.Errorf("%+v after %v: want the host", g.Decision, took)
	case until > hangUpTime && (g.Decision.Reason != reason.Denied || took > 2*hangUpTime):
		t.Errorf("%+v after %v: want %s within %v", g.Decision, took, reason.Denied, 2*hangUpTime)
	}
	if g.Host != nil {
		r.f.GiveBack(g)
	}
}
