package connmgr

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
)

func testKey(t testing.TB, text string) *psk.Key {
	t.Helper()
	k, err := psk.Parse([]byte(strings.Repeat(text, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKeyOnBothSides: the proof goes before all else, and jobs as ever; a key that is
// exchanged is used for the next connection.
func TestKeyOnBothSides(t *testing.T) {
	k := testKey(t, "k")
	r := newRig(t, func(o *Options) { o.Key = func() *psk.Key { return k } })
	d := startFake(t, r.far, "127.0.0.1:0", func(d *fakeDaemon) { d.key = testKey(t, "k") })
	r.warm(d.addr)
	r.remote(d.addr, "int x;")
	r.idle()
}

// TestHostWithoutOurKey: a host that does not prove that it has the key hears nothing
// from us, and the jobs run here.
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
		change func(d *fakeDaemon)
		want   string
	}{
		"another key":            {func(d *fakeDaemon) { d.key = testKey(t, "j") }, "wrong pre-shared key"},
		"takes any, proves none": {func(*fakeDaemon) {}, "no proof of a pre-shared key"},
		"proof taken away":       {func(d *fakeDaemon) { d.key, d.bend = testKey(t, "k"), tail(psk.ReplyLen, nil) }, "no proof of a pre-shared key"},
		"proof bent":             {func(d *fakeDaemon) { d.key, d.bend = testKey(t, "k"), tail(1, func(b []byte) { b[0] ^= 1 }) }, "wrong pre-shared key"},
		"our own words back": {func(d *fakeDaemon) {
			d.bend = func([]byte) []byte { return testKey(t, "k").Dial(g.Append(nil), true).PrivateData() }
		}, "no proof of a pre-shared key"},
		"rejects": {func(d *fakeDaemon) {
			d.reject = &job.Rejection{Cause: job.CauseDenied, Detail: "this daemon has no pre-shared key"}
		}, "this daemon has no pre-shared key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) {
				k := testKey(t, "k")
				o.Key = func() *psk.Key { return k }
			})
			d := startFake(t, r.far, "127.0.0.1:0", q.change)
			no := r.goLocal(d.addr, "int x;")
			if !strings.Contains(no.Detail, q.want) {
				t.Errorf("answer %+v, want one with %q", no, q.want)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, c := range d.conns {
				c.mu.Lock()
				if c.heard > 0 {
					t.Errorf("the host heard %d messages", c.heard)
				}
				c.mu.Unlock()
			}
		})
	}
}
