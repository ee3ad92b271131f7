package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func testKey(t testing.TB, text string) *psk.Key {
	t.Helper()
	k, err := psk.Parse([]byte(strings.Repeat(text, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// keyServer starts a server with a key.
func keyServer(t *testing.T, k *psk.Key, change func(*Options)) *testServer {
	return startServer(t, func(o *Options) {
		o.Key = func() *psk.Key { return k }
		o.Program = "rdistccd test"
		if change != nil {
			change(o)
		}
	})
}

// dialKey connects as a manager with a key, over connections that wrap may replace, up to the point where the
// proof is due.
func dialKey(t testing.TB, addr string, k *psk.Key, wrap func(net.Conn) net.Conn) (c *testClient, proof *job.Proof, err error) {
	t.Helper()
	g := job.Greeting{Version: job.Version, Boot: [16]byte{9}}
	d := k.Dial(g.Append(nil), true)
	cfg := iwarp.Config{}
	if wrap != nil {
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			var nd net.Dialer
			tc, err := nd.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return wrap(tc), nil
		}
	}
	c = dialOn(t, cfg, addr, nil, &iwarp.ConnParam{ORD: 8, IRD: 8, PrivateData: d.PrivateData()})
	_, mac, err := d.Finish(c.info.Request, c.info.Reply, c.info.PrivateData)
	return c, &job.Proof{MAC: mac}, err
}

// authFailures returns the failures counted so far, by cause, without those that are zero.
func authFailures(t *testing.T, ts *testServer) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := ts.o.Metrics.Register(r, ts.Server); err != nil {
		t.Fatal(err)
	}
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "rdistccd_auth_failures_total" && m.GetCounter().GetValue() > 0 {
				out = append(out, fmt.Sprintf("%s=%v", m.GetLabel()[0].GetValue(), m.GetCounter().GetValue()))
			}
		}
	}
	return strings.Join(out, " ")
}

// TestProof: if both sides have the key, a connection is like any other.
func TestProof(t *testing.T) {
	k := testKey(t, "k")
	ts := keyServer(t, k, nil)
	before := time.Now()
	c, proof, err := dialKey(t, ts.addr, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(ts.Status().Clients); n != 0 {
		t.Errorf("%d clients before the proof", n)
	}
	c.send(proof)
	c.send(&job.Hello{Name: "proven"})
	c.wait("a welcome and credits", func() bool { return c.welcome != nil && len(c.credits) > 0 })
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 || r.Status != job.StatusRan {
		t.Errorf("a job: %+v", r.Result)
	}
	if at := time.UnixMilli(int64(c.welcome.Clock)); at.Before(before.Truncate(time.Millisecond)) || at.After(time.Now()) || c.welcome.Program != "rdistccd test" {
		t.Errorf("the daemon says it is %v, and it is %q", at, c.welcome.Program)
	}
	if got := authFailures(t, ts); got != "" {
		t.Errorf("failures: %s", got)
	}
}

// TestNoWayAroundTheKey: a peer that has a key when the daemon has none, or has none or another one when it
// has, is told so and turned away.
func TestNoWayAroundTheKey(t *testing.T) {
	part.Skip(t)
	k := testKey(t, "k")
	g := job.Greeting{Version: job.Version}
	ask := func(k *psk.Key) []byte { return k.Dial(g.Append(nil), true).PrivateData() }
	type try struct {
		name    string
		private []byte
		want    string
	}
	turnedAway := func(t *testing.T, ts *testServer, counted string, tries ...try) {
		for _, q := range tries {
			if j := rejection(t, ts.addr, q.private); j.Cause != job.CauseDenied || !strings.Contains(j.Detail, q.want) {
				t.Errorf("%s: %+v, want %q", q.name, j, q.want)
			}
		}
		if got := authFailures(t, ts); got != counted {
			t.Errorf("counted: %s, want %s", got, counted)
		}
	}
	t.Run("daemon with a key", func(t *testing.T) {
		turnedAway(t, keyServer(t, k, nil), "psk-missing=3 psk-wrong=1",
			try{"no key", g.Append(nil), "wants a pre-shared key"},
			try{"another key", ask(testKey(t, "j")), "wrong key"},
			try{"a daemon's part", append(g.Append(nil), append([]byte("PSK\x81"), make([]byte, job.AnswerLen-4)...)...), "wants a pre-shared key"},
			try{"zeros", append(g.Append(nil), make([]byte, job.AskLen)...), "wants a pre-shared key"})
	})
	t.Run("daemon without", func(t *testing.T) {
		turnedAway(t, startServer(t, nil), "psk-unwanted=1", try{"a key", ask(k), "has no pre-shared key"})
	})
}

// TestNothingBeforeTheProof: any other first message ends the connection, and the client gets nothing for it.
func TestNothingBeforeTheProof(t *testing.T) {
	k := testKey(t, "k")
	ts := keyServer(t, k, nil)
	for name, do := range map[string]func(c *testClient, p *job.Proof){
		"Hello":       func(c *testClient, _ *job.Proof) { c.send(&job.Hello{Name: "early"}) },
		"Job":         func(c *testClient, _ *job.Proof) { c.send(&job.Job{ID: 1, Credit: 1, Sink: job.Window{STag: 1}}) },
		"Heartbeat":   func(c *testClient, _ *job.Proof) { c.send(&job.Heartbeat{Seq: 1}) },
		"Demand":      func(c *testClient, _ *job.Proof) { c.send(&job.Demand{Seq: 1, Jobs: 9}) },
		"no message":  func(c *testClient, _ *job.Proof) { c.postRaw([]byte{0xff, 1}) },
		"nothing":     func(c *testClient, _ *job.Proof) { c.postRaw(nil) },
		"wrong proof": func(c *testClient, p *job.Proof) { p.MAC[31] ^= 1; c.send(p) },
		"wrong, then right": func(c *testClient, p *job.Proof) {
			c.send(&job.Proof{})
			c.send(p)
			c.send(&job.Hello{})
		},
		"Hello, then the proof": func(c *testClient, p *job.Proof) {
			c.send(&job.Hello{})
			c.send(p)
		},
		"the daemon's own proof": func(c *testClient, p *job.Proof) {
			copy(p.MAC[:], c.info.PrivateData[len(c.info.PrivateData)-job.ProofLen:])
			c.send(p)
			c.send(&job.Hello{})
		},
		"end": func(c *testClient, _ *job.Proof) { c.qp.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			c, p, err := dialKey(t, ts.addr, k, nil)
			if err != nil {
				t.Fatal(err)
			}
			do(c, p)
			<-c.done
			if c.welcome != nil || len(c.credits) > 0 {
				t.Errorf("got %+v and %d credits", c.welcome, len(c.credits))
			}
		})
	}
	until(t, "the failures to be counted", func() bool { return authFailures(t, ts) == "psk-unproven=8 psk-wrong=3" })
	// And once proven, a proof is out of place.
	c, p, err := dialKey(t, ts.addr, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.send(p)
	c.send(&job.Hello{})
	c.wait("a welcome", func() bool { return c.welcome != nil })
	c.send(p)
	<-c.done
}

// TestSilenceBeforeTheProof: a peer that does not prove itself is dropped in time, holds nothing until then,
// and takes no client's place.
func TestSilenceBeforeTheProof(t *testing.T) {
	k := testKey(t, "k")
	ts := keyServer(t, k, func(o *Options) { o.ProveTime = time.Second / 2 })
	var silent []*testClient
	for range 3 {
		c, _, err := dialKey(t, ts.addr, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	st, dev := ts.Status(), ts.dev.Stats()
	if len(st.Clients) != 0 || int(dev.MRs) > len(silent) {
		t.Errorf("%d clients, %d regions for %d connections without a proof: want only their receives", len(st.Clients), dev.MRs, len(silent))
	}
	c, p, err := dialKey(t, ts.addr, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.send(p)
	c.send(&job.Hello{})
	c.wait("a welcome beside them", func() bool { return c.welcome != nil })
	for _, s := range silent {
		<-s.done
		if s.welcome != nil || len(s.credits) > 0 {
			t.Errorf("a silent one got %+v and %d credits", s.welcome, len(s.credits))
		}
	}
	until(t, "the failures to be counted", func() bool { return authFailures(t, ts) == "psk-unproven=3" })
	c.send(&job.Heartbeat{Seq: 1})
	c.wait("life beyond the time for a proof", func() bool { return c.acks[job.KindHeartbeat] == 1 })
}

// tap records what is written, and alters what passes: each function gets the bytes of one frame of start-up.
type tap struct {
	net.Conn
	wrote   bytes.Buffer
	request func([]byte) // of the first Write
	reply   func([]byte) // of the first Read
}

func (c *tap) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	if f := c.request; f != nil {
		c.request = nil
		f(b)
	}
	c.wrote.Write(b)
	return c.Conn.Write(b)
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if f := c.reply; f != nil && n > 0 {
		c.reply = nil
		f(b[:n])
	}
	return n, err
}

// TestAlteredStartUp: a change of the start-up messages in transit that both ends would accept is detected by
// the proofs.
func TestAlteredStartUp(t *testing.T) {
	k := testKey(t, "k")
	ts := keyServer(t, k, nil)
	set := func(at int, xor byte) func([]byte) { return func(b []byte) { b[at] ^= xor } }
	for name, w := range map[string]tap{
		"CRC asked for is not":          {request: set(16, 0x40)},
		"markers asked of the daemon":   {request: set(16, 0x80)},
		"fewer Reads for the client":    {request: set(23, 0x0c)},
		"fewer Reads for the daemon":    {request: set(21, 0x0c)},
		"another form of RTR":           {request: set(22, 0x40)},
		"boot number":                   {request: set(24+8, 1)},
		"nonce":                         {request: set(24+22+10, 1)},
		"no CRC from the daemon":        {reply: set(16, 0x40)},
		"markers asked of the client":   {reply: set(16, 0x80)},
		"fewer Reads by the Reply":      {reply: set(21, 0x0c)},
		"fewer Reads by the Reply, ORD": {reply: set(23, 0x0c)},
		"daemon's boot number":          {reply: set(24+8, 1)},
		"daemon's nonce":                {reply: set(24+22+10, 1)},
		"daemon's proof":                {reply: set(24+22+job.AnswerLen-1, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			d := k.Dial((&job.Greeting{Version: job.Version}).Append(nil), true)
			dev, err := iwarp.Open(iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				tc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				w.Conn = tc
				return &w, err
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			pd, _ := dev.AllocPD()
			cq, _ := dev.CreateCQ(64)
			qp, err := pd.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 8, MaxRecv: 8})
			if err != nil {
				t.Fatal(err)
			}
			defer qp.Destroy()
			info, err := dev.Dial(t.Context(), ts.addr, qp, &iwarp.ConnParam{ORD: 8, IRD: 8, PrivateData: d.PrivateData()})
			if err != nil {
				return // they could not live with it
			}
			if _, _, err := d.Finish(info.Request, info.Reply, info.PrivateData); err == nil {
				t.Error("the client did not notice")
			}
		})
	}
	if got := len(ts.Status().Clients); got != 0 {
		t.Errorf("%d clients", got)
	}
}

// TestReplayedConnection: the recorded bytes of a genuine client, sent again, are not accepted.
func TestReplayedConnection(t *testing.T) {
	k := testKey(t, "k")
	ts := keyServer(t, k, nil)
	w := new(tap)
	c, p, err := dialKey(t, ts.addr, k, func(tc net.Conn) net.Conn { w.Conn = tc; return w })
	if err != nil {
		t.Fatal(err)
	}
	c.send(p)
	c.send(&job.Hello{Name: "good"})
	c.wait("a welcome", func() bool { return c.welcome != nil })
	c.close2()
	recorded := w.wrote.Bytes()
	n := 20 + 4 + job.GreetingLen + job.AskLen // the Request

	tc, err := net.Dial("tcp", ts.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer tc.Close()
	if _, err := tc.Write(recorded[:n]); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 20+4+job.GreetingLen+job.AnswerLen)
	if _, err := io.ReadFull(tc, reply); err != nil {
		t.Fatal(err)
	}
	if _, err := tc.Write(recorded[n:]); err != nil {
		t.Fatal(err)
	}
	_ = tc.SetReadDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(tc) // a reset is an end too
	if len(rest) > 0 {
		t.Errorf("answered %x, %v", rest, err)
	}
	until(t, "the failure to be counted", func() bool { return authFailures(t, ts) == "psk-wrong=1" })
}

// close2 ends the connection before the test does.
func (c *testClient) close2() {
	c.qp.Abort()
	<-c.done
}
