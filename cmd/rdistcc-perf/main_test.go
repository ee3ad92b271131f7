package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// startServer runs a server of the test in this process and returns its address,
// and a function that waits for its end.
func startServer(t *testing.T, name string, once bool) (addr string, wait func() error) {
	t.Helper()
	o := &options{t: testNamed(t, name), server: true, listen: "127.0.0.1:0", once: once}
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(ctx, o, w)
		_ = w.Close()
		ended <- err
	}()
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("server said %q: %v", line, <-ended)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	_, addr, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("server said %q", line)
	}
	waited := false
	wait = func() error {
		waited = true
		return <-ended
	}
	t.Cleanup(func() {
		cancel()
		if !waited {
			if err := <-ended; err != nil {
				t.Errorf("server: %v", err)
			}
		}
	})
	return addr, wait
}

func testNamed(t *testing.T, name string) *test {
	t.Helper()
	for i := range tests {
		if tests[i].name == name {
			return &tests[i]
		}
	}
	t.Fatalf("no test %s", name)
	return nil
}

// client runs a client by its command line.
func client(t *testing.T, args ...string) (result, string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, stderr bytes.Buffer
	if args[0] != "nonsense" {
		args = append(args, "--json")
	}
	code := run(ctx, args, &out, &stderr)
	var r result
	if code == 0 {
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", out.String(), err)
		}
	}
	return r, stderr.String(), code
}

// What was asked for is what was moved, in every mode.
func TestMeasure(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		crc    bool
		msgs   int64
		bytes  int64
		isLat  bool
		inTime bool
	}{
		{name: "write_bw", args: []string{"--size", "1MiB", "--iters", "40"}, crc: true, msgs: 40, bytes: 40 << 20},
		{name: "write_bw", args: []string{"--size", "100", "--iters", "500", "--depth", "1"}, crc: true, msgs: 500, bytes: 50000},
		{name: "write_bw", args: []string{"--size", "64k", "--iters", "50", "--qps", "3", "--crc=false"}, msgs: 150, bytes: 150 << 16},
		{name: "write_bw", args: []string{"--size", "64k", "--iters", "20", "--fpdu", "1408"}, crc: true, msgs: 20, bytes: 20 << 16},
		{name: "send_bw", args: []string{"--size", "64KiB", "--iters", "100", "--depth", "4"}, crc: true, msgs: 100, bytes: 100 << 16},
		{name: "send_bw", args: []string{"--size", "1", "--iters", "301", "--depth", "1"}, crc: true, msgs: 301, bytes: 301},
		{name: "send_bw", args: []string{"--size", "4k", "--duration", "20ms", "--qps", "2"}, crc: true, inTime: true},
		{name: "write_lat", args: []string{"--iters", "50"}, crc: true, msgs: 50, bytes: 3200, isLat: true},
		{name: "send_lat", args: []string{"--iters", "50", "--size", "3"}, crc: true, msgs: 50, bytes: 150, isLat: true},
		{name: "tcp_bw", args: []string{"--iters", "20"}, msgs: 20, bytes: 20 << 20},
		{name: "tcp_lat", args: []string{"--iters", "50"}, msgs: 50, bytes: 3200, isLat: true},
	} {
		t.Run(c.name+" "+strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			addr, wait := startServer(t, c.name, true)
			r, stderr, code := client(t, append([]string{c.name, "-c", addr}, c.args...)...)
			if code != 0 {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			if r.Test != c.name || r.CRC != c.crc {
				t.Errorf("got %s with CRC %v, want %s with CRC %v", r.Test, r.CRC, c.name, c.crc)
			}
			if !c.inTime && (r.Messages != c.msgs || r.Bytes != c.bytes) || r.Messages == 0 {
				t.Errorf("got %d messages, %d bytes; want %d, %d", r.Messages, r.Bytes, c.msgs, c.bytes)
			}
			if c.isLat != (r.P50 > 0) || c.isLat == (r.GBps > 0) {
				t.Errorf("p50 %v us, %v GB/s", r.P50, r.GBps)
			}
			if err := wait(); err != nil {
				t.Errorf("server with --once: %v", err)
			}
		})
	}
}

func TestServerServesMany(t *testing.T) {
	addr, _ := startServer(t, "write_bw", false)
	for range 3 {
		if _, stderr, code := client(t, "write_bw", "-c", addr, "--iters", "3"); code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
	}
	// Another test, and something that is none, cost nobody anything.
	if _, stderr, code := client(t, "send_bw", "-c", addr, "--iters", "3"); code != exitConnect || !strings.Contains(stderr, "this server runs write_bw") {
		t.Errorf("another test: exit %d, %q", code, stderr)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(c)
	_ = c.Close()
	if _, stderr, code := client(t, "write_bw", "-c", addr, "--iters", "3"); code != 0 {
		t.Errorf("afterwards: exit %d: %s", code, stderr)
	}
}

func TestArguments(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	used := ln.Addr().String()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	_ = free.Close()
	defer ln.Close()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"nonsense"}, exitArguments, "nonsense"},
		{[]string{"write_bw"}, exitArguments, "-s and -c"},
		{[]string{"write_bw", "-s", "-c", "x:1"}, exitArguments, "-s and -c"},
		{[]string{"write_bw", "-c", "x:1", "--size", "2GiB"}, exitArguments, "2GiB"},
		{[]string{"write_bw", "-c", "x:1", "--size", "12x"}, exitArguments, "12x"},
		{[]string{"write_bw", "-c", "x:1", "--size", "0"}, exitArguments, "--size"},
		{[]string{"write_bw", "-c", "x:1", "--qps", "0"}, exitArguments, "--qps"},
		{[]string{"write_bw", "-c", "x:1", "--nonsense"}, exitArguments, "--nonsense"},
		{[]string{"write_bw", "-c", "x:1", "--depth", "5000"}, exitArguments, "--depth"},
		{[]string{"write_bw", "-c", "x:1", "--fpdu", "20"}, exitArguments, "--fpdu"},
		{[]string{"write_bw", "-c", "x:1", "extra"}, exitArguments, "extra"},
		{[]string{"tcp_bw", "-c", "x:1", "--crc"}, exitArguments, "crc"},
		{[]string{"write_bw", "-c", nobody}, exitConnect, "refused"},
		{[]string{"tcp_bw", "-c", nobody}, exitConnect, "refused"},
		{[]string{"write_bw", "-s", "--listen", used}, exitAddress, used},
		{[]string{"tcp_lat", "-s", "--listen", used}, exitAddress, used},
	} {
		_, stderr, code := client(t, c.args...)
		if code != c.code || !strings.Contains(stderr, c.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d and %q, want %d and one line with %q", c.args, code, stderr, c.code, c.says)
		}
	}
}

// An interrupted client or server ends.
func TestInterrupted(t *testing.T) {
	for _, name := range []string{"write_bw", "send_lat", "tcp_bw"} {
		addr, _ := startServer(t, name, false)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		o := &options{t: testNamed(t, name), client: addr, size: 4096, qps: 1, depth: 1, duration: time.Hour, crc: true}
		if _, err := measure(ctx, o); err == nil || errors.Is(err, io.EOF) && name != "tcp_bw" {
			t.Errorf("%s: got %v", name, err)
		}
		cancel()
	}
}

func TestParseParams(t *testing.T) {
	o := &options{t: testNamed(t, "send_bw"), client: "x", size: 4096, depth: 8, qps: 2, duration: time.Second, fpdu: 1408, crc: true}
	got, err := parseParams(o.params(), o.t)
	if err != nil || got.size != o.size || got.depth != o.depth || got.fpdu != o.fpdu || !got.crc {
		t.Errorf("got %+v, %v", got, err)
	}
	for i := range o.params() {
		b := o.params()
		b[i] ^= 0xff
		if _, err := parseParams(b, o.t); err == nil && i < 5 {
			t.Errorf("octet %d of magic and test changed: accepted", i)
		}
		if _, err := parseParams(o.params()[:i], o.t); err == nil {
			t.Errorf("%d octets: accepted", i)
		}
	}
}
