package worker

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream"
)

// echo is an Options.Stream that sends back what comes.
func echo(c net.Conn, _ StreamPeer) {
	go func() {
		_, _ = io.Copy(c, c)
		_ = c.Close()
	}()
}

// open dials a stream; a nil key is none.
func open(t *testing.T, ts *testServer, k *psk.Key) (*stream.Conn, error) {
	t.Helper()
	dev := iwarptest.Open(t, iwarp.Config{})
	c, err := streams.Dial(iwarptest.Context(t), dev, ts.addr, streams.Options{Service: streams.HTTP, Key: k})
	if err == nil {
		t.Cleanup(func() {
			_ = c.Close() // some tests have done that
			<-c.Done()
		})
	}
	return c, err
}

// says reports whether what is written comes back.
func says(t *testing.T, c *stream.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Errorf("%q, %v", b, err)
	}
}

// TestStream: a stream and jobs go on beside each other, and Close of the server ends it.
func TestStream(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Stream = echo })
	c, err := open(t, ts, nil)
	if err != nil {
		t.Fatal(err)
	}
	says(t, c, "before")
	jobs := dial(t, ts.addr, &job.Hello{Name: "beside"})
	if r := jobs.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRan {
		t.Errorf("%+v", r.Result)
	}
	says(t, c, "after")
	if n := ts.Status().Streams; n != 1 {
		t.Errorf("%d streams", n)
	}
	ts.finish()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the stream outlives its server")
	}
}

// TestStreamsOfAKey: with a key, a stream is for those who prove that they have it, and others are counted.
func TestStreamsOfAKey(t *testing.T) {
	k := testKey(t, "k")
	ts := keyServer(t, k, func(o *Options) { o.Stream = echo })
	c, err := open(t, ts, k)
	if err != nil {
		t.Fatal(err)
	}
	says(t, c, "proven")
	for _, other := range []*psk.Key{nil, testKey(t, "x")} {
		var no *streams.Rejected
		if _, err := open(t, ts, other); !errors.As(err, &no) || no.Cause != job.CauseDenied || !strings.Contains(no.Detail, "key") {
			t.Errorf("with another key: %v", err)
		}
	}
	if got := authFailures(t, ts); got != "psk-missing=1 psk-wrong=1" {
		t.Errorf("counted: %s", got)
	}

	// One that has seen a client's Request, and repeats it, has no proof.
	d := k.Dial([]byte("RDCS\x01\x00\x01"), true)
	dev := iwarptest.Open(t, iwarp.Config{})
	e, err := stream.NewEndpoint(dev, stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := dev.Dial(iwarptest.Context(t), ts.addr, e.QP(), &iwarp.ConnParam{PrivateData: d.PrivateData()})
	if err != nil {
		t.Fatal(err)
	}
	e.Introduce(make([]byte, psk.ProofLen))
	if _, err := e.Start(iwarptest.Context(t), info.Local, info.Remote); err == nil {
		t.Error("a wrong proof is taken")
	}
	until(t, "the wrong proof is counted", func() bool { return authFailures(t, ts) == "psk-missing=1 psk-wrong=2" })
	says(t, c, "still there")
}

// TestStreamsAreBounded: one tenant has so many streams and no more, and another one when one of them has ended.
func TestStreamsAreBounded(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Stream = echo })
	var all []*stream.Conn
	for range maxTenantStreams {
		c, err := open(t, ts, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	var no *streams.Rejected
	if _, err := open(t, ts, nil); !errors.As(err, &no) || no.Cause != job.CauseFull {
		t.Errorf("one more: %v", err)
	}
	says(t, all[0], "undisturbed")
	all[1].Close()
	until(t, "a stream has ended", func() bool { return ts.Status().Streams < maxTenantStreams })
	if _, err := open(t, ts, nil); err != nil {
		t.Errorf("in its place: %v", err)
	}
}

// TestNoStreams: what is asked for wrongly, or not served, is refused with a line that says why.
func TestNoStreams(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Stream = echo })
	for greeting, want := range map[string]string{
		"RDCS":                 "makes no sense",
		"RDCS\x01\x00":         "makes no sense",
		"RDCS\x01\x00\x01junk": "makes no sense",
		"RDCS\x09\x00\x01":     "version 1 of streams, not 9",
		"RDCS\x01\x00\x07":     "no service 7",
	} {
		if j := rejection(t, ts.addr, []byte(greeting)); !strings.Contains(j.Detail, want) {
			t.Errorf("%q: %+v", greeting, j)
		}
	}
	none := startServer(t, nil)
	if j := rejection(t, none.addr, []byte("RDCS\x01\x00\x01")); j.Cause != job.CauseDenied || !strings.Contains(j.Detail, "no streams") {
		t.Errorf("%+v", j)
	}
	if _, err := open(t, none, nil); err == nil {
		t.Error("a daemon without streams opens one")
	}
}

// TestSilentStream: one who connects for a stream and says nothing is dropped, and its place is free.
func TestSilentStream(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Stream, o.ProveTime = echo, time.Millisecond })
	e := iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	e.Recv(t, 1, 64)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := e.Dev.Dial(ctx, ts.addr, e.QP, &iwarp.ConnParam{PrivateData: []byte("RDCS\x01\x00\x01")}); err != nil {
		if errors.As(err, new(*iwarp.RejectedError)) || !slices.Contains([]iwarp.QPState{iwarp.StateError, iwarp.StateTerminate}, e.QP.State()) {
			t.Fatal(err)
		}
	}
	until(t, "the silent one is dropped", func() bool { return ts.Status().Streams == 0 })
}

// TestLiarsOnStreams: a peer that breaks the rules of streams, before the stream begins or later, is kept off as one that breaks those of
// jobs is, and one that just goes is not.
func TestLiarsOnStreams(t *testing.T) {
	part.Skip(t)
	for name, c := range map[string]struct {
		begun, lies bool
	}{"at once": {false, true}, "later": {true, true}, "goes": {true, false}} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, func(o *Options) { o.Stream = echo })
			dev := iwarptest.Open(t, iwarp.Config{})
			e, err := stream.NewEndpoint(dev, stream.Config{})
			if err != nil {
				t.Fatal(err)
			}
			info, err := dev.Dial(iwarptest.Context(t), ts.addr, e.QP(), &iwarp.ConnParam{PrivateData: []byte("RDCS\x01\x00\x01")})
			if err != nil {
				t.Fatal(err)
			}
			var s *stream.Conn
			if c.begun {
				if s, err = e.Start(iwarptest.Context(t), info.Local, info.Remote); err != nil {
					t.Fatal(err)
				}
			}
			if c.lies {
				junk := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: []byte("junk")}
				if err := e.QP().PostSend(junk); err != nil {
					t.Fatal(err)
				}
				<-e.QP().Done()
			}
			if c.begun {
				s.Close()
				<-s.Done()
			} else if err := e.Close(); err != nil {
				t.Error(err)
			}
			until(t, "the stream is over", func() bool { return ts.Status().Streams == 0 })
			ts.mu.Lock()
			defer ts.mu.Unlock()
			if got := len(ts.offenders) == 1; got != c.lies {
				t.Errorf("offenders: %v", ts.offenders)
			}
		})
	}
}
