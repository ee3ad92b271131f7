package end

import (
	"errors"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestExchange: messages, Writes and Reads between two ends, for each policy of waiting.
func TestExchange(t *testing.T) {
	for _, name := range []string{"loan", "event", "hybrid:20us", "poll"} {
		t.Run(name, func(t *testing.T) {
			w, err := iwarp.ParseWaiting(name)
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, w)
		})
	}
}

func exchange(t *testing.T, w iwarp.Waiting) {
	ctx := t.Context()
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ln, err := dev.Listen(ctx, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	o := Options{Sends: 4, Recvs: 4, RecvLen: 256, Window: 1024, Wait: w, Conn: iwarp.ConnParam{ORD: 4, IRD: 4}}
	served := make(chan error, 1)
	go func() { served <- serve(t, dev, ln, o) }()
	e, err := New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := e.Dial(ctx, ln.Addr().String(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	for i := range 10 { // more than the queues hold
		e.Window[0] = byte(i)
		if err := errors.Join(e.Write(ctx, 0, 1, iwarp.More), e.Send(ctx, []byte{byte(i)})); err != nil {
			t.Fatal(err)
		}
		if m, err := e.Receive(ctx); err != nil || len(m) != 1 || m[0] != byte(i)+1 {
			t.Fatalf("%v, %v", m, err)
		}
		if err := errors.Join(e.Read(ctx, 0, 1), e.Reap(ctx, 0)); err != nil || e.Window[0] != byte(i)+1 {
			t.Fatalf("read %d after %d, %v", e.Window[0], i, err)
		}
	}
	e.Hang()
	if err := <-served; !errors.Is(err, ErrEnded) {
		t.Errorf("the other end: %v", err)
	}
}

// serve adds 1 to the byte that was written, and answers with it, until the peer hangs up.
func serve(t *testing.T, dev iwarp.Device, ln iwarp.Listener, o Options) error {
	ctx := t.Context()
	req, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	e, err := New(dev, o)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := e.Accept(ctx, req); err != nil {
		return err
	}
	for {
		m, err := e.Receive(ctx)
		if err != nil {
			return err
		}
		if m[0] != e.Window[0] {
			return errors.New("the message overtook the Write")
		}
		e.Window[0]++
		if err := e.Send(ctx, e.Window[:1]); err != nil {
			return err
		}
	}
}

// TestWaitingIsTheQueues: an end does not wait by a policy that its CQs refuse.
func TestWaitingIsTheQueues(t *testing.T) {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, err := New(dev, Options{Wait: iwarp.Waiting{Spin: time.Second}}); !errors.Is(err, iwarp.ErrInvalid) {
		t.Errorf("loan with a time to spin: %v", err)
	}
}
