package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

// patienceOfTests is for what is bound to come: a test fails after that.
const patienceOfTests = 30 * time.Second

// program is a running helper, in this process.
type program struct {
	socket string
	status chan int
	errs   *bytes.Buffer // valid after its end
}

// run runs the program with the variables of a helper, and those of env.
func run(t *testing.T, env ...string) *program {
	t.Helper()
	p := &program{socket: filepath.Join(t.TempDir(), "s"), status: make(chan int, 1), errs: new(bytes.Buffer)}
	env = append([]string{"CRSH_IPC_ENDPOINT=" + p.socket, "CRSH_URL=rdistcc:", "CRSH_IDLE_TIMEOUT=0", "CRSH_NUM_ATTR=0", "RDISTCC_DIR=" + t.TempDir()}, env...)
	getenv := func(name string) (value string) {
		for _, kv := range env {
			if n, v, _ := strings.Cut(kv, "="); n == name {
				value = v
			}
		}
		return value
	}
	go func() { p.status <- Run(nil, "1.0", getenv, io.Discard, p.errs) }()
	return p
}

// client connects to the program, as soon as it listens.
func (p *program) client(t *testing.T) *crsh.Client {
	t.Helper()
	for end := time.Now().Add(patienceOfTests); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("unix", p.socket)
		if err != nil && time.Now().Before(end) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := crsh.NewClient(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// stop ends the program by its protocol, and checks that nothing is left.
func (p *program) stop(t *testing.T) {
	t.Helper()
	if err := p.client(t).Stop(t.Context()); err != nil {
		t.Error(err)
	}
	p.ends(t, 0)
}

// ends waits for the end of the program.
func (p *program) ends(t *testing.T, want int) {
	t.Helper()
	select {
	case got := <-p.status:
		if got != want {
			t.Errorf("exit status %d, want %d: %s", got, want, p.errs)
		}
	case <-time.After(patienceOfTests):
		t.Fatal("it goes on")
	}
	if _, err := os.Lstat(p.socket); !errors.Is(err, os.ErrNotExist) && want == 0 {
		t.Errorf("it leaves its socket: %v", err)
	}
}

// asks wants an error of a look that has certain words, in one line.
func (p *program) asks(t *testing.T, want string) {
	t.Helper()
	_, err := p.client(t).Exists(t.Context(), []byte("key"))
	var r crsh.Refusal
	if !errors.As(err, &r) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a look says %v, want %q", err, want)
	}
}

// TestWrongInput: a helper that was told something wrong serves and says so, because ccache waits for one that does not.
func TestWrongInput(t *testing.T) {
	for want, env := range map[string][]string{
		"its URL does not begin with rdistcc:":            {"CRSH_URL=http://example.org"},
		"its URL is neither rdistcc: nor rdistcc:/PATH":   {"CRSH_URL=rdistcc://me:s3cret@host/"},
		"its URL is neither rdistcc: nor rdistcc:/PATH o": {"CRSH_URL=rdistcc:farm"},
		"there is no attribute @layout=flat":              {"CRSH_NUM_ATTR=1", "CRSH_ATTR_KEY_0=layout", "CRSH_ATTR_VALUE_0=flat"},
		`CRSH_IDLE_TIMEOUT="soon"`:                        {"CRSH_IDLE_TIMEOUT=soon"},
		`CRSH_NUM_ATTR="-1"`:                              {"CRSH_NUM_ATTR=-1"},
		"no connection manager serves /none/cm.sock":      {"CRSH_URL=rdistcc:/none/cm.sock"},
	} {
		p := run(t, env...)
		p.asks(t, want)
		p.stop(t)
		if strings.Contains(p.errs.String(), "s3cret") || strings.Count(p.errs.String(), "\n") > 1 {
			t.Errorf("it prints %q", p.errs)
		}
	}
}

// TestArguments: by hand, the program says in a line that it is ccache's to start.
func TestArguments(t *testing.T) {
	none := func(string) string { return "" }
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{nil, reason.ExitArguments, "ccache starts this program"},
		{[]string{"x"}, reason.ExitArguments, "takes no arguments"},
		{[]string{"--version"}, 0, "ccache-storage-rdistcc 1.0\n"},
		{[]string{"--help"}, 0, "remote_storage = rdistcc:"},
	} {
		var out bytes.Buffer
		if code := Run(c.args, "1.0", none, &out, &out); code != c.code || !strings.Contains(out.String(), c.out) {
			t.Errorf("%q: %d, %s", c.args, code, &out)
		}
	}
}

// TestSocket: a socket that nobody serves any more is replaced, and nothing else is.
func TestSocket(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	p := run(t, "CRSH_IPC_ENDPOINT="+stale, "CRSH_URL=rdistcc:/none")
	p.socket = stale
	p.asks(t, "no connection manager serves /none")
	if info, err := os.Stat(stale); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may open the socket: %v, %v", info.Mode(), err)
	}
	other := run(t, "CRSH_IPC_ENDPOINT="+stale)
	other.ends(t, reason.ExitGeneral)
	if !strings.Contains(other.errs.String(), "socket "+stale+": another helper serves it\n") {
		t.Errorf("a second helper says %q", other.errs)
	}
	p.stop(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	p = run(t, "CRSH_IPC_ENDPOINT="+file)
	p.ends(t, reason.ExitGeneral)
	if b, err := os.ReadFile(file); string(b) != "mine" || !strings.Contains(p.errs.String(), "something else than a socket") {
		t.Errorf("%q, %v; it says %q", b, err, p.errs)
	}
	p = run(t, "CRSH_IPC_ENDPOINT=/none/s")
	p.ends(t, reason.ExitGeneral)
}

// TestIdle: a helper ends by itself, but not while a compile is connected.
func TestIdle(t *testing.T) {
	p := run(t, "CRSH_IDLE_TIMEOUT=1", "CRSH_URL=rdistcc:/none")
	c := p.client(t)
	time.Sleep(1200 * time.Millisecond)
	if _, _, err := c.Info(t.Context()); err != nil {
		t.Fatalf("it has ended before its client: %v", err)
	}
	c.Close()
	p.ends(t, 0)
}

// manages is a manager that serves one answer to all, and values.
func manages(t *testing.T, answer interface{ Append([]byte) []byte }, v crsh.Values) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cm.sock")
	l, err := ipcserver.Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.AcceptConn()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				kind, _, err := conn.Recv()
				if kind != ipc.KindControl || err != nil || answer == nil || conn.Send(answer.Append(nil)) != nil {
					return
				}
				raw, err := conn.Raw()
				if err != nil {
					t.Error(err)
					return
				}
				(&crsh.Server{Values: v}).Serve(context.Background(), raw)
			})
		}
	})
	return path
}

// TestManagers: what a manager refuses, breaks off or cannot do is an error of the request, and the next one asks again.
func TestManagers(t *testing.T) {
	for want, answer := range map[string]interface{ Append([]byte) []byte }{
		"connection manager closed the connection":     nil,
		"no cache of results":                          &ipc.Reply{Code: reason.ExitGeneral, Data: []byte("no cache of results")},
		"the connection manager is of another version": &ipc.GoLocal{Reason: reason.Manager, Code: reason.ExitProtocol},
		"malformed": &ipc.Finish{},
		"rdistcc-cm: the storage is a stand-in of a test": nil,
	} {
		var v crsh.Values = broken{errors.New("not asked")}
		if strings.Contains(want, "stand-in") {
			answer, v, want = &ipc.Reply{}, broken{errors.New("the storage is a stand-in of a test")}, "the storage is a stand-in"
		}
		p := run(t, "CRSH_URL=rdistcc:"+manages(t, answer, v))
		p.asks(t, want)
		p.asks(t, want)
		p.stop(t)
	}
}

// memory keeps values, at most so many bytes of each.
type memory struct {
	mu   sync.Mutex
	all  map[string][]byte
	most uint64
}

func (m *memory) Get(_ context.Context, key []byte, take func(uint64, io.Reader) error) error {
	m.mu.Lock()
	v, ok := m.all[string(key)]
	m.mu.Unlock()
	if !ok {
		return crsh.ErrMissing
	}
	return take(uint64(len(v)), bytes.NewReader(v))
}

func (m *memory) Put(_ context.Context, key []byte, value io.Reader, size uint64, _ bool) (bool, error) {
	if size > m.most {
		return false, nil // without a look at it
	}
	b, err := io.ReadAll(value)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[string(key)] = b
	return err == nil, err
}

func (m *memory) Remove(_ context.Context, key []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.all[string(key)]
	delete(m.all, string(key))
	return is, nil
}

func (m *memory) Exists(_ context.Context, key []byte) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.all[string(key)]
	return is, nil
}

// TestPasses: requests and values of any length pass between ccache and the manager as they are.
func TestPasses(t *testing.T) {
	m := &memory{all: make(map[string][]byte), most: 10 << 20}
	p := run(t, "CRSH_URL=rdistcc:"+manages(t, &ipc.Reply{}, m))
	c := p.client(t)
	for _, n := range []int{0, 1, 100_000, 10 << 20, 10<<20 + 1} {
		value := strings.Repeat("v", n)
		kept, err := c.Put(t.Context(), []byte("key"), strings.NewReader(value), uint64(n), true)
		if want := uint64(n) <= m.most; kept != want || err != nil {
			t.Errorf("Put of %d bytes: %t, %v", n, kept, err)
		}
		got := -1
		err = c.Get(t.Context(), []byte("key"), func(size uint64, value io.Reader) error {
			b, err := io.ReadAll(value)
			got = len(b)
			return err
		})
		if want := min(n, int(m.most)); got != want || err != nil {
			t.Errorf("Get: %d bytes, %v; want %d", got, err, want)
		}
	}
	if there, err := c.Exists(t.Context(), []byte("key")); !there || err != nil {
		t.Errorf("Exists: %t, %v", there, err)
	}
	if removed, err := c.Remove(t.Context(), []byte("key")); !removed || err != nil {
		t.Errorf("Remove: %t, %v", removed, err)
	}
	if err := c.Get(t.Context(), []byte("key"), nil); !errors.Is(err, crsh.ErrMissing) {
		t.Errorf("Get of nothing: %v", err)
	}
	p.stop(t)
}

// TestDirectory: a socket in a directory that others may write to is nobody's to be trusted.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/"+ipc.SocketName)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := run(t, "RDISTCC_DIR="+dir)
	p.asks(t, dir)
	p.stop(t)
}

func init() { syscall.Umask(0o022) } // as a build has it
