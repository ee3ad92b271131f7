package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// startRping runs a server until the test's end; out has what it prints by then.
func startRping(t *testing.T, args ...string) (addr string, wait func() (code int, stdout, stderr string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var out, log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, append([]string{"rping", "-s", "--listen", "127.0.0.1:0"}, args...), &out, w)
		_ = w.Close()
		ended <- code
	}()
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, addr, _ = strings.Cut(strings.TrimSpace(line), "listening on ")
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&log, lines) // a pipe: ends with the server
	}()
	wait = func() (int, string, string) {
		<-read
		return <-ended, out.String(), log.String()
	}
	t.Cleanup(func() {
		cancel()
		<-read
	})
	return addr, wait
}

func rping(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, log bytes.Buffer
	code = run(ctx, append([]string{"rping"}, args...), &out, &log)
	return code, out.String(), log.String()
}

// The smallest and the largest ping, under all that start-up negotiates.
func TestRping(t *testing.T) {
	iwarptest.CheckGoroutines(t)
	addr, _ := startRping(t)
	plain, _ := startRping(t, "--crc=false", "--pause", "1ms")
	for _, c := range []struct {
		addr, args string
		want       rpingResult
	}{
		{addr, "--size 27", rpingResult{Size: 27, CRC: true, MPA: 2, RTR: "write"}},
		{addr, "--size 65535 --rtr read", rpingResult{Size: 65535, CRC: true, MPA: 2, RTR: "read"}},
		{addr, "--rtr send", rpingResult{Size: 64, CRC: true, MPA: 2, RTR: "send"}},
		{addr, "--rtr none", rpingResult{Size: 64, CRC: true, MPA: 2, RTR: "none"}},
		{addr, "--mpa 1", rpingResult{Size: 64, CRC: true, MPA: 1, RTR: "none"}},
		{addr, "--markers", rpingResult{Size: 64, CRC: true, MPA: 2, RTR: "write"}},
		{addr, "--crc=false", rpingResult{Size: 64, CRC: true, MPA: 2, RTR: "write"}},
		{plain, "--crc=false --size 1429 --fpdu 136", rpingResult{Size: 1429, MPA: 2, RTR: "write"}},
		{plain, "--crc=false --mpa 1 --size 65000", rpingResult{Size: 65000, MPA: 1, RTR: "none"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := append([]string{"-c", c.addr, "--count", "3", "--verify", "--json"}, strings.Fields(c.args)...)
			code, out, log := rping(t, args...)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, log)
			}
			var got rpingResult
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			c.want.Pings, c.want.Seconds, c.want.P50, c.want.Max = 3, got.Seconds, got.P50, got.Max
			if got != c.want || got.P50 <= 0 || got.Max < got.P50 {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// What both ends print is what librdmacm's rping would send and print.
func TestRpingText(t *testing.T) {
	addr, wait := startRping(t, "--once", "-v")
	code, out, log := rping(t, "-c", addr, "--count", "2", "--size", "32", "-v")
	want := "ping data: rdma-ping-0: ABCDEFGHIJKLMNOPQR\nping data: rdma-ping-1: BCDEFGHIJKLMNOPQRS\n"
	if code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("exit %d, %q, %q", code, out, log)
	}
	code, out, log = wait()
	if want := "server " + strings.ReplaceAll(want, "\nping", "\nserver ping"); code != 0 || out != want || log != "" {
		t.Errorf("server: exit %d, %q, %q", code, out, log)
	}
}

// A count of 0 pings until the program is interrupted, and closes in good order.
func TestRpingUntilInterrupted(t *testing.T) {
	addr, wait := startRping(t, "--once", "-v")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"rping", "-c", addr, "--count", "0", "-v"}, w, io.Discard)
		_ = w.Close()
		ended <- code
	}()
	lines := bufio.NewReader(r)
	for range 3 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	_, _ = io.Copy(io.Discard, lines)
	if code := <-ended; code != 0 {
		t.Errorf("client: exit %d", code)
	}
	if code, _, log := wait(); code != 0 && !strings.Contains(log, "closed") {
		t.Errorf("server: exit %d: %s", code, log)
	}
}

func TestRpingArguments(t *testing.T) {
	for _, args := range []string{"", "-s -c x", "-s --size 26", "-c 127.0.0.1:1 --size 64KiB", "-s --count -1", "-s 127.0.0.1:1", "-s --mpa 3", "-s --pause -1s"} {
		if code, _, log := rping(t, strings.Fields(args)...); code != exitArguments || strings.Count(log, "\n") != 1 {
			t.Errorf("rping %s: exit %d, %q", args, code, log)
		}
	}
	if code, _, log := rping(t, "-c", "127.0.0.1:1"); code != exitConnect {
		t.Errorf("nobody there: exit %d, %q", code, log)
	}
}

// TestRpingStrangers: a peer that is not rping, or asks for more than there is, is told so in one line.
func TestRpingStrangers(t *testing.T) {
	for _, c := range []struct {
		name, want string
		first      []byte
	}{
		{"short", "3 bytes instead of 16: the peer is not rping", []byte("hey")},
		{"large", "a ping of 65536 bytes: at most 65535", []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0}},
		{"wrong STag", "the peer ended the stream", []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, wait := startRping(t, "--once")
			dev, err := iwarp.Open(iwarp.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			p, err := newRpinger(dev, 64, false, iwarp.Waiting{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			if _, err := dev.Dial(t.Context(), addr, p.qp, &iwarp.ConnParam{ORD: 1, IRD: 1}); err != nil {
				t.Fatal(err)
			}
			if err := p.post(t.Context(), "send", &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: c.first}); err != nil {
				t.Fatal(err)
			}
			<-p.qp.Done()
			if code, _, log := wait(); code != exitGeneral || !strings.Contains(log, c.want) {
				t.Errorf("exit %d, %q, want %q", code, log, c.want)
			}
		})
	}
}
