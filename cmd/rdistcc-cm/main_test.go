package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// runAsProgram makes the test binary behave as rdistcc-cm.
const runAsProgram = "RDISTCC_CM_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(runAsProgram) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// program is a running rdistcc-cm.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	dir string // RDISTCC_DIR and HOME
	log bytes.Buffer
}

// command prepares rdistcc-cm with an environment of its own.
func command(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, dir: dir, cmd: exec.Command(self, args...)}
	p.cmd.Env = []string{runAsProgram + "=1", "RDISTCC_DIR=" + filepath.Join(dir, "state"), "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	p.cmd.Stderr = &p.log
	p.cmd.Stdout = &p.log
	return p
}

// start runs rdistcc-cm until it has said that it serves.
func start(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	p := command(t, dir, append([]string{"--http", "127.0.0.1:0"}, args...)...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p.cmd.ExtraFiles = []*os.File{w}
	p.cmd.Env = append(p.cmd.Env, "RDISTCC_READY_FD=3")
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // mostly gone already
		_ = p.cmd.Wait()
	})
	if b, err := bufio.NewReader(r).ReadByte(); err != nil || b != 1 {
		p.cmd.Wait()
		t.Fatalf("no word that it serves: %v\n%s", err, &p.log)
	}
	return p
}

// wait returns the exit status.
func (p *program) wait() int {
	p.t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// dial connects as a wrapper does.
func (p *program) dial() *ipc.Conn {
	p.t.Helper()
	c, err := ipc.Dial(filepath.Join(p.dir, "state", ipc.SocketName))
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// status asks for the manager's state.
func (p *program) status() report.Status {
	p.t.Helper()
	c := p.dial()
	defer c.Close()
	if err := c.Send((&ipc.Control{Version: ipc.Version, Args: []string{"status"}}).Append(nil)); err != nil {
		p.t.Fatal(err)
	}
	kind, fields, err := c.Recv()
	var reply ipc.Reply
	if err != nil || kind != ipc.KindReply || reply.Parse(fields) != nil || reply.Code != 0 {
		p.t.Fatalf("status: frame %d, %v, %s", kind, err, reply.Data)
	}
	var s report.Status
	if err := json.Unmarshal(reply.Data, &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// local takes a turn for a command that runs here.
func (p *program) local() *ipc.Conn {
	p.t.Helper()
	c := p.dial()
	if err := c.Send((&ipc.Local{Version: ipc.Version, Reason: "link", Turn: ipc.TurnLocal}).Append(nil)); err != nil {
		p.t.Fatal(err)
	}
	if kind, _, err := c.Recv(); err != nil || kind != ipc.KindGo {
		p.t.Fatalf("Local answered by %d, %v", kind, err)
	}
	return c
}

func TestTermFinishesWhatRuns(t *testing.T) {
	p := start(t, t.TempDir())
	running := p.local()
	p.signal(syscall.SIGTERM)
	// The name goes first: new wrappers start another manager.
	for {
		c, err := ipc.Dial(filepath.Join(p.dir, "state", ipc.SocketName))
		if err != nil {
			break
		}
		c.Close()
	}
	next := start(t, p.dir)
	next.signal(syscall.SIGTERM)
	if code := next.wait(); code != 0 {
		t.Errorf("idle manager ended with %d\n%s", code, &next.log)
	}
	if err := running.Send((&ipc.Finish{Where: ipc.WhereLocal, Reason: "link"}).Append(nil)); err != nil {
		t.Errorf("the command under way was cut off: %v", err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("ended with %d\n%s", code, &p.log)
	}
	if !strings.Contains(p.log.String(), "reason=link") {
		t.Errorf("the command is not in the log:\n%s", &p.log)
	}
	running.Close()
}

func TestSecondTermStopsAtOnce(t *testing.T) {
	p := start(t, t.TempDir())
	running := p.local()
	defer running.Close()
	p.signal(syscall.SIGTERM)
	for { // until the first has been seen
		c, err := ipc.Dial(filepath.Join(p.dir, "state", ipc.SocketName))
		if err != nil {
			break
		}
		c.Close()
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("ended with %d\n%s", code, &p.log)
	}
	if _, _, err := running.Recv(); !errors.Is(err, ipc.ErrClosed) {
		t.Errorf("the command's connection: %v, want closed", err)
	}
}

// TestReplaced: a manager takes the place of another one, with its http address, and no client that connects
// meanwhile is refused.
func TestReplaced(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	p := start(t, t.TempDir(), "--http", addr)
	running := p.local()
	stop, calling := make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		calling.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.local().Close()
				}
			}
		})
	}
	next := start(t, p.dir, "--replace", "--http", addr)
	third := start(t, p.dir, "--replace=any", "--http", addr)
	close(stop)
	calling.Wait()
	if got := p.status().PID; got != third.cmd.Process.Pid {
		t.Errorf("process %d serves, want %d", got, third.cmd.Process.Pid)
	}
	if resp, err := http.Get("http://" + addr + "/healthz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("the last one's page: %v", err)
	} else {
		resp.Body.Close()
	}
	if code := next.wait(); code != 0 {
		t.Errorf("the second one ended with %d\n%s", code, &next.log)
	}
	if err := running.Send((&ipc.Finish{Where: ipc.WhereLocal, Reason: "link"}).Append(nil)); err != nil {
		t.Errorf("the command under way was cut off: %v", err)
	}
	running.Close()
	if code := p.wait(); code != 0 || !strings.Contains(p.log.String(), "reason=link") {
		t.Errorf("the first one ended with %d\n%s", code, &p.log)
	}

	same := command(t, p.dir, "--replace=older", "--http", "127.0.0.1:0")
	if err := same.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if code := same.wait(); code != exitInUse || !strings.Contains(same.log.String(), "speaks version") {
		t.Errorf("one that is not newer ended with %d\n%s", code, &same.log)
	}
	third.signal(syscall.SIGTERM)
	if code := third.wait(); code != 0 {
		t.Errorf("the third one ended with %d\n%s", code, &third.log)
	}
	if _, err := os.Lstat(filepath.Join(p.dir, "state", ipc.SocketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// TestFiftyStarts: of fifty managers that start at once, half of them to replace the running one, exactly one
// serves in the end, and the others are gone.
func TestFiftyStarts(t *testing.T) {
	dir := t.TempDir()
	var all []*program
	for i := range 50 {
		args := []string{"--http", ""}
		if i%2 == 1 {
			args = append(args, "--replace")
		}
		p := command(t, dir, args...)
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
		all = append(all, p)
	}
	ended := make(chan *program, len(all))
	for _, p := range all {
		go func() {
			_ = p.cmd.Wait() // its status is looked at below
			ended <- p
		}()
	}
	for range len(all) - 1 {
		p := <-ended
		if code := p.cmd.ProcessState.ExitCode(); code != 0 && code != exitInUse {
			t.Errorf("one ended with %d\n%s", code, &p.log)
		}
	}
	serving := (&program{t: t, dir: dir}).status().PID
	for _, p := range all {
		if p.cmd.ProcessState == nil {
			if p.cmd.Process.Pid != serving {
				t.Errorf("process %d serves, %d is left", serving, p.cmd.Process.Pid)
			}
			p.signal(syscall.SIGTERM)
		}
	}
	<-ended
}

func TestAfterAKill(t *testing.T) {
	p := start(t, t.TempDir())
	p.signal(syscall.SIGKILL)
	p.wait()
	next := start(t, p.dir)
	if got := next.status().PID; got != next.cmd.Process.Pid {
		t.Errorf("process %d serves, want %d", got, next.cmd.Process.Pid)
	}
}

func TestHostFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	file := filepath.Join(dir, "state", "hosts")
	if s := p.status(); s.ListFrom == file || s.ListError != "" {
		t.Errorf("host list from %q, error %q before there is one", s.ListFrom, s.ListError)
	}
	if err := os.WriteFile(file, []byte("127.0.0.1:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	for p.status().ListFrom != file { // the signal is on its way
	}
	if err := os.WriteFile(file, []byte("user@host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	for p.status().ListError == "" {
	}
	if s := p.status(); !strings.Contains(s.ListError, "ssh") || !strings.Contains(s.ListError, file) {
		t.Errorf("error %q, want one that names the file and ssh", s.ListError)
	}
}

func TestBadStarts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	serving := start(t, t.TempDir())
	bad := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(bad, []byte("http:\n  manger: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dir string
		args      []string
		code      int
		says      string
	}{
		{"unknown flag", "", []string{"--sokcet", "x"}, 101, "--sokcet"},
		{"a word too many", "", []string{"x"}, 101, "x"},
		{"unknown key", "", []string{"--config", bad}, 101, "config.yaml:2"},
		{"missing file", "", []string{"--config", bad + "x"}, 101, "config.yamlx"},
		{"bad host list", "", []string{"--hosts", "a@b"}, 101, "ssh"},
		{"bad duration", "", []string{"--idle-exit", "soon"}, 101, "--idle-exit"},
		{"a capture that cannot be", "", []string{"--capture", "/does/not/exist/c"}, 100, "/does/not/exist/c"},
		{"port in use", "", []string{"--http", taken.Addr().String()}, 102, taken.Addr().String()},
		{"socket in use", serving.dir, nil, 102, "another connection manager"},
		{"directory open to all", "", []string{"--socket", filepath.Join(open, "cm.sock")}, 100, "other users can write"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.dir == "" {
				tt.dir = t.TempDir()
			}
			p := command(t, tt.dir, append([]string{"--http", "127.0.0.1:0"}, tt.args...)...)
			if err := p.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(); code != tt.code {
				t.Errorf("ended with %d, want %d\n%s", code, tt.code, &p.log)
			}
			lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "rdistcc-cm: ") || !strings.Contains(last, tt.says) {
				t.Errorf("said %q, want a line with %q", last, tt.says)
			}
		})
	}
}

// TestTakenDefaultPort: a manager that was not configured takes another port for its status page when the usual
// one is in use.
func TestTakenDefaultPort(t *testing.T) {
	for range 1000 { // another test's manager may have it for a moment, a developer's own for good
		l, err := net.Listen("tcp", "127.0.0.1:7634")
		if err == nil {
			defer l.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	p := command(t, t.TempDir())
	p.cmd.Stderr = nil
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer p.wait()
	defer p.cmd.Process.Kill()
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		_, addr, ok := strings.Cut(lines.Text(), `msg="http server listens" addr=`)
		if !ok {
			continue
		}
		if strings.HasSuffix(addr, ":7634") {
			t.Errorf("listens on %s, which is in use", addr)
		}
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return
	}
	t.Error("no status page was announced")
}
