package capture_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/capture"
)

// end is one end of a connection.
type end struct {
	dev iwarp.Device
	cq  iwarp.CQ
	qp  iwarp.QP
	mr  iwarp.MR
	mem []byte
}

const secret = "correct horse battery staple"

func newEnd(t *testing.T, cfg iwarp.Config) *end {
	t.Helper()
	e := &end{mem: bytes.Repeat([]byte(secret), 8000)}
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	e.dev, err = iwarp.Open(cfg)
	check()
	t.Cleanup(func() { _ = e.dev.Close() })
	pd, err := e.dev.AllocPD()
	check()
	e.cq, err = e.dev.CreateCQ(256)
	check()
	e.qp, err = pd.CreateQP(iwarp.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 16, MaxRecv: 16})
	check()
	e.mr, err = pd.RegMR(e.mem, iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteRead, nil)
	check()
	err = e.qp.PostRecv(&iwarp.RecvWR{SGL: []iwarp.SGE{e.all()}})
	check()
	return e
}

func (e *end) all() iwarp.SGE {
	return iwarp.SGE{Addr: e.mr.Base(), Length: uint32(len(e.mem)), LKey: e.mr.STag()}
}

// wait takes n completions.
func (e *end) wait(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wcs := make([]iwarp.WC, 8)
	for n > 0 {
		k := e.cq.Poll(wcs[:min(n, 8)])
		for _, wc := range wcs[:k] {
			if wc.Status != iwarp.StatusSuccess {
				t.Fatalf("completion: %v: %v", wc.Status, e.qp.Err())
			}
		}
		if n -= k; k == 0 {
			if err := e.cq.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// talk connects a to b, which listens, and has it write, read and send. It returns how many FPDUs that took, once both have ended.
func talk(t *testing.T, a, b *end, p iwarp.ConnParam) (fpdus int) {
	t.Helper()
	ln, err := b.dev.Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(t.Context())
		if err == nil {
			err = req.Accept(t.Context(), b.qp, &iwarp.ConnParam{PrivateData: []byte(secret), CRC: p.CRC, IRD: 4, ORD: 4})
		}
		accepted <- err
	}()
	p.PrivateData, p.IRD, p.ORD = []byte(secret), 4, 4
	if _, err := a.dev.Dial(t.Context(), ln.Addr().String(), a.qp, &p); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	for _, op := range []iwarp.Opcode{iwarp.OpWrite, iwarp.OpRead, iwarp.OpSend} {
		if err := a.qp.PostSend(&iwarp.SendWR{Op: op, SGL: []iwarp.SGE{a.all()}, STag: b.mr.STag(), TO: b.mr.Base()}); err != nil {
			t.Fatal(err)
		}
	}
	a.wait(t, 3)
	b.wait(t, 1)
	if err := a.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	<-b.qp.Done()
	if err := b.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	return int(a.dev.Stats().FPDUsSent + b.dev.Stats().FPDUsSent)
}

// lines collects what a capture says.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

func (l *lines) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}

// TestTsharkDecodes: what either end captures decodes in Wireshark: each FPDU is there, each CRC is right and nothing is malformed;
// what messages carry, and private data, is there only if asked for.
func TestTsharkDecodes(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload bool
		listens bool
		param   iwarp.ConnParam
	}{
		{name: "the side that dials"},
		{name: "the side that listens", listens: true},
		{name: "with what messages carry", payload: true},
		{name: "revision 1", param: iwarp.ConnParam{Rev: 1}},
		{name: "without CRC", param: iwarp.ConnParam{CRC: iwarp.CRCOffIfAgreed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.pcapng")
			f, err := capture.Create(path, capture.Options{Payload: c.payload})
			if err != nil {
				t.Fatal(err)
			}
			var ours, theirs iwarp.Config
			if c.listens {
				theirs.Listen = f.Listen(listenTCP)
			} else {
				ours.Dial = f.Dial(dialTCP)
			}
			want := talk(t, newEnd(t, ours), newEnd(t, theirs), c.param)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := bytes.Contains(b, []byte(secret)); got != c.payload {
				t.Errorf("the capture holds what messages carry: %t, want %t", got, c.payload)
			}
			if s, err := os.Stat(path); err != nil || s.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, %v: others can read it", s.Mode(), err)
			}
			r := iwarptest.Tshark(t, path)
			if c.param.CRC != iwarp.CRCOffIfAgreed {
				r.Clean(t, want)
			} else if r.FPDUs != want || len(r.Malformed) > 0 {
				t.Errorf("%d FPDUs, want %d; %q", r.FPDUs, want, r.Malformed)
			}
			if r.Requests != 1 || r.Replies != 1 {
				t.Errorf("%d Requests and %d Replies", r.Requests, r.Replies)
			}
			for _, op := range []string{"Write", "Read Request", "Read Response", "Send"} {
				if r.Opcodes[op] == 0 {
					t.Errorf("no %s among %v", op, r.Opcodes)
				}
			}
		})
	}
}

// TestLimit: a capture ends before it passes its limit, with one line, behind a whole packet; the connection goes on.
func TestLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.pcapng")
	var l lines
	if _, err := capture.Create(path, capture.Options{Limit: 1}); err == nil || !strings.Contains(err.Error(), "give at least") {
		t.Errorf("a limit of one byte: %v", err)
	}
	f, err := capture.Create(path, capture.Options{Limit: capture.MinLimit, Log: l.add})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // 0.7 MB each
		talk(t, newEnd(t, iwarp.Config{Dial: f.Dial(nil)}), newEnd(t, iwarp.Config{}), iwarp.ConnParam{})
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	s, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s.Size() > capture.MinLimit || s.Size() < capture.MinLimit/2 {
		t.Errorf("%d bytes with a limit of %d", s.Size(), capture.MinLimit)
	}
	if said := l.said(); len(said) != 1 || !strings.Contains(said[0], path+" ends: the next packet would pass the limit of 1048576 bytes") {
		t.Errorf("said %q", said)
	}
	if r := iwarptest.Tshark(t, path); len(r.Malformed) > 0 || r.FPDUs == 0 {
		t.Errorf("%d FPDUs, malformed: %q", r.FPDUs, r.Malformed)
	}
}

// TestLeftOut: a connection whose packets cannot be told works, and is left out with one line.
func TestLeftOut(t *testing.T) {
	var l lines
	f, err := capture.Create(filepath.Join(t.TempDir(), "c.pcapng"), capture.Options{Log: l.add})
	if err != nil {
		t.Fatal(err)
	}
	talk(t, newEnd(t, iwarp.Config{Dial: f.Dial(nil)}), newEnd(t, iwarp.Config{}), iwarp.ConnParam{Markers: true})
	if said := l.said(); len(said) != 1 || !strings.Contains(said[0], "is left out: it has markers") {
		t.Errorf("said %q", said)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := capture.Create(t.TempDir(), capture.Options{}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := capture.Create("/dev/full", capture.Options{}); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk: %v", err)
	}
}
