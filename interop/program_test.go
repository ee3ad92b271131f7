package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// program returns the path of one of our programs.
func program(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(farmtest.Programs(t), name)
}

// run runs one of our programs to its end. limit bounds it: one that takes longer
// has stalled.
func run(t *testing.T, limit time.Duration, name string, args ...string) (stdout string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out, log bytes.Buffer
	cmd := exec.CommandContext(ctx, program(t, name), args...)
	cmd.Stdout, cmd.Stderr = &out, &log
	if err = cmd.Run(); ctx.Err() != nil {
		err = fmt.Errorf("%s has stalled", name)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(log.String()))
	}
	return out.String(), err
}

// server is one of our programs that listens.
type server struct {
	port string
	cmd  *exec.Cmd
	mu   sync.Mutex
	said bytes.Buffer
	read chan struct{} // closed when it has said everything
}

// serve starts one of our programs with --listen and waits until it says where it
// listens. It ends with the test.
func serve(t *testing.T, name string, args ...string) *server {
	t.Helper()
	s := &server{cmd: exec.Command(program(t, name), append(args, "--listen", "127.0.0.1:0")...), read: make(chan struct{})}
	r, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	line, err := lines.ReadString('\n')
	_, addr, ok := strings.Cut(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("%s said %q, %v", name, line, err)
	}
	s.port = addr[strings.LastIndex(addr, ":")+1:]
	go func() {
		defer close(s.read)
		_, _ = io.Copy(s, lines)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(os.Interrupt) // or it has ended
		<-s.read
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, tail(s.log(), 20))
		}
	})
	return s
}

func (s *server) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.Write(b)
}

// until waits until the server has said something, or for so long.
func (s *server) until(text string, limit time.Duration) {
	for end := time.Now().Add(limit); !strings.Contains(s.log(), text) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}

// log is what the server has said since it listens.
func (s *server) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}
