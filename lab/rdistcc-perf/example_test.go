package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// runExample runs a command line of example; addr is where it listens, if it does.
func runExample(t *testing.T, ctx context.Context, args ...string) (addr string, wait func() (string, int)) {
	t.Helper()
	var out bytes.Buffer
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		c := run(ctx, append([]string{"example"}, args...), &out, w)
		_ = w.Close()
		code <- c
	}()
	var said strings.Builder
	lines := bufio.NewScanner(r)
	if args[1] == "-s" && lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		_, addr, _ = strings.Cut(lines.Text(), "listening on ")
	}
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		for lines.Scan() {
			fmt.Fprintln(&said, lines.Text())
		}
	}()
	return addr, func() (string, int) {
		<-rest
		c := <-code
		return said.String() + out.String(), c
	}
}

// Each of the examples against its counterpart; the number of FPDUs says that all
// messages travelled.
func TestExamples(t *testing.T) {
	for _, c := range []struct {
		server, client string
		args           []string
		sent, received string // of the server
	}{
		{"rdma_server", "rdma_client", nil, "1 FPDUs sent", "2 received"}, // an RTR message too
		{"rdma_xserver", "rdma_xclient", nil, "0 FPDUs sent", "2 received"},
		{"rdma_xserver", "rdma_xclient", []string{"--rtr", "none"}, "0 FPDUs sent", "1 received"},
		{"ucmatose", "ucmatose", nil, "10 FPDUs sent", "11 received"},
		{"ucmatose", "ucmatose", []string{"--rtr", "none"}, "10 FPDUs sent", "10 received"},
		{"ucmatose", "ucmatose", []string{"--mpa", "1", "--size", "1000", "--count", "3", "--qps", "4"}, "12 FPDUs sent", "12 received"},
	} {
		t.Run(c.client+strings.Join(c.args, " "), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			args := append(append([]string{}, c.args...), "--settle", "1ms")
			addr, server := runExample(t, ctx, append([]string{c.server, "-s", "--listen", "127.0.0.1:0"}, args...)...)
			_, client := runExample(t, ctx, append([]string{c.client, "-c", addr}, args...)...)
			if out, code := client(); code != 0 || !strings.Contains(out, "done") {
				t.Errorf("client: exit %d, %s", code, out)
			}
			out, code := server()
			if code != 0 || !strings.Contains(out, c.sent) || !strings.Contains(out, c.received) {
				t.Errorf("server: exit %d, %q; want %s, %s", code, out, c.sent, c.received)
			}
		})
	}
}

func TestExampleArguments(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"", "one program"},
		{"rping -s", "one program"},
		{"rdma_client -s", "-c ADDR:PORT"},
		{"rdma_server -c x:1", "give -s"},
		{"ucmatose", "-s and -c"},
		{"ucmatose -s --count 0", "--count"},
		{"ucmatose -s --size 0", "--size"},
		{"ucmatose -c x:1 --qps 1000", "--qps"},
	} {
		var out, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"example"}, strings.Fields(c.args)...), &out, &stderr)
		if code != exitArguments || !strings.Contains(stderr.String(), c.says) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, %q", c.args, code, stderr.String())
		}
	}
}

// TestExampleMismatch: a counterpart with other sizes is told so rather than waited for.
func TestExampleMismatch(t *testing.T) {
	addr, server := runExample(t, t.Context(), "ucmatose", "-s", "--listen", "127.0.0.1:0", "--size", "50", "--settle", "1ms")
	_, client := runExample(t, t.Context(), "ucmatose", "-c", addr, "--settle", "1ms")
	if out, code := client(); code != exitIO || !strings.Contains(out, "50 bytes instead of 100") {
		t.Errorf("client: exit %d, %q", code, out)
	}
	if out, code := server(); code == 0 || !strings.Contains(out, "peer") {
		t.Errorf("server: exit %d, %q", code, out)
	}
}
