package iwarp_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestRefusedStartupsAreCounted: each connection that a listener gives up before
// there is a stream counts once, by why.
func TestRefusedStartupsAreCounted(t *testing.T) {
	say := func(b []byte) func(t *testing.T, c net.Conn) {
		return func(t *testing.T, c net.Conn) { put(t, c, b) }
	}
	silent := func(*testing.T, net.Conn) {}
	req := frame(t, request)
	for _, x := range []struct {
		name   string
		o      iwarp.ListenOptions
		do     func(t *testing.T, c net.Conn)
		accept bool
		want   iwarp.StartupRefusal
	}{
		{"not admitted", iwarp.ListenOptions{Admit: func(net.Addr) error { return errors.New("no") }}, silent, false, iwarp.RefusedAdmit},
		{"noise", iwarp.ListenOptions{}, say([]byte("GET / HTTP/1.1\r\n\r\n")), false, iwarp.RefusedMalformed},
		{"revision 3", iwarp.ListenOptions{}, say(append(append([]byte{}, req[:17]...), 3, 0, 0)), false, iwarp.RefusedMalformed},
		{"more behind the Request", iwarp.ListenOptions{}, say(append(append([]byte{}, req...), 0)), false, iwarp.RefusedMalformed},
		{"data before the Reply", iwarp.ListenOptions{}, func(t *testing.T, c net.Conn) {
			put(t, c, req)
			synctest.Wait()
			put(t, c, []byte{1})
		}, false, iwarp.RefusedMalformed},
		{"silence", iwarp.ListenOptions{}, silent, false, iwarp.RefusedLate},
		{"nobody decides", iwarp.ListenOptions{DecideTimeout: time.Second}, say(req), false, iwarp.RefusedLate},
		{"no first FPDU", iwarp.ListenOptions{}, say(req), true, iwarp.RefusedLate},
		{"a peer that leaves", iwarp.ListenOptions{}, func(_ *testing.T, c net.Conn) { _ = c.Close() }, false, iwarp.RefusedGone},
		{"one that leaves after its Request", iwarp.ListenOptions{}, func(t *testing.T, c net.Conn) { put(t, c, req); synctest.Wait(); _ = c.Close() }, false, iwarp.RefusedGone},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *iwarptest.Network) {
				e, l := listen(t, n, &x.o)
				c := rawDial(t, n, l)
				x.do(t, c)
				if x.accept {
					r, err := l.Accept(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if err := r.Accept(t.Context(), e.QP, nil); err == nil {
						t.Error("a peer that never opens its stream was accepted")
					}
				}
				_, _ = io.Copy(io.Discard, c) // until it is closed
				synctest.Wait()
				wantRefused(t, e.Dev, x.want, 1)
			})
		})
	}
	t.Run("limits", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *iwarptest.Network) {
			e, l := listen(t, n, &iwarp.ListenOptions{MaxPending: 3, MaxPendingPerHost: 2})
			flood(t, n, l, 5, nil)
			wantRefused(t, e.Dev, iwarp.RefusedHost, 3)
		})
		bubble(t, func(t *testing.T, n *iwarptest.Network) {
			e, l := listen(t, n, &iwarp.ListenOptions{MaxPending: 3, MaxPendingPerHost: 5})
			flood(t, n, l, 5, nil)
			wantRefused(t, e.Dev, iwarp.RefusedPlaces, 2)
		})
	})
	t.Run("our own end", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *iwarptest.Network) {
			e, l := listen(t, n, nil)
			rawDial(t, n, l)
			put(t, rawDial(t, n, l), req)
			synctest.Wait()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			wantRefused(t, e.Dev, iwarp.RefusedLate, 0)
		})
	})
}

// wantRefused wants count start-ups refused for want, and none for another reason.
func wantRefused(t *testing.T, d iwarp.Device, want iwarp.StartupRefusal, count uint64) {
	t.Helper()
	for why, n := range d.Stats().Refused {
		if cause := iwarp.StartupRefusal(why); cause == want && n != count || cause != want && n != 0 {
			t.Errorf("%d start-ups are counted as %s; want %d as %s", n, cause, count, want)
		}
	}
}
