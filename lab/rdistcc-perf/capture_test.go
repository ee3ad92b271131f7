package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

// TestCapture: a client's capture decodes in Wireshark, and holds what its messages carry only if asked to.
func TestCapture(t *testing.T) {
	addr, _ := startServer(t, "write_bw", false)
	content := make([]byte, 64)
	fill(content)
	for _, words := range [][]string{nil, {"--capture-payload"}} {
		path := filepath.Join(t.TempDir(), "c.pcapng")
		if _, stderr, code := client(t, append([]string{"write_bw", "-c", addr, "--iters", "5", "--size", "4KiB", "--capture", path}, words...)...); code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Contains(string(b), string(content)), words != nil; got != want {
			t.Errorf("%v: the capture holds what messages carry: %t", words, got)
		}
		// Five, and the first message of the connection.
		r := iwarptest.Tshark(t, path)
		if len(r.Malformed) > 0 || r.BadCRCs > 0 || r.Opcodes["Write"] != 6 || r.Opcodes["Send with SE"] == 0 {
			t.Errorf("%v: %+v", words, r)
		}
	}
}

// TestCaptureRefused: what --capture cannot do gets one line.
func TestCaptureRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.pcapng")
	for want, args := range map[string][]string{
		"tcp_bw has no iWARP to record":  {"tcp_bw", "-c", "127.0.0.1:1", "--capture", path},
		"experiments record nothing":     {"exp", "wait", "--capture", path},
		"belong to --capture FILE":       {"write_bw", "-c", "127.0.0.1:1", "--capture-payload"},
		"--capture-limit 4KiB: at least": {"write_bw", "-c", "127.0.0.1:1", "--capture", path, "--capture-limit", "4KiB"},
		"/nowhere/c: no such file":       {"write_bw", "-c", "127.0.0.1:1", "--capture", "/nowhere/c"},
	} {
		_, stderr, code := client(t, args...)
		if code != exitArguments || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit %d, %q, want %q", args, code, stderr, want)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a refused capture left a file")
	}
}
