package connmgr

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

func testKey(t testing.TB, text string) *psk.Key {
	t.Helper()
	k, err := psk.Parse([]byte(strings.Repeat(text, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKeyOnBothSides: the proof is sent first, and jobs then run as usual. A changed key is used for the next
// connection.
func TestKeyOnBothSides(t *testing.T) {
	k := testKey(t, "k")
	r := newRig(t, func(o *Options) { o.Key = func() *psk.Key { return k } })
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Key = testKey(t, "k") })
	r.warm(d.Addr)
	r.remote(d.Addr, "int x;")
	r.idle()
}

// TestHostWithoutOurKey: a host that does not prove that it has the key is sent nothing, and the jobs run
// here.
func TestHostWithoutOurKey(t *testing.T) {
	tail := func(n int, with func([]byte)) func([]byte) []byte {
		return func(b []byte) []byte {
			if with == nil {
				return b[:len(b)-n]
			}
			b = bytes.Clone(b)
			with(b[len(b)-n:])
			return b
		}
	}
	g := job.Greeting{Version: job.Version}
	for name, q := range map[string]struct {
		change func(d *daemontest.Daemon)
		want   string
	}{
		"another key":            {func(d *daemontest.Daemon) { d.Key = testKey(t, "j") }, "wrong pre-shared key"},
		"takes any, proves none": {func(*daemontest.Daemon) {}, "no proof of a pre-shared key"},
		"proof taken away":       {func(d *daemontest.Daemon) { d.Key, d.Bend = testKey(t, "k"), tail(psk.ReplyLen, nil) }, "no proof of a pre-shared key"},
		"proof bent":             {func(d *daemontest.Daemon) { d.Key, d.Bend = testKey(t, "k"), tail(1, func(b []byte) { b[0] ^= 1 }) }, "wrong pre-shared key"},
		"our own words back": {func(d *daemontest.Daemon) {
			d.Bend = func([]byte) []byte { return testKey(t, "k").Dial(g.Append(nil), true).PrivateData() }
		}, "no proof of a pre-shared key"},
		"rejects": {func(d *daemontest.Daemon) {
			d.Reject = &job.Rejection{Cause: job.CauseDenied, Detail: "this daemon has no pre-shared key"}
		}, "this daemon has no pre-shared key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				k := testKey(t, "k")
				o.Key = func() *psk.Key { return k }
			})
			d := daemontest.Start(t, r.far, "127.0.0.1:0", q.change)
			no := r.goLocal(d.Addr, "int x;")
			if !strings.Contains(no.Detail, q.want) {
				t.Errorf("answer %+v, want one with %q", no, q.want)
			}
			d.Mu.Lock()
			defer d.Mu.Unlock()
			for _, c := range d.Conns {
				c.Mu.Lock()
				if c.Heard > 0 {
					t.Errorf("the host heard %d messages", c.Heard)
				}
				c.Mu.Unlock()
			}
		})
	}
}
