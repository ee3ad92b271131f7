package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

const captures = "../../pkg/iwarp/testdata/captures/v2-crc-ib_"

// perftestOptions are a command line's with --perftest.
func perftestOptions(t *testing.T, name string, size, iters, qps int) *options {
	t.Helper()
	o := &options{t: testNamed(t, name), perftest: true, size: sizeFlag(size), iters: iters, qps: qps, depth: 128, crc: true, settle: time.Millisecond}
	if o.t.read && !haveRead(t) {
		t.Skip("the software device has no RDMA Read")
	}
	return o
}

func init() {
	ptClientStays, ptServerStays = ptClientStays/4, ptServerStays/4
}

// Both roles of every test of perftest, with ourselves at the other side.
func TestPerftestPairs(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	for _, c := range []struct {
		name              string
		size, iters, qps  int
		reported, latency bool
	}{
		{name: "write_bw", size: 65536, iters: 300, qps: 1, reported: true},
		{name: "write_bw", size: 2, iters: 20, qps: 3, reported: true},
		{name: "read_bw", size: 65536, iters: 300, qps: 2, reported: true},
		{name: "send_bw", size: 4096, iters: 2000, qps: 1},
		{name: "send_bw", size: 1, iters: 7, qps: 2},
		{name: "send_bw", size: 100, iters: 3000, qps: 3},
		{name: "write_lat", size: 2, iters: 300, qps: 1, latency: true}, // rounds are counted modulo 256
		{name: "read_lat", size: 2, iters: 50, qps: 1, latency: true},
		{name: "send_lat", size: 4096, iters: 600, qps: 1, latency: true},
	} {
		t.Run(fmt.Sprintf("%s_%d_%d_%d", c.name, c.size, c.iters, c.qps), func(t *testing.T) {
			t.Parallel()
			s := perftestOptions(t, c.name, c.size, c.iters, c.qps)
			s.server, s.listen, s.once = true, "127.0.0.1:0", true
			addr, wait := startServerWith(t, s)
			args := []string{c.name, "-c", addr, "--perftest", "--settle", "1ms",
				"--size", fmt.Sprint(c.size), "--iters", fmt.Sprint(c.iters), "--qps", fmt.Sprint(c.qps)}
			r, stderr, code := client(t, args...)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			if n := int64(c.iters * c.qps); r.Messages != n || r.Bytes != n*int64(c.size) || !r.Perftest || c.latency != (r.P50 > 0) {
				t.Errorf("got %+v, want %d messages", r, n)
			}
			if err := wait(); err != nil {
				t.Errorf("server: %v", err)
			}
		})
	}
}

// replay is the other side of a captured first connection.
type replay struct {
	t        *testing.T
	ours     [][]byte // what the captured side in our role said
	theirs   [][]byte
	compared int
}

// readReplay takes a capture's first connection apart.
func readReplay(t *testing.T, name string, client bool) *replay {
	t.Helper()
	all, err := iwarptest.ReadFrames(captures + name + ".frames")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d connections, %v", len(all), err)
	}
	r := &replay{t: t}
	for _, f := range all[0].Frames {
		if f.Kind != "fpdu" {
			continue
		}
		n := int(binary.BigEndian.Uint16(f.Bytes))
		if m := f.Bytes[2+18 : 2+n]; f.FromInitiator == client {
			r.ours = append(r.ours, m)
		} else {
			r.theirs = append(r.theirs, m)
		}
	}
	return r
}

// exchange compares with the capture all that does not differ from run to run.
func (r *replay) exchange(_ context.Context, mine []byte) ([]byte, error) {
	i := r.compared
	if i >= len(r.theirs) {
		return nil, io.ErrUnexpectedEOF
	}
	r.compared++
	want := bytes.Clone(r.ours[i])
	got := bytes.Clone(mine)
	switch len(want) {
	case ptDestLen: // QPN, PSN, RKey, padding, VAddr, GID
		for _, b := range [][]byte{want, got} {
			if len(b) == ptDestLen {
				clear(b[8:48])
			}
		}
	case 8: // a figure: of the server's nothing is known
		clear(want)
		clear(got)
	}
	if !bytes.Equal(got, want) {
		r.t.Errorf("message %d: said %x, perftest said %x", i, mine, r.ours[i])
	}
	return r.theirs[i], nil
}

// TestPerftestGolden: what we say is what perftest said in the captured runs, and
// what it said there is understood, in both roles.
func TestPerftestGolden(t *testing.T) {
	for _, name := range []string{"write_bw", "read_bw", "send_bw"} {
		for _, client := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/client=%v", name, client), func(t *testing.T) {
				r := readReplay(t, name, client)
				talk := ptTalk{x: r, t: testNamed(t, name), qps: 1}
				if err := talk.hello(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if d, err := talk.shake(t.Context(), ptDest{}); err != nil || d != (ptDest{}) {
						t.Fatalf("got %+v, %v", d, err)
					}
				}
				mine := ptDest{OutReads: 1}
				if name == "read_bw" {
					mine.OutReads = 128
				}
				theirs, err := talk.setUp(t.Context(), []ptDest{mine})
				if err != nil {
					t.Fatal(err)
				}
				// Each side writes to, or reads from, what the other one has told it.
				stag, to := dataTarget(t, name)
				toServer := name != "send_bw" // there the server writes credits
				if client == toServer && (theirs[0].RKey != stag || theirs[0].VAddr != to) {
					t.Errorf("told %08x:%x, captured %08x:%x", theirs[0].RKey, theirs[0].VAddr, stag, to)
				}
				rep, err := talk.finish(t.Context(), ptReport{}, mine)
				if err != nil {
					t.Fatal(err)
				}
				if name != "send_bw" && !client && (rep.Size != 4096 || rep.Iters != 5 || rep.Avg < 1 || rep.Peak < rep.Avg) {
					t.Errorf("report %+v", rep)
				}
				if r.compared != len(r.ours) {
					t.Errorf("said %d messages, perftest %d", r.compared, len(r.ours))
				}
				if _, err := talk.shake(t.Context(), mine); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("behind the end: %v", err)
				}
			})
		}
	}
}

// dataTarget is where the first tagged message of the measured connection goes
// to, or what it reads.
func dataTarget(t *testing.T, name string) (stag uint32, to uint64) {
	t.Helper()
	all, err := iwarptest.ReadFrames(captures + name + ".frames")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all[1].Frames {
		if f.Kind != "fpdu" {
			continue
		}
		b := f.Bytes[2:]
		switch op, _ := f.Opcode(); op {
		case 0:
			return binary.BigEndian.Uint32(b[2:]), binary.BigEndian.Uint64(b[6:])
		case 1:
			return binary.BigEndian.Uint32(b[18+16:]), binary.BigEndian.Uint64(b[18+20:])
		}
	}
	t.Fatal("nothing tagged")
	return 0, 0
}

func TestPerftestRefuses(t *testing.T) {
	for name, edit := range map[string]func(r *replay){
		"old version":   func(r *replay) { r.theirs[0] = append([]byte("5.60"), make([]byte, 12)...) },
		"no version":    func(r *replay) { r.theirs[0] = make([]byte, 16) },
		"not perftest":  func(r *replay) { r.theirs[0] = []byte("hello") },
		"short page":    func(r *replay) { r.theirs[1] = r.theirs[1][:3] },
		"long MTU":      func(r *replay) { r.theirs[3] = make([]byte, 4) },
		"short QP":      func(r *replay) { r.theirs[4] = r.theirs[4][:55] },
		"nothing":       func(r *replay) { r.theirs[4] = nil },
		"short figures": func(r *replay) { r.theirs[12] = r.theirs[12][:4] },
	} {
		t.Run(name, func(t *testing.T) {
			r := readReplay(t, "write_bw", true)
			edit(r)
			talk := ptTalk{x: r, t: testNamed(t, "write_bw"), qps: 1}
			err := talk.hello(t.Context())
			for range 2 {
				if err == nil {
					_, err = talk.shake(t.Context(), ptDest{})
				}
			}
			if err == nil {
				_, err = talk.setUp(t.Context(), []ptDest{{OutReads: 1}})
			}
			if err == nil {
				_, err = talk.finish(t.Context(), ptReport{}, ptDest{OutReads: 1})
			}
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// rawPeer speaks frames over TCP.
type rawPeer struct {
	t *testing.T
	c net.Conn
}

func dialRaw(t *testing.T, addr string, request []byte) *rawPeer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	p := &rawPeer{t, c}
	p.write(request)
	reply := p.read(mpa.FrameSize)
	p.read(int(binary.BigEndian.Uint16(reply[18:])))
	return p
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	if _, err := p.c.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

func (p *rawPeer) read(n int) []byte {
	p.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(p.c, b); err != nil {
		p.t.Fatal(err)
	}
	return b
}

// ulpdu reads one FPDU.
func (p *rawPeer) ulpdu() []byte {
	p.t.Helper()
	n := int(binary.BigEndian.Uint16(p.read(2)))
	return p.read((2+n+3)&^3 + 4 - 2)[:n]
}

// TestPerftestReplay runs our server against the very bytes of captured clients;
// only the STag and TO that we have given out are put in.
func TestPerftestReplay(t *testing.T) {
	for _, c := range []struct {
		name  string
		start int // exchanges before data flows
		says  string
	}{
		{"write_bw", 9, "5 messages of 4096 bytes"},
		{"read_bw", 9, "5 messages of 4096 bytes"},
		{"send_bw", 10, "done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := perftestOptions(t, c.name, 4096, 5, 1)
			o.server, o.listen, o.once = true, "127.0.0.1:0", true
			var said bytes.Buffer
			addr, wait := startServerLog(t, o, &said)
			all, err := iwarptest.ReadFrames(captures + c.name + ".frames")
			if err != nil {
				t.Fatal(err)
			}
			control := dialRaw(t, addr, all[0].Frames[0].Bytes)
			var data *rawPeer
			var mine ptDest
			exchanges := 0
			for _, f := range all[0].Frames {
				if !f.FromInitiator || f.Kind != "fpdu" {
					continue
				}
				control.write(f.Bytes)
				if b := control.ulpdu(); len(b) == 18+ptDestLen {
					if d, _ := parsePTDest(b[18:]); d.RKey != 0 {
						mine = d
					}
				}
				switch exchanges++; exchanges {
				case 5:
					data = dialRaw(t, addr, all[1].Frames[0].Bytes)
				case c.start:
					data.replayData(all[1], mine)
				}
			}
			_ = data.c.(*net.TCPConn).CloseWrite()
			rest, _ := io.ReadAll(data.c)
			for len(rest) > 2 { // credits, at most
				if rest[3]&0xf != 0 {
					t.Errorf("the server said %x", rest[:8])
				}
				rest = rest[(2+int(binary.BigEndian.Uint16(rest))+3)&^3+4:]
			}
			_ = control.c.Close()
			if err := wait(); err != nil {
				t.Errorf("server: %v", err)
			}
			if !strings.Contains(said.String(), c.says) {
				t.Errorf("server said %q, want %q", said.String(), c.says)
			}
		})
	}
}

// replayData sends the client's FPDUs of a measured connection, and reads as many
// Read Responses as it asks for.
func (p *rawPeer) replayData(c iwarptest.Conversation, server ptDest) {
	batch, base := mpa.NewBatch(), uint64(0)
	for _, f := range c.Frames {
		if f.Kind != "fpdu" {
			continue
		}
		op, last := f.Opcode()
		if !f.FromInitiator {
			for more := op == 2 && last; more; { // ours has FPDUs of its own length
				got := p.ulpdu()
				if more = got[0]&0x40 == 0; got[1]&0xf != 2 {
					p.t.Fatalf("got %x instead of a Read Response", got[:14])
				}
			}
			continue
		}
		u := bytes.Clone(f.Bytes[2:][:binary.BigEndian.Uint16(f.Bytes)])
		var at []byte // STag and TO of the server's
		switch op {
		case 0:
			at = u[2:]
			to := binary.BigEndian.Uint64(u[6:])
			if base == 0 {
				base = to
			}
			binary.BigEndian.PutUint64(at[4:], server.VAddr+to-base)
		case 1:
			at = u[18+16:]
			binary.BigEndian.PutUint64(at[4:], server.VAddr)
		}
		if at != nil {
			binary.BigEndian.PutUint32(at, server.RKey)
		}
		batch.Reset(true)
		batch.Add(u)
		p.write(bytes.Join(batch.Bufs(), nil))
	}
}

// A perftest client that goes away in the middle costs its own session only.
func TestPerftestLostClient(t *testing.T) {
	o := perftestOptions(t, "send_bw", 64, 10, 1)
	o.server, o.listen = true, "127.0.0.1:0"
	r, w := io.Pipe()
	lines := bufio.NewScanner(r)
	addr, _ := startServerLog(t, o, w)
	all, err := iwarptest.ReadFrames(captures + "send_bw.frames")
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []int{1, 3, 6, 12} {
		p := dialRaw(t, addr, all[0].Frames[0].Bytes)
		for _, f := range all[0].Frames[:after] {
			if f.FromInitiator && f.Kind == "fpdu" {
				p.write(f.Bytes)
				p.ulpdu()
			}
		}
		_ = p.c.Close()
		if !lines.Scan() || !strings.Contains(lines.Text(), p.c.LocalAddr().String()) { // an earlier connection would be taken for part of the session
			t.Errorf("server said %q", lines.Text())
		}
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	_, stderr, code := client(t, "send_bw", "-c", addr, "--perftest", "--settle", "1ms", "--size", "64", "--iters", "10")
	if code != 0 {
		t.Errorf("afterwards: exit %d: %s", code, stderr)
	}
}

// TestPerftestTellsOfAFault: where a measured connection ends by a fault and the client then closes the
// first one, the server tells of the fault.
func TestPerftestTellsOfAFault(t *testing.T) {
	o := perftestOptions(t, "write_bw", 64, 5, 1)
	o.server, o.listen = true, "127.0.0.1:0"
	r, w := io.Pipe()
	lines := bufio.NewScanner(r)
	addr, _ := startServerLog(t, o, w)
	s := dialSession(t, o, addr)
	e := s.ends[0]
	e.peer ^= 0x100               // not what the server has offered
	_, err := e.push(t.Context()) // a Write has completed before the server objects, or not
	<-e.qp.Done()
	if why := e.qp.Err(); why == nil || !strings.Contains(why.Error(), "terminate 1/1/00") {
		t.Errorf("Writes to a wrong STag: %v, %v", err, why)
	}
	if err := s.ctl.qp.Disconnect(t.Context()); err != nil {
		t.Error(err)
	}
	if !lines.Scan() || !strings.Contains(lines.Text(), "measured connection 1 of 1: ") || !strings.Contains(lines.Text(), "terminate 1/1/00") {
		t.Errorf("the server says %q", lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
}

// dialSession is a client's session with a server, up to the measurement.
func dialSession(t *testing.T, o *options, addr string) *ptSession {
	t.Helper()
	c := *o
	c.server, c.client = false, addr
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	ctl, err := ptControl(dev, &c)
	if err != nil {
		t.Fatal(err)
	}
	if err := ctl.dial(t.Context(), dev, nil); err != nil {
		t.Fatal(err)
	}
	s := newPTSession(&c, true, ctl)
	t.Cleanup(s.close)
	err = s.setUp(t.Context(), func(ctx context.Context) error {
		for range c.qps {
			e, err := s.dialEnd(ctx, dev)
			if err != nil {
				return err
			}
			s.add(e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPerftestCrossed: perftest connects its QPs at the same time, so that the
// server may list them in another order than the client. Each may use the memory
// of all.
func TestPerftestCrossed(t *testing.T) {
	o := perftestOptions(t, "write_bw", 64, 5, 2)
	o.server, o.listen, o.once = true, "127.0.0.1:0", true
	addr, wait := startServerWith(t, o)
	s := dialSession(t, o, addr)
	ctl := s.ctl
	a, b := s.ends[0], s.ends[1]
	a.peer, b.peer = b.peer, a.peer
	for _, e := range s.ends {
		if n, err := e.push(t.Context()); n != 5 || err != nil {
			t.Errorf("%d messages, %v", n, err)
		}
	}
	if _, err := s.talk.finish(t.Context(), ptReport{}, s.dests[0]); err != nil {
		t.Error(err)
	}
	for i, e := range s.ends { // what the server objects to comes before its FIN
		if err := e.qp.Disconnect(t.Context()); err != nil {
			t.Errorf("QP %d: %v", i, err)
		}
	}
	if err := ctl.qp.Disconnect(t.Context()); err != nil {
		t.Error(err)
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
}
