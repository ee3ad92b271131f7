package iwarp_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// busyConn is a connection whose reader only runs when permitted, and whose writes fail once the peer has gone.
type busyConn struct {
	net.Conn
	held atomic.Bool // reads wait for run
	run  chan struct{}
	gone chan struct{}
}

func (c *busyConn) Read(p []byte) (int, error) {
	if c.held.Load() {
		<-c.run
	}
	return c.Conn.Read(p)
}

func (c *busyConn) Write(p []byte) (int, error) {
	select {
	case <-c.gone:
		return 0, syscall.EPIPE
	default:
		return c.Conn.Write(p)
	}
}

// TestTerminateBehindFailedWrite: the peer's Terminate has arrived, a write fails as the peer has gone, and the
// receiving side gets to run long after: what the QP ends with is the Terminate.
func TestTerminateBehindFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := iwarptest.NewNetwork()
		c := &busyConn{run: make(chan struct{}), gone: make(chan struct{})}
		cfg := n.Config()
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, addr string) (_ net.Conn, err error) {
			c.Conn, err = dial(ctx, addr)
			return c, err
		}
		a := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
		b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
		iwarptest.Connect(t, a, b, "127.0.0.1:0", nil, nil)
		c.held.Store(true)
		b.Post(t, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline}) // a's reader comes out of its read
		synctest.Wait()
		wrong := iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: make([]byte, 8), STag: 0x5500}
		a.Post(t, &wrong)
		synctest.Wait()
		close(c.gone)
		a.Post(t, &wrong)
		time.Sleep(time.Second)
		close(c.run)
		var te *iwarp.TerminateError
		if err := a.WaitDone(t); !errors.As(err, &te) || !te.FromPeer || te.Layer != 1 || te.Type != 1 || te.Code != 0 {
			t.Errorf("got %v, want the peer's Terminate 1/1/00", err)
		}
	})
}
