package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
	"github.com/rdistcc/rdistcc/pkg/worker/users"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// patience bounds every wait; it is reached only when something is wrong.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case workdir.Arg0, privatetree.Arg0, probe.Arg0, "rdistccd":
		main()
	}
	os.Exit(m.Run())
}

// command is this program as rdistccd, without what the environment may hold.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Args[0] = "rdistccd"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), "RDISTCC_CONFIG=" + configFile(t, "")}
	return cmd
}

// configFile writes a file in which the daemon looks for compilers where there is
// nothing, so that it starts at once.
func configFile(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("toolchains: {dirs: [/does/not/exist]}\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// running is a daemon and its log.
type running struct {
	t   *testing.T
	cmd *exec.Cmd
	tmp string

	mu   sync.Mutex
	cond *sync.Cond
	log  []string
	end  bool
}

func start(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{t: t, cmd: cmd}
	r.cond = sync.NewCond(&r.mu)
	for _, e := range cmd.Env {
		if dir, ok := strings.CutPrefix(e, "TMPDIR="); ok {
			r.tmp = dir
		}
	}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		s := bufio.NewScanner(out)
		for s.Scan() {
			r.mu.Lock()
			r.log = append(r.log, s.Text())
			r.cond.Broadcast()
			r.mu.Unlock()
		}
		r.mu.Lock()
		r.end = true
		r.cond.Broadcast()
		r.mu.Unlock()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log:\n%s", strings.Join(r.log, "\n"))
		}
	})
	return r
}

// find waits for a line and returns what its first group matched.
func (r *running) find(re string) string {
	r.t.Helper()
	x := regexp.MustCompile(re)
	timer := time.AfterFunc(patience, func() {
		r.mu.Lock()
		r.end = true
		r.cond.Broadcast()
		r.mu.Unlock()
	})
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for from := 0; ; r.cond.Wait() {
		for ; from < len(r.log); from++ {
			if m := x.FindStringSubmatch(r.log[from]); m != nil {
				return m[len(m)-1]
			}
		}
		if r.end {
			r.t.Fatalf("no line %q in the log", re)
		}
	}
}

// stops waits for the end and wants a status and nothing left in TMPDIR.
func (r *running) stops(status int) {
	r.t.Helper()
	r.mu.Lock()
	for !r.end {
		r.cond.Wait()
	}
	r.mu.Unlock()
	_ = r.cmd.Wait()
	if got := r.cmd.ProcessState.ExitCode(); got != status {
		r.t.Errorf("exit status %d, want %d", got, status)
	}
	if left, err := os.ReadDir(r.tmp); err != nil || len(left) > 0 {
		r.t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

func TestExitStatuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	in := taken.Addr().String()
	bad := configFile(t, "daemon:\n  jobz: 3\n")
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("5a", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		status int
		line   string // the one line on stderr
		args   []string
	}{
		{"a word too many", 101, `unknown command "extra"`, []string{"extra"}},
		{"an unknown flag", 101, "unknown flag: --psk-fil", []string{"--psk-fil", "x"}},
		{"a number that is none", 101, `--jobs: "many" is not a whole number`, []string{"--jobs", "many"}},
		{"an announcement that is none", 101, `--announce: "maybe" is not true or false`, []string{"--announce=maybe"}},
		{"a network that is none", 101, "--allow", []string{"--allow", "10.0.0.0/99"}},
		{"an unknown key", 101, bad + ":3:", []string{"--config", bad}},
		{"a missing file", 101, "/does/not/exist: no such file", []string{"--config", "/does/not/exist"}},
		{"a shared key that is not there", 101, "/does/not/exist", []string{"--listen", "127.0.0.1:0", "--psk-file", "/does/not/exist"}},
		{"half of TLS", 101, "auth.tls.key: not set: TLS takes all three", []string{"--tls-cert", "/x", "--tls-ca", "/x"}},
		{"two methods", 101, "choose one of the two", []string{"--psk-file", "/x", "--tls-cert", "/x", "--tls-key", "/x", "--tls-ca", "/x"}},
		{"certificates that are not there", 101, "certificate /x: no such file", []string{"--tls-cert", "/x", "--tls-key", "/x", "--tls-ca", "/x"}},
		{"a way to wait that is none", 101, `"spin" is none of loan, event`, []string{"--wait", "spin"}},
		{"a provider that is none", 101, `"hardware" is none of soft, ibverbs`, []string{"--provider", "hardware"}},
		{"an address of another machine", 100, "listen on 192.0.2.1:7632: cannot assign requested address; this machine has other addresses", []string{"--listen", "192.0.2.1:7632", "--psk-file", key}},
		{"port in use", 102, "listen on " + in + ": address already in use; ", []string{"--listen", in}},
		{"metrics port in use", 102, "choose another port with --http", []string{"--listen", "127.0.0.1:0", "--http", in, "--log-level", "error"}},
		{"a user who does not exist", 101, "no-such-user", []string{"--listen", "127.0.0.1:0", "--user", "no-such-user"}},
		{"a log that cannot be", 100, "/does/not/exist/log", []string{"--listen", "127.0.0.1:0", "--log-file", "/does/not/exist/log"}},
		{"a capture that cannot be", 100, "/does/not/exist/c", []string{"--listen", "127.0.0.1:0", "--capture", "/does/not/exist/c", "--log-level", "error"}},
		{"a capture of what a device sends", 101, "daemon.capture: connections of provider ibverbs cannot be captured", []string{"--provider", "ibverbs", "--capture", "/c"}},
		{"a work directory that is not there", 100, "/does/not/exist", []string{"--listen", "127.0.0.1:0", "--http", "", "--log-level", "error",
			"--config", configFile(t, "daemon: {work-dir: /does/not/exist}\n")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, c.args...)
			out, err := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("exit status %d (%v), want %d", got, err, c.status)
			}
			text := string(out)
			if !strings.HasPrefix(text, "rdistccd: ") || !strings.Contains(text, c.line) || strings.Count(text, "192.0.2.1") > 1 || strings.Count(text, "\n") != 1 {
				t.Errorf("output %q, want one line with %q", text, c.line)
			}
		})
	}
}

// TestExposedIsRefused: beyond loopback no peer is served that has not proven its identity, whatever the network: one
// line says so, and two more are commands that change it.
func TestExposedIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"--listen", "0.0.0.0:0"}, {"--listen", ":0"}, {"--listen", "[::]:0"}, {"--listen", "0.0.0.0:0", "--allow", "10.0.0.0/8"},
		{"--listen", "127.0.0.1:0", "--listen", "example.com:7632"}, {"--listen", "192.0.2.1:0", "--allow", "127.0.0.0/8"},
	} {
		cmd := command(t, args...)
		out, err := cmd.CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if got := cmd.ProcessState.ExitCode(); got != 101 || len(lines) != 3 {
			t.Errorf("%v: exit status %d (%v), want 101 and three lines:\n%s", args, got, err, out)
			continue
		}
		for i, want := range []string{"anyone who can reach it could run compilers here", "  rdistcc certs /etc/rdistcc && rdistccd --listen ", "openssl rand -hex 32 >/etc/rdistcc/key) && rdistccd --listen "} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%v: line %d is %q, want %q", args, i+1, lines[i], want)
			}
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, flag := range []string{"--help", "--version"} {
		out, err := command(t, flag).Output()
		if err != nil || !strings.Contains(string(out), "rdistccd") {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
		if strings.Contains(string(out), `[="`) {
			t.Errorf("%s shows a flag as no person would write it:\n%s", flag, out)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestServesAndDrains(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	r := start(t, command(t, "--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--jobs", "3", "--pid-file", pid))
	page := "http://" + r.find(`http.* addr=(\S+)`)
	r.find(`msg=listening addr=127\.0\.0\.1:\d+ jobs=3`)
	b, err := os.ReadFile(pid)
	if err != nil || string(b) != strconv.Itoa(r.cmd.Process.Pid)+"\n" {
		t.Errorf("pid file holds %q, %v", b, err)
	}
	_, metrics := get(t, page+"/metrics")
	for _, name := range []string{
		"rdistccd_jobs_running 0", "rdistccd_jobs_queued 0", "rdistccd_credits 0", "rdistccd_clients 0", `rdistccd_refusals_total{cause="policy"} 0`,
		"rdistccd_compile_seconds_count 0", "rdistccd_compile_cpu_seconds_count 0", "rdistccd_compile_memory_bytes_count 0", "iwarp_qps 0",
	} {
		if !strings.Contains(metrics, "\n"+name+"\n") {
			t.Errorf("metrics lack %s", name)
		}
	}
	if code, text := get(t, page+"/"); code != 200 || !strings.Contains(text, "no compiler was found") {
		t.Errorf("status page: %d\n%s", code, text)
	}
	// Alive, but of no use without a compiler.
	if code, _ := get(t, page+"/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
	if code, text := get(t, page+"/readyz"); code != 503 || !strings.Contains(text, "no compiler") {
		t.Errorf("/readyz: %d %s", code, text)
	}
	http.DefaultClient.CloseIdleConnections()
	r.signal(syscall.SIGTERM)
	r.stops(0)
	if _, err := os.Stat(pid); err == nil {
		t.Error("the pid file is still there")
	}
}

// TestPIDFileIsNoFile: what is no regular file, such as a pipe, a device or a link, is written to and not removed at the end.
func TestPIDFileIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo, link, to := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), filepath.Join(dir, "to")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("to", link)); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0) // does not wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, pid := range []string{fifo, link} {
		r := start(t, command(t, "--listen", "127.0.0.1:0", "--pid-file", pid))
		r.find(`msg=listening addr=127\.0\.0\.1:\d+`)
		var b [32]byte
		want := strconv.Itoa(r.cmd.Process.Pid) + "\n"
		if pid == link {
			if got, err := os.ReadFile(to); err != nil || string(got) != want {
				t.Errorf("%q, %v", got, err)
			}
		} else if n, err := reader.Read(b[:]); err != nil || string(b[:n]) != want {
			t.Errorf("%q, %v", b[:n], err)
		}
		r.signal(syscall.SIGTERM)
		r.stops(0)
		if _, err := os.Lstat(pid); err != nil {
			t.Error(err)
		}
	}
}

// TestPagesInUse: an address in use is reported before any compiler is identified, which takes time on a busy
// host.
func TestPagesInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	if err := os.WriteFile(filepath.Join(dir, "gcc"), []byte("#!/bin/sh\n: >"+asked+"\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("toolchains: {dirs: ["+dir+"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "--listen", "127.0.0.1:0", "--http", l.Addr().String(), "--jobs", "1")
	cmd.Env = append(cmd.Env, "RDISTCC_CONFIG="+config)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "choose another port with --http") {
		t.Errorf("it ends with %v: %s", err, out)
	}
	if _, err := os.Stat(asked); err == nil {
		t.Error("a compiler was asked")
	}
}

// TestEndsWhileItStarts: a compiler that tells nothing holds up neither serving nor the end,
// and ends with the daemon.
func TestEndsWhileItStarts(t *testing.T) {
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	if err := syscall.Mkfifo(asked, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gcc"), []byte("#!/bin/sh\necho $$ >"+asked+"\nsleep 1000\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	cmd := command(t, "--listen", "127.0.0.1:0", "--http", "", "--jobs", "1")
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("toolchains: {dirs: ["+dir+"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "RDISTCC_CONFIG="+config)
	r := start(t, cmd)
	said, err := os.ReadFile(asked) // ends when the compiler has opened it, and closed it
	if err != nil {
		t.Fatal(err)
	}
	r.find("msg=listening")
	r.signal(syscall.SIGTERM)
	r.stops(0)
	for _, line := range r.log {
		if strings.Contains(line, "level=ERROR") {
			t.Errorf("it did not end well: %s", line)
		}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(said)))
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the compiler that was asked lives on: %s", stat)
	}
}

func TestReload(t *testing.T) {
	conf := configFile(t, "daemon: {jobs: 1}\n")
	logFile := filepath.Join(t.TempDir(), "log")
	cmd := command(t, "--listen", "127.0.0.1:0", "--http", "", "--config", conf, "--log-file", logFile)
	r := start(t, cmd)
	inLog := func(path, what string) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
			b, _ := os.ReadFile(path)
			if strings.Contains(string(b), what) {
				return
			}
			if time.Since(began) > patience {
				t.Fatalf("no %q in %s:\n%s", what, path, b)
			}
		}
	}
	inLog(logFile, "msg=listening")
	// The log is moved away, as logrotate does, and the file gets a mistake.
	if err := os.Rename(logFile, logFile+".1"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, append(text, "wrong: 1\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGHUP)
	inLog(logFile, "settings stay as they are")
	inLog(logFile, conf+":3:")
	// Mended, with one setting that can change and one that cannot; and there is
	// a compiler now.
	dir := t.TempDir()
	if gcc, err := exec.LookPath("gcc"); err == nil {
		if err := os.Symlink(gcc, filepath.Join(dir, "gcc")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(conf, []byte("toolchains: {dirs: ["+dir+"]}\ndaemon: {jobs: 2, nice: 7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGHUP)
	inLog(logFile, `msg="settings are in force"`)
	inLog(logFile, "takes a restart\" setting=daemon.jobs")
	inLog(logFile, "msg=toolchain")
	r.signal(syscall.SIGTERM)
	r.stops(0)
}

// A socket from systemd is used instead of --listen.
func TestSocketActivation(t *testing.T) {
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
	cmd := command(t, "--http", "")
	// LISTEN_PID has to be the number of the process itself: a shell sets it and
	// becomes the daemon.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	cmd.Path, cmd.Args = bash, []string{"bash", "-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec -a rdistccd " + self + " --http ''"}
	cmd.ExtraFiles = []*os.File{f}
	r := start(t, cmd)
	if got := r.find(`msg=listening addr=(\S+)`); got != l.Addr().String() {
		t.Errorf("listens on %s, want %s", got, l.Addr())
	}
	r.signal(syscall.SIGTERM)
	r.stops(0)
}

// TestBecomesAnotherUser: a daemon started as root becomes another user, and can do its work as that user.
func TestBecomesAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if st, err := os.Stat("/proc/self/exe"); err != nil || st.Mode()&1 == 0 {
		t.Skip("other users may not run this program, made with a closed umask: ", err)
	}
	dir, err := os.MkdirTemp("/tmp", "rdistccd-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "--listen", "127.0.0.1:0", "--http", "", "--user", "nobody")
	for i := range cmd.Env {
		if strings.HasPrefix(cmd.Env[i], "TMPDIR=") {
			cmd.Env[i] = "TMPDIR=" + dir
		}
	}
	r := start(t, cmd)
	r.find(`msg=listening`)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"Uid", "Gid"} {
		m := regexp.MustCompile(id + `:\t(\d+)\t(\d+)\t(\d+)`).FindStringSubmatch(string(status))
		if m == nil || m[1] == "0" || m[2] == "0" || m[3] == "0" {
			t.Errorf("%s is %q", id, m)
		}
	}
	if m := regexp.MustCompile(`Groups:\t(.*)`).FindStringSubmatch(string(status)); m == nil || strings.Contains(" "+m[1], " 0 ") {
		t.Errorf("groups are %q", m)
	}
	r.signal(syscall.SIGTERM)
	r.stops(0)
}

// TestDefaultUsers: the setting's default is the number that daemons in containers spread from.
func TestDefaultUsers(t *testing.T) {
	if n := config.Default().Daemon.CompileUsers; n != users.Default {
		t.Errorf("daemon.compile-users is %d where nobody has set it, want %d", n, users.Default)
	}
}
