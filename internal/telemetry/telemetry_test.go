package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func quiet(t *testing.T) *Log {
	t.Helper()
	l, err := OpenLog(filepath.Join(t.TempDir(), "log"), "debug")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func serve(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet(t).Logger
	}
	if o.Registry == nil {
		o.Registry = NewRegistry()
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.Page == nil {
		o.Page = func() Page { return Page{} }
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	s, err := Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + s.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestServerAnswers(t *testing.T) {
	reg := NewRegistry()
	reg.MustRegister(NewIWARPCollector(func() iwarp.DeviceStats {
		return iwarp.DeviceStats{
			FPDUsSent: 11, FPDUsReceived: 12, BytesSent: 13, BytesReceived: 14, CRCErrors: 15, QPs: 16, MRs: 17, RegisteredBytes: 18, HalfOpen: 19,
			Refused: [iwarp.NumStartupRefusals]uint64{iwarp.RefusedLate: 7},
			Terminates: map[iwarp.TerminateKey]uint64{
				{Sent: true, Layer: 1, Type: 1, Code: 4}: 3,
				{Layer: 2, Type: 0, Code: 2}:             1,
				{Layer: 0, Type: 2, Code: 0xff}:          1,
				{Layer: 9, Type: 9, Code: 9}:             20,
				{Layer: 7, Type: 1, Code: 0}:             22, // one series with the one before
				{Layer: 0, Type: 1, Code: 0x77}:          1,
			},
		}
	}))
	var notReady error
	note := ""
	s := serve(t, ServerOptions{Registry: reg, Ready: func() error { return notReady }, Note: func() string { return note }, Page: func() Page {
		return Page{
			Program: "rdistccd", Host: "build7", Version: "v1", State: "ready", Notes: []string{"no hosts configured"},
			Facts:  []Fact{{Name: "jobs", Value: "3 of 8"}},
			Tables: []Table{{Title: "clients", Columns: []string{"host", "jobs"}, Rows: [][]Cell{{{Text: "<b>x</b>", Tone: ToneBad}, {Text: "5", Share: 0.5}}}}, {Title: "hosts", Empty: "no host yet"}},
		}
	}})

	code, body := get(t, s, "/metrics")
	if code != 200 {
		t.Fatalf("/metrics: %d", code)
	}
	for _, line := range []string{
		`iwarp_fpdus_total{direction="sent"} 11`, `iwarp_fpdus_total{direction="received"} 12`,
		`iwarp_bytes_total{direction="sent"} 13`, `iwarp_bytes_total{direction="received"} 14`,
		`iwarp_crc_errors_total{direction="received"} 15`,
		`iwarp_qps 16`, `iwarp_memory_regions 17`, `iwarp_registered_bytes 18`, `iwarp_half_open 19`,
		`iwarp_terminates_total{code="0x04",direction="sent",layer="ddp",type="tagged"} 3`,
		`iwarp_terminates_total{code="0x02",direction="received",layer="llp",type="mpa"} 1`,
		`iwarp_terminates_total{code="0xff",direction="received",layer="rdmap",type="operation"} 1`,
		`iwarp_terminates_total{code="other",direction="received",layer="rdmap",type="protection"} 1`,
		`iwarp_terminates_total{code="other",direction="received",layer="other",type="other"} 42`,
		`iwarp_terminates_total{code="0x00",direction="sent",layer="rdmap",type="catastrophic"} 0`, // from the start
		`iwarp_terminates_total{code="0x06",direction="received",layer="ddp",type="untagged"} 0`,
		`iwarp_startups_refused_total{cause="late"} 7`, `iwarp_startups_refused_total{cause="malformed"} 0`,
		"go_goroutines ", "process_open_fds ",
	} {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}

	_, body = get(t, s, "/")
	for _, want := range []string{"rdistccd", "build7", "no hosts configured", "3 of 8", "&lt;b&gt;x&lt;/b&gt;", `width="50%"`, "no host yet", `class="state good">ready`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "http://") || strings.Contains(body, "https://") {
		t.Error("the page names something outside")
	}

	if code, body = get(t, s, "/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	note = "compilers are being identified"
	if code, body = get(t, s, "/readyz"); code != 200 || body != "ready; compilers are being identified\n" {
		t.Errorf("/readyz with a note: %d %q", code, body)
	}
	notReady = errors.New("draining")
	if code, body = get(t, s, "/readyz"); code != 503 || body != "draining\n" {
		t.Errorf("/readyz while draining: %d %q, want 503", code, body)
	}
	if _, body = get(t, s, "/"); !strings.Contains(body, `class="state bad">draining`) {
		t.Error("the page does not say draining")
	}
	if code, body = get(t, s, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	for _, path := range []string{"/debug/pprof/", "/nothing"} {
		if code, _ = get(t, s, path); code != 404 {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}
}

func TestPprofWhenAsked(t *testing.T) {
	s := serve(t, ServerOptions{Pprof: true})
	if code, _ := get(t, s, "/debug/pprof/cmdline"); code != 200 {
		t.Errorf("/debug/pprof/cmdline: %d", code)
	}
}

func TestAddressInUse(t *testing.T) {
	first := serve(t, ServerOptions{})
	taken := first.Addr().String()
	o := ServerOptions{Addr: taken, Registry: NewRegistry(), Log: quiet(t).Logger}
	if _, err := Serve(o); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), taken) {
		t.Errorf("Serve on a taken port gave %v, want EADDRINUSE that names it", err)
	}
	second := serve(t, ServerOptions{Addr: taken, AnyPort: true})
	if second.Addr().String() == taken {
		t.Error("both servers have the same port")
	}
	if code, _ := get(t, second, "/healthz"); code != 200 {
		t.Errorf("/healthz on the other port: %d", code)
	}
}

func TestCloseEndsServing(t *testing.T) {
	s := serve(t, ServerOptions{})
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		t.Error("still listens after Close")
	}
}

func TestLogLevelsAndReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := OpenLog(path, "info")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Debug("hidden")
	l.Info("one", "host", "build7")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Info("two") // still into the file that was moved
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if err := l.SetLevel("debug"); err != nil {
		t.Fatal(err)
	}
	l.Debug("three")
	old, err := os.ReadFile(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if s := string(old); !strings.Contains(s, "msg=one host=build7") || !strings.Contains(s, "msg=two") || strings.Contains(s, "hidden") {
		t.Errorf("old file is %q", s)
	}
	if s, err := os.ReadFile(path); err != nil || !strings.Contains(string(s), "level=DEBUG msg=three") || strings.Contains(string(s), "two") {
		t.Errorf("new file is %q, %v", s, err)
	}
	if _, err := OpenLog("", "loud"); err == nil {
		t.Error("level loud gave no error")
	}
	if _, err := OpenLog(filepath.Join(path, "x"), "info"); err == nil {
		t.Error("a file below a file gave no error")
	}
}

func TestNotify(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), fmt.Sprintf("@rdistcc-test-%d", os.Getpid())} {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		n := NewNotifier(name)
		for _, step := range []struct {
			send func() error
			want string
		}{
			{func() error { return n.Ready("2 hosts\nup") }, "READY=1\nSTATUS=2 hosts up"},
			{n.Reloading, "RELOADING=1\nMONOTONIC_USEC="},
			{func() error { return n.Stopping("draining") }, "STOPPING=1\nSTATUS=draining"},
		} {
			if err := step.send(); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 256)
			k, err := c.Read(buf)
			if err != nil || !strings.HasPrefix(string(buf[:k]), step.want) {
				t.Errorf("%s: got %q, %v, want %q", name, buf[:k], err, step.want)
			}
		}
	}
	if err := NewNotifier("").Ready(""); err != nil {
		t.Errorf("without a socket: %v", err)
	}
	if err := NewNotifier("/nonexistent/notify").Ready(""); err == nil {
		t.Error("a socket that is not there gave no error")
	}
}

// The test's own binary plays the program that systemd starts with a listening
// socket as descriptor 3.
func TestSocketsFromSystemd(t *testing.T) {
	if os.Getenv("TELEMETRY_TEST_CHILD") != "" {
		// systemd sets LISTEN_PID between fork and exec; a parent in Go cannot.
		os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
		socks, err := Sockets(os.Getenv, os.Getpid())
		if err != nil || len(socks) != 1 || socks[0].Name != "rdistcc-cm.socket" {
			t.Fatalf("Sockets = %+v, %v", socks, err)
		}
		l, err := net.FileListener(socks[0].File)
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "hello")
		c.Close()
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSocketsFromSystemd$")
	cmd.Env = append(os.Environ(), "TELEMETRY_TEST_CHILD=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=rdistcc-cm.socket")
	cmd.ExtraFiles = []*os.File{f}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Only the child accepts; when it failed the read must end too.
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait(); l.Close(); f.Close() }()
	got, _ := io.ReadAll(c)
	if err := <-waited; err != nil || string(got) != "hello" {
		t.Errorf("read %q, child: %v\n%s", got, err, out.String())
	}
}

func TestSocketsNotForUs(t *testing.T) {
	env := map[string]string{"LISTEN_PID": "1", "LISTEN_FDS": "1"}
	getenv := func(k string) string { return env[k] }
	if s, err := Sockets(getenv, 2); err != nil || s != nil {
		t.Errorf("another process's sockets: %v, %v", s, err)
	}
	if _, err := Sockets(getenv, 0); err != nil {
		t.Errorf("LISTEN_PID of another: %v", err)
	}
	env["LISTEN_FDS"] = "100000"
	if _, err := Sockets(getenv, 1); err == nil {
		t.Error("100000 sockets gave no error")
	}
	if s, err := Sockets(func(string) string { return "" }, 1); err != nil || s != nil {
		t.Errorf("no variables: %v, %v", s, err)
	}
}
