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
)

// TestIdle: a connection that has nothing to do has two goroutines at each end,
// and no buffers worth speaking of.
func TestIdle(t *testing.T) {
	const conns = 200
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"idle", "-s", "--once", "--listen", "127.0.0.1:0"}, io.Discard, w) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	_, addr, _ := strings.Cut(strings.TrimSpace(line), "listening on ")
	var out, stderr bytes.Buffer
	if c := run(ctx, []string{"idle", "-c", addr, "--conns", "200", "--depth", "4", "--json"}, &out, &stderr); c != 0 {
		t.Fatalf("exit %d: %s", c, stderr.String())
	}
	if c := <-code; c != 0 {
		t.Errorf("server: exit %d", c)
	}
	_ = w.Close()
	var got idleResult
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	// Both ends are in this process: each counts the other's too.
	if got.Conns != conns || got.Depth != 4 || got.Goroutines < 2*conns || got.Goroutines > 5*conns {
		t.Errorf("got %+v", got)
	}
	if got.ClientHeap > 2*(16<<10) || got.ClientHeap < 2<<10 {
		t.Errorf("%d bytes of heap for both ends of a connection, want a few KiB: is a buffer kept?", got.ClientHeap)
	}
}

func TestIdleArguments(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"", "-s and -c"},
		{"-c x:1 --conns 0", "--conns 0: 1 to 65536"},
		{"-c x:1 --conns 100000", "--conns"},
		{"-c x:1 --depth 0", "--depth"},
		{"-c x:1 extra", "extra"},
	} {
		var out, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"idle"}, strings.Fields(c.args)...), &out, &stderr)
		if code != exitArguments || !strings.Contains(stderr.String(), c.says) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: exit %d, %q", c.args, code, stderr.String())
		}
	}
	// A client of another kind is turned away.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"idle", "-s", "--listen", "127.0.0.1:0"}, io.Discard, w) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	_, addr, _ := strings.Cut(strings.TrimSpace(line), "listening on ")
	if _, stderr, code := client(t, "write_bw", "-c", addr, "--iters", "1"); code != exitConnect || !strings.Contains(stderr, "this server runs idle") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("server: exit %d", code)
	}
	_ = w.Close()
}
