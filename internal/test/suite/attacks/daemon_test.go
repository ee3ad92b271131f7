package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// plainUser is the ordinary user that daemons run as: a number not used by any other account.
const plainUser = 64123

// Bounds for a job in a daemon's settings, in bytes.
const (
	memoryLimit    = 512 << 20
	jobMemoryLimit = 1 << 30
	fileLimit      = 256 << 20
	outputLimit    = 1 << 20
)

// mode is a way to run a daemon.
type mode struct {
	name    string
	user    bool   // as an ordinary user, else as root
	bare    bool   // without the right to make user namespaces
	tree    string // of the configuration
	sandbox string // of the configuration
	sent    bool   // jobs use compilers that the daemon was sent
	memory  int64  // limits.memory of the configuration in bytes; 0: memoryLimit
}

var modes = []mode{
	{name: "root", sandbox: "strict"},
	{name: "user", user: true, sandbox: "strict"},
	{name: "bare", user: true, bare: true, tree: "off", sandbox: "strict"},
	{name: "answered", user: true, bare: true, sandbox: "strict"},
	{name: "sent", user: true, sandbox: "strict", sent: true},
}

// daemon is a running rdistccd.
type daemon struct {
	mode
	cmd        *exec.Cmd
	addr, http string
	exe        os.FileInfo
	log        string
	done       chan struct{}
	err        error
}

// startDaemon starts one whose canaries are c, with the program bin, and waits until it
// is ready. Where that is allowed (root) it has file systems of its own for temporary files, in
// which everything that appears is a job's doing.
func startDaemon(t *testing.T, m mode, c *canaries, bin string) *daemon {
	t.Helper()
	needMounts(t)
	d := &daemon{mode: m, log: filepath.Join(c.dir, "log/daemon.log"), done: make(chan struct{})}
	ports, err := farm.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	d.addr, d.http = ports[0], ports[1]
	_, port, _ := net.SplitHostPort(d.addr)
	c.names["DAEMON"] = port
	if err := os.MkdirAll(filepath.Join(c.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(c.dir, "bin/rdistccd")
	copyFile(t, bin, exe)
	if d.exe, err = os.Stat(exe); err != nil {
		t.Fatal(err)
	}
	c.know(t, exe)
	tree := m.tree
	if tree == "" {
		tree = "auto"
	}
	if m.memory == 0 {
		m.memory = memoryLimit
	}
	config := fmt.Sprintf("sandbox: %s\nlimits: {memory: %dB, job-memory: %dB, processes: 64, file: %dB, output: %dB, silence: 2m}\ndaemon: {jobs: 4, job-timeout: 20s, work-dir: %s, tree: %s, nice: 5}\ntoolchains: {dir: %s}\n",
		m.sandbox, m.memory, jobMemoryLimit, fileLimit, outputLimit, c.seen+"/work", tree, c.seen+"/received")
	if err := os.WriteFile(filepath.Join(c.dir, "config.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	// The token on its command line is one of the things that must stay hidden.
	words := []string{c.seen + "/bin/rdistccd", "--config", c.seen + "/config.yaml", "--listen", d.addr, "--http", d.http,
		"--log-file", c.seen + "/log/daemon.log", "--pid-file", c.seen + "/state/" + c.tokens["cmdline"] + ".pid"}
	d.cmd = exec.Command("sh", append([]string{"-c", m.script(c), "sh"}, words...)...)
	d.cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + c.seen + "/state", "RDISTCC_DIR=" + c.seen + "/state", "SECRET_OF_DAEMON=" + c.tokens["environ"]}
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	d.cmd.Stderr = &said
	started := make(chan error)
	go func() {
		defer close(d.done)
		runtime.LockOSThread() // its death is the daemon's
		defer runtime.UnlockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.err = d.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.stop(t) })
	c.names["PID"] = strconv.Itoa(d.cmd.Process.Pid)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		if _, err := farm.Get(ctx, "http://"+d.http+"/readyz"); err == nil {
			break
		}
		select {
		case <-d.done:
			t.Fatalf("the daemon ended: %v: %s%s", d.err, said.String(), d.tail())
		case <-ctx.Done():
			t.Fatalf("the daemon is not ready: %s%s", said.String(), d.tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return d
}

// needMounts skips a test as root where root may not make the mounts that keep the jobs' harm apart.
func needMounts(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 && !privatetree.MayMount() {
		need.Skipf(t, need.Sandbox, "needs CAP_SYS_ADMIN, as root: mounts of its own")
	}
}

// know tells the daemon exe what is known of the compilers: it would otherwise start a few hundred while the attacks run.
func (c *canaries) know(t *testing.T, exe string) {
	t.Helper()
	state := filepath.Join(c.dir, "state")
	if err := farmtest.Know(exe, state); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	owner, err := os.Stat(state)
	if err != nil {
		t.Fatal(err)
	}
	st := owner.Sys().(*syscall.Stat_t)
	if err := os.Chown(filepath.Join(state, "rdistccd.compilers"), int(st.Uid), int(st.Gid)); err != nil {
		t.Fatal(err)
	}
}

// script makes the daemon's surroundings and starts it.
func (m mode) script(c *canaries) string {
	if os.Geteuid() != 0 {
		return `exec "$@"`
	}
	s := "mount --bind " + c.dir + " " + shown + " && mount -t tmpfs -o size=3g,mode=755 work " + shown + "/work && chown %d " + shown + "/work" +
		" && for d in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 temp $d || exit 1; done && cd / && exec "
	uid := 0
	if m.user {
		uid = plainUser
		as := "setpriv --reuid=" + strconv.Itoa(uid) + " --regid=" + strconv.Itoa(uid) + " --clear-groups "
		if m.bare {
			// A user namespace in which no further one can be had.
			as += "unshare --user --map-user=" + strconv.Itoa(uid) + " --map-group=" + strconv.Itoa(uid) + " --keep-caps " +
				`sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$@"' sh `
		}
		s += as
	}
	return "exec unshare --mount --propagation private sh -c '" + strings.ReplaceAll(fmt.Sprintf(s, uid), "'", `'\''`) + `"$@"' sh "$@"`
}

// root is where the daemon's file systems can be seen; "" where they are this process's.
func (d *daemon) root() string {
	if os.Geteuid() != 0 {
		return ""
	}
	return "/proc/" + strconv.Itoa(d.cmd.Process.Pid) + "/root"
}

func (d *daemon) tail() string {
	b, _ := os.ReadFile(d.log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

func (d *daemon) alive() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// stop ends it in order. It is an error if it does not.
func (d *daemon) stop(t *testing.T) {
	http.DefaultClient.CloseIdleConnections()
	if d.alive() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-d.done:
		if d.err != nil {
			t.Errorf("the daemon ended with %v: %s", d.err, d.tail())
		}
	case <-time.After(40 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.done
		t.Errorf("the daemon does not end: %s", d.tail())
	}
}

// rss is the daemon's own memory in bytes.
func (d *daemon) rss() int64 { return processes()[d.cmd.Process.Pid].rss }

// metric returns the value of a metric, or the sum over those whose labels contain label; -1: there is none.
func (d *daemon) metric(ctx context.Context, name, label string) float64 {
	b, err := farm.Get(ctx, "http://"+d.http+"/metrics")
	if err != nil {
		return -1
	}
	sum, found := 0.0, false
	for line := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok && (strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, "{")) && strings.Contains(rest, label) {
			if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
				sum, found = sum+v, true
			}
		}
	}
	if !found {
		return -1
	}
	return sum
}

// can says why a mode cannot be had here, or nothing.
func (m mode) can() error {
	if os.Geteuid() != 0 && m.name != "user" {
		return errors.New("needs root: only the mode of an ordinary user can be had")
	}
	return nil
}
