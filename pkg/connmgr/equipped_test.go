package connmgr

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// takesAll answers offers of toolchains at the other end of a connection: nothing is missing.
func takesAll(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		in := bufio.NewReader(far)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			const answer = `{"id":"00","missing":[]}` // also of what there is to say about the host
			if _, err := fmt.Fprintf(far, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer); err != nil {
				return
			}
		}
	}()
	return near, nil
}

// TestHostNeverListsACompiler: a command that may not be compiled here waits no longer than fallback.patience for a host which takes its
// compiler again and again, and never offers to run it. What it is told says so.
func TestHostNeverListsACompiler(t *testing.T) {
	tool, err := filepath.EvalSymlinks("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	for name, forbid := range forbidding {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const addr = "10.0.0.1:7632"
				f := leaseOf(addr)
				s := newSimulated(t, func(o *Options) {
					forbid(o, f)
					o.SendToolchains, o.Log = takesAll, slog.New(slog.DiscardHandler)
					o.Identify = func(context.Context, string, toolchain.Env) (toolchain.Toolchain, error) {
						return toolchain.Toolchain{ID: daemontest.Toolchain, Exec: tool, Path: tool, Family: "gcc", Version: "12.2.0", Target: "x86_64-linux-gnu", Major: 12, Files: []string{tool}}, nil
					}
				})
				daemontest.Start(t, s.far, addr, func(d *daemontest.Daemon) { d.IDs, d.Tree = nil, true })
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				_, no := s.run(ctx, f, "int x;")
				const want = "; no more of it has arrived there for 1m0s (fallback.patience)"
				if no == nil || no.Reason != reason.Toolchain || no.Code != reason.ExitNoCompiler || !strings.HasSuffix(no.Detail, want) || strings.Contains(no.Detail, "\n") {
					t.Errorf("answer %+v, want one line that ends with %q", no, want)
				}
				if d := time.Since(began); d < time.Minute || d > time.Minute+5*time.Second {
					t.Errorf("it failed after %v, want a minute", d)
				}
			})
		})
	}
}
