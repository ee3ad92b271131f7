package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// newLab is a network of n hosts, or the test is left out.
func newLab(t *testing.T, n int, seed uint64) *Lab {
	t.Helper()
	if err := Available(); err != nil {
		need.Skipf(t, need.Network, "left out: %v", err)
	}
	l, err := New(n, seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func set(t *testing.T, h *Host, up, down Line) {
	t.Helper()
	if err := h.Set(up, down); err != nil {
		t.Fatal(err)
	}
}

// echo serves connections on a host, each returned what it sends.
func echo(t *testing.T, h *Host) (addr string) {
	t.Helper()
	ln, err := h.Listen("tcp4", netip.AddrPortFrom(h.Addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

func dial(t *testing.T, h *Host, addr string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := h.Dial(ctx, "tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ping sends a byte and waits for it to come back.
func ping(c net.Conn, limit time.Duration) (time.Duration, error) {
	b := []byte{1}
	start := time.Now()
	if err := c.SetDeadline(start.Add(limit)); err != nil {
		return 0, err
	}
	if _, err := c.Write(b); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(c, b)
	return time.Since(start), err
}

// TestDelay: a round trip is never shorter than its lines; how much longer it is
// says what this network is good for on this machine.
func TestDelay(t *testing.T) {
	l := newLab(t, 2, 1)
	c := dial(t, l.Hosts[0], echo(t, l.Hosts[1]))
	for _, rtt := range []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond} {
		if err := l.Set(Line{Delay: rtt / 4}); err != nil {
			t.Fatal(err)
		}
		var took []time.Duration
		for range 20 {
			d, err := ping(c, 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if d < rtt {
				t.Errorf("a round trip of %v over lines of %v", d, rtt)
			}
			took = append(took, d-rtt)
		}
		slices.Sort(took)
		t.Logf("round trip of %v: longer by %v, at most %v", rtt, took[len(took)/2], took[len(took)-1])
	}
}

// TestRate: a line lets through no more than its rate, and one without a rate as
// much as this machine can.
func TestRate(t *testing.T) {
	l := newLab(t, 2, 1)
	ln, err := l.Hosts[1].Listen("tcp4", netip.AddrPortFrom(l.Hosts[1].Addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, c := range []struct {
		rate  float64
		bytes int64
	}{{0, 64 << 20}, {1e9, 16 << 20}, {100e6, 2 << 20}, {512e3, 48 << 10}} {
		set(t, l.Hosts[1], Line{}, Line{Rate: c.rate})
		in := dial(t, l.Hosts[0], ln.Addr().String())
		out, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		go func() {
			_, _ = io.CopyN(in, zero{}, c.bytes)
			in.Close()
		}()
		n, err := io.Copy(io.Discard, out)
		took := time.Since(start)
		out.Close()
		if err != nil || n != c.bytes {
			t.Fatalf("%d of %d bytes came: %v", n, c.bytes, err)
		}
		got := float64(n) * 8 / took.Seconds()
		t.Logf("line of %.3g bit/s: %.3g", c.rate, got)
		if c.rate > 0 && got > 1.05*c.rate {
			t.Errorf("line of %.3g bit/s let through %.3g", c.rate, got)
		}
	}
}

type zero struct{}

func (zero) Read(p []byte) (int, error) { return len(p), nil }

// TestLossIsBySeed: with the same seed the same packets are lost, with another one
// others are.
func TestLossIsBySeed(t *testing.T) {
	const packets = 200
	lost := func(seed uint64) string {
		l := newLab(t, 2, seed)
		set(t, l.Hosts[0], Line{Loss: 0.2}, Line{})
		set(t, l.Hosts[1], Line{}, Line{Loss: 0.1})
		var in net.PacketConn
		err := l.Hosts[1].Do(func() (err error) {
			in, err = net.ListenPacket("udp4", netip.AddrPortFrom(l.Hosts[1].Addr, 0).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, err := l.Hosts[0].Dial(t.Context(), "udp4", in.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		for i := range packets {
			if _, err := out.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		came := strings.Repeat("-", packets)
		for end := time.Now().Add(time.Minute); ; {
			s, r := l.Hosts[0].Stats(), l.Hosts[1].Stats()
			if s.Sent == packets && r.Received+r.Lost+s.Lost == packets || time.Now().After(end) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		b := make([]byte, 8)
		for range l.Hosts[1].Stats().Received {
			_ = in.SetReadDeadline(time.Now().Add(time.Minute))
			if _, _, err := in.ReadFrom(b); err != nil {
				t.Fatal(err)
			}
			came = came[:b[0]] + "+" + came[b[0]+1:]
		}
		if n := strings.Count(came, "-"); n < 20 || n > 100 {
			t.Errorf("%d of %d packets lost, about 28 %% should be", n, packets)
		}
		return came
	}
	first, again, other := lost(1), lost(1), lost(2)
	if first != again {
		t.Errorf("with the same seed\n%s\n%s", first, again)
	}
	if first == other {
		t.Errorf("two seeds lose the same packets: %s", first)
	}
}

// TestCut: one direction dropped is enough for silence, and nothing else is; once repaired, TCP goes on.
func TestCut(t *testing.T) {
	l := newLab(t, 3, 1)
	a, b, third := l.Hosts[0], l.Hosts[1], l.Hosts[2]
	addr := echo(t, b)
	c, other := dial(t, a, addr), dial(t, third, addr)
	l.Cut(b, a)
	if d, err := ping(c, 300*time.Millisecond); err == nil {
		t.Errorf("an answer after %v", d)
	}
	if _, err := ping(other, 30*time.Second); err != nil {
		t.Errorf("another host: %v", err)
	}
	l.Mend(b, a)
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("mended: %v", err)
	}
	if b.Stats().Dropped == 0 {
		t.Error("nothing was counted as dropped")
	}
}

// TestHalfOpen: connections that there are go silent, new ones work.
func TestHalfOpen(t *testing.T) {
	l := newLab(t, 2, 1)
	addr := echo(t, l.Hosts[1])
	c := dial(t, l.Hosts[0], addr)
	if _, err := ping(c, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if n := l.HalfOpen(l.Hosts[1], l.Hosts[0]); n != 1 {
		t.Errorf("%d connections silenced, want 1", n)
	}
	if d, err := ping(c, 300*time.Millisecond); err == nil {
		t.Errorf("an answer after %v", d)
	}
	if _, err := ping(dial(t, l.Hosts[0], addr), 30*time.Second); err != nil {
		t.Errorf("a new connection: %v", err)
	}
	if n := l.Opens(l.Hosts[0], l.Hosts[1]); n != 2 {
		t.Errorf("%d connections were asked for, want 2", n)
	}
}

// TestUnplug: a host without a cable knows it; with it again, connections go on.
func TestUnplug(t *testing.T) {
	l := newLab(t, 2, 1)
	addr := echo(t, l.Hosts[1])
	c := dial(t, l.Hosts[0], addr)
	if err := l.Hosts[0].Unplug(true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := l.Hosts[0].Dial(ctx, "tcp4", addr); err == nil || ctx.Err() != nil {
		t.Errorf("connect without a cable: %v", err)
	}
	if err := l.Hosts[0].Unplug(false); err != nil {
		t.Fatal(err)
	}
	if _, err := ping(c, 30*time.Second); err != nil {
		t.Errorf("with the cable again: %v", err)
	}
}

// TestProcess: a command that is started on a host has its address and no other.
func TestProcess(t *testing.T) {
	ip, err := exec.LookPath("ip")
	if err != nil {
		need.Skipf(t, need.Network, "left out: no ip here (make deps)")
	}
	l := newLab(t, 2, 1)
	for _, h := range l.Hosts {
		var out strings.Builder
		cmd := exec.Command(ip, "-o", "-4", "addr")
		cmd.Stdout = &out
		if err := h.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), fmt.Sprintf("inet %v/24", h.Addr)) || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%v has the addresses %q", h.Addr, out.String())
		}
	}
}

// TestManyHosts: a farm's worth of hosts, each reaching the first.
func TestManyHosts(t *testing.T) {
	l := newLab(t, 40, 1)
	addr := echo(t, l.Hosts[0])
	errs := make(chan error)
	for _, h := range l.Hosts[1:] {
		go func() {
			c, err := h.Dial(t.Context(), "tcp4", addr)
			if err == nil {
				_, err = ping(c, 30*time.Second)
				err = errors.Join(err, c.Close())
			}
			errs <- err
		}()
	}
	for range l.Hosts[1:] {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
