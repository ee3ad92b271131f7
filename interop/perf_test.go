package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// perfLimit bounds one run of a program: the guest is emulated.
const perfLimit = 90 * time.Second

// perfSettle covers siw's lost wake-up with room to spare for a loaded machine.
const perfSettle = "200ms"

var perfBuild struct {
	sync.Once
	path string
	err  error
}

// perf returns a command of rdistcc-perf.
func perf(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	perfBuild.Do(func() {
		// Beside the guest's files: it lives as long as they do.
		perfBuild.path = filepath.Join(shared.guest.dir, "rdistcc-perf")
		out, err := exec.Command("go", "build", "-o", perfBuild.path, "../cmd/rdistcc-perf").CombinedOutput()
		if err != nil {
			perfBuild.err = lastLine(out, err)
		}
	})
	if perfBuild.err != nil {
		t.Fatal(perfBuild.err)
	}
	return exec.CommandContext(t.Context(), perfBuild.path, args...)
}

// perfServer is a server of ours that is to end by itself.
type perfServer struct {
	cmd  *exec.Cmd
	port string
	said chan string // what it says behind its address
}

// startPerf starts a server of ours and waits until it listens.
func startPerf(t *testing.T, args ...string) *perfServer {
	t.Helper()
	s := &perfServer{cmd: perf(t, append(args, "-s", "--listen", "127.0.0.1:0", "--settle", perfSettle)...), said: make(chan string, 1)}
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(pipe)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	_, addr, _ := bytes.Cut([]byte(line[:len(line)-1]), []byte("listening on "))
	if _, s.port, err = net.SplitHostPort(string(addr)); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	go func() {
		var rest bytes.Buffer
		_, _ = r.WriteTo(&rest)
		s.said <- rest.String()
	}()
	return s
}

// wait waits for the server's end, which must be a good one.
func (s *perfServer) wait(t *testing.T) {
	t.Helper()
	select {
	case said := <-s.said:
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("our server: %v\n%s", err, said)
		}
	case <-time.After(perfLimit):
		_ = s.cmd.Process.Kill()
		t.Errorf("our server does not end\n%s", <-s.said)
		_ = s.cmd.Wait()
	}
}

// runPerf runs a client of ours against a port of the guest.
func runPerf(t *testing.T, addr string, args ...string) []byte {
	t.Helper()
	cmd := perf(t, append(args, "-c", addr, "--settle", perfSettle)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	limit := time.AfterFunc(perfLimit, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	if err := cmd.Run(); err != nil {
		t.Fatalf("our client: %v\n%s", err, tail(stderr.String(), 5))
	}
	return stdout.Bytes()
}

// inGuest runs a program of the guest against ours.
func (g *Guest) inGuest(t *testing.T, format string, args ...any) string {
	t.Helper()
	out, status := g.Exec(t, fmt.Sprintf(format, args...), perfLimit)
	if status != 0 {
		t.Errorf("in the guest: %s: exit status %d\n%s", fmt.Sprintf(format, args...), status, tail(out, 15))
	}
	return out
}
