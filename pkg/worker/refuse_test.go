package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Refused jobs are answered like others, and the client gets a new credit.
func TestRefusals(t *testing.T) {
	ts := startServer(t, nil)
	gcc := ts.tool("gcc")
	c := dial(t, ts.addr, &job.Hello{})
	ok := compileBody("cpp-output", "a.c")
	bad := func(change func(*job.Body)) job.Body {
		b := ok
		change(&b)
		return b
	}
	for _, q := range []struct {
		name  string
		tool  unit.ToolchainID
		cause job.Cause
		why   string
		req   request
	}{
		{"another toolchain", unit.ToolchainID{1}, job.CauseToolchain, "no such compiler", request{body: ok}},
		{"a plugin", gcc, job.CausePolicy, "plugin", request{body: bad(func(b *job.Body) { b.Args = []string{"-fplugin=x"} })}},
		{"a variable", gcc, job.CausePolicy, "LD_PRELOAD", request{body: bad(func(b *job.Body) { b.Env = []string{"LD_PRELOAD=x"} })}},
		{"a path as name", gcc, job.CauseMalformed, "plain file name", request{body: bad(func(b *job.Body) { b.Name = "../x.c" })}},
		{"no body", gcc, job.CauseMalformed, "body of 0", request{body: ok, change: func(m *job.Job) { m.BodyLen, m.TextOff = 0, 0 }}},
		{"a body past the slot", gcc, job.CauseMalformed, "in a slot of", request{body: ok, change: func(m *job.Job) {
			m.BodyLen = job.MaxBodyLen
			m.TextOff = job.MaxBodyLen
			m.TextLen = 1 << 40
		}}},
		{"a text past the slot", gcc, job.CauseMalformed, "in a slot of", request{body: ok, change: func(m *job.Job) { m.TextLen = 1<<64 - 1 }}},
		{"a text elsewhere", gcc, job.CauseMalformed, "in a slot of", request{body: ok, change: func(m *job.Job) { m.TextOff += 64 }}},
		{"a body that is none", gcc, job.CauseMalformed, "malformed", request{body: ok, change: func(m *job.Job) { m.BodyLen-- }}},
	} {
		r := c.do(q.tool, q.req)
		if r.Status != job.StatusRefused || r.Cause != q.cause || !strings.Contains(r.Detail, q.why) || r.Next == nil {
			t.Errorf("%s: %+v", q.name, r.Result)
		}
	}
	if r := c.do(gcc, request{body: ok, text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("an honest job after them: %+v", r.Result)
	}
}

// A job is refused if its compiler has changed since it was listed.
func TestChangedToolchainIsRefused(t *testing.T) {
	ts := startServer(t, nil)
	id := ts.fake("gcc-13", "echo a >$out\n")
	c := dial(t, ts.addr, &job.Hello{})
	b := compileBody("cpp-output", "a.c")
	if r := c.do(id, request{body: b}); r.Status != job.StatusRan {
		t.Fatalf("%+v", r.Result)
	}
	other := ts.fake("gcc-13", "echo b >$out\n")
	if r := c.do(id, request{body: b}); r.Status != job.StatusRefused || r.Cause != job.CauseToolchain {
		t.Errorf("the old one: %+v", r.Result)
	}
	// Touched, but the same: a hard link changes a file's times.
	if err := os.Link(filepath.Join(ts.bin, "gcc-13"), filepath.Join(ts.bin, "another")); err != nil {
		t.Fatal(err)
	}
	if r := c.do(other, request{body: b}); r.Status != job.StatusRan {
		t.Errorf("after a touch: %+v", r.Result)
	}
	// At once, without a scan.
	path := filepath.Join(ts.bin, "gcc-13")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, "# replaced\n"...), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := c.do(other, request{body: b}); r.Status != job.StatusRefused || r.Cause != job.CauseToolchain {
		t.Errorf("replaced: %+v", r.Result)
	}
	before := other
	until(t, "the server to look again by itself", func() bool {
		other = ts.tool("gcc-13")
		return other != before
	})
	// The scan told the client what there is now.
	c.wait("the new list", func() bool {
		for _, have := range c.ids {
			if have == other {
				return true
			}
		}
		return false
	})
	if r := c.do(other, request{body: b}); r.Status != job.StatusRan {
		t.Errorf("the new one: %+v", r.Result)
	}
}

// What a client must not do ends its connection, and only that.
func TestBrokenProtocolEndsTheConnection(t *testing.T) {
	ts := startServer(t, nil)
	other := dial(t, ts.addr, &job.Hello{Name: "other"})
	for name, do := range map[string]func(c *testClient){
		"no message":       func(c *testClient) { c.postRaw([]byte{0xff, 1, 2}) },
		"a daemon's":       func(c *testClient) { c.send(&job.Drain{}) },
		"a second Hello":   func(c *testClient) { c.send(&job.Hello{}) },
		"a foreign credit": func(c *testClient) { c.post(&job.Return{Credit: 1 << 40}, c.credits[0].Slot.STag) },
		"a Return that leaves the slot open": func(c *testClient) {
			c.send(&job.Return{Credit: c.credits[0].ID})
		},
		"an Ack of nothing": func(c *testClient) { c.send(&job.Ack{Of: job.KindDrain, Seq: 7}) },
		"a Job without a sink": func(c *testClient) {
			k := c.credits[0]
			c.post(&job.Job{ID: 1, Credit: k.ID}, k.Slot.STag)
		},
		"a Job that leaves the slot open": func(c *testClient) {
			c.send(&job.Job{ID: 1, Credit: c.credits[0].ID, Sink: job.Window{STag: 1}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, ts.addr, &job.Hello{Name: "bad"})
			c.mu.Lock()
			do(c)
			c.mu.Unlock()
			<-c.done
		})
	}
	c := dial(t, ts.addr, nil)
	c.send(&job.Heartbeat{}) // before Hello
	<-c.done
	if r := other.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 || r.Status != job.StatusRan {
		t.Errorf("the other client: %+v", r.Result)
	}
}

func (c *testClient) postRaw(data []byte) {
	if err := c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Unsignaled | iwarp.Inline, Data: data}); err != nil {
		c.t.Error(err)
	}
}

// rejection dials, expects to be rejected and returns the Rejection.
func rejection(t *testing.T, addr string, private []byte) job.Rejection {
	t.Helper()
	return rejectionOn(t, iwarp.Config{}, addr, private)
}

func rejectionOn(t *testing.T, config iwarp.Config, addr string, private []byte) job.Rejection {
	t.Helper()
	dev, err := iwarp.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(256)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	defer qp.Destroy()
	_, err = dev.Dial(context.Background(), addr, qp, &iwarp.ConnParam{PrivateData: private})
	var r *iwarp.RejectedError
	if !errors.As(err, &r) {
		t.Fatalf("dial: %v, want a rejection", err)
	}
	j, err := job.ParseRejection(r.PrivateData)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestRejections(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Clients = 1 })
	if j := rejection(t, ts.addr, []byte("RDCC\x63\x00something else")); j.Cause != job.CauseVersion || !strings.Contains(j.Detail, fmt.Sprintf("versions %d and %d, not 99", job.Oldest, job.Version)) {
		t.Errorf("another version: %+v", j)
	}
	if j := rejection(t, ts.addr, []byte("who is there")); j.Cause != job.CauseMalformed {
		t.Errorf("another program: %+v", j)
	}
	g := job.Greeting{Version: job.Version}
	dial(t, ts.addr, &job.Hello{})
	if j := rejection(t, ts.addr, g.Append(nil)); j.Cause != job.CauseFull {
		t.Errorf("one client too many: %+v", j)
	}
}

// TestPreviousVersion: a manager that speaks the version before is answered in it, and has its jobs done.
func TestPreviousVersion(t *testing.T) {
	ts := startServer(t, small)
	for version, program := range map[uint16]string{job.Version: "1.4", job.Oldest: ""} {
		g := job.Greeting{Version: version, Boot: [16]byte{byte(version)}}
		c := dialWith(t, ts.addr, &job.Hello{Program: program}, &iwarp.ConnParam{ORD: 8, IRD: 8, PrivateData: g.Append(nil)})
		answer, err := job.ParseGreeting(c.info.PrivateData)
		if err != nil || answer.Version != version {
			t.Errorf("version %d is answered in %d: %v", version, answer.Version, err)
		}
		if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: "int x;\n"}); r.Status != job.StatusRan {
			t.Errorf("version %d: %+v", version, r.Result)
		}
		if st := ts.Status(); !slices.ContainsFunc(st.Clients, func(s ClientStatus) bool { return s.Version == program }) {
			t.Errorf("version %d: %+v", version, st.Clients)
		}
	}
}

func TestAllowedNetworks(t *testing.T) {
	var s Server
	s.settings.Store(&Settings{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}})
	for addr, want := range map[string]bool{
		"127.0.0.1:5": true, "127.9.9.9:5": true, "[::1]:5": true, "[::ffff:127.0.0.1]:5": true,
		"10.1.2.3:5": true, "[::ffff:10.1.2.3]:5": true, "[fd00::1]:5": true, "[fd00::1%eth0]:5": true,
		"10.2.0.1:5": false, "192.0.2.1:5": false, "[fe80::1]:5": false, "[::ffff:10.2.0.1]:5": false,
	} {
		if got := s.allowed(netAddr(addr)); got != want {
			t.Errorf("%s is allowed: %v, want %v", addr, got, want)
		}
	}
}

// A peer from a network that is not allowed is told so, and counted.
func TestStrangerIsDenied(t *testing.T) {
	ts := startServer(t, nil)
	r := prometheus.NewRegistry()
	if err := ts.o.Metrics.Register(r, ts.Server); err != nil {
		t.Fatal(err)
	}
	req := &stranger{}
	ts.admit(req, "")
	j, err := job.ParseRejection(req.answer)
	if err != nil || j.Cause != job.CauseDenied || !strings.Contains(j.Detail, "192.0.2.7 is in no network of --allow") {
		t.Errorf("answer %+v, %v", j, err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0.0
	for _, f := range families {
		if f.GetName() == "rdistccd_auth_failures_total" {
			counted = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted != 1 {
		t.Errorf("counted %v times", counted)
	}
	if st := ts.Status(); len(st.Clients) != 0 {
		t.Errorf("clients are %+v", st.Clients)
	}
}

// stranger is a request from an address that loopback cannot have.
type stranger struct{ answer []byte }

func (*stranger) Info() iwarp.ConnInfo { return iwarp.ConnInfo{Remote: netAddr("192.0.2.7:1234")} }
func (s *stranger) Reject(b []byte) error {
	s.answer = b
	return nil
}
func (*stranger) Accept(context.Context, iwarp.QP, *iwarp.ConnParam) error {
	return errors.New("a stranger was let in")
}

type netAddr string

func (netAddr) Network() string  { return "tcp" }
func (a netAddr) String() string { return string(a) }

// A client of another protocol on the port gets no answer that it could mistake for its own, and disturbs no
// other.
func TestPeerSpeaksHTTP(t *testing.T) {
	ts := startServer(t, nil)
	conn, err := net.Dial("tcp", ts.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(conn)
	if strings.Contains(string(b), "HTTP") {
		t.Errorf("answer %q", b)
	}
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
}
