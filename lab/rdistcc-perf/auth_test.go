package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/identity"
)

// keyFile writes a key.
func keyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "psk")
	if err := os.WriteFile(path, []byte(strings.Repeat(text, 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKey: two sides with one key can measure, and others are told why not.
func TestKey(t *testing.T) {
	for _, name := range []string{"write_bw", "read_bw", "send_lat"} {
		ctx := context.WithValue(t.Context(), authKey{}, identity.Settings{PSKFile: keyFile(t, "k")})
		addr, _ := startServerIn(t, ctx, &options{t: testNamed(t, name), server: true, listen: "127.0.0.1:0"}, io.Discard)
		out, stderr, code := client(t, name, "-c", addr, "--iters", "50", "--psk-file", keyFile(t, "k"))
		if code != 0 {
			t.Errorf("%s with the key: exit %d, %+v%s", name, code, out, stderr)
		}
		for file, want := range map[string]string{keyFile(t, "j"): "wrong pre-shared key", "": "wants a key"} {
			if _, stderr, code := client(t, name, "-c", addr, "--iters", "50", "--psk-file", file); code != exitConnect || !strings.Contains(stderr, want) {
				t.Errorf("%s with the key file %q: exit %d, %q, want %q", name, file, code, stderr, want)
			}
		}
		open, _ := startServer(t, name, false)
		if _, stderr, code := client(t, name, "-c", open, "--iters", "50", "--psk-file", keyFile(t, "k")); code != exitConnect || !strings.Contains(stderr, "has no key") {
			t.Errorf("%s with a key where there is none: exit %d, %q", name, code, stderr)
		}
	}
	_, stderr, code := client(t, "rping", "-c", "127.0.0.1:1", "--psk-file", keyFile(t, "k"))
	if code != exitArguments || !strings.Contains(stderr, "no message that could prove a key") {
		t.Errorf("rping with a key: exit %d, %q", code, stderr)
	}
}
