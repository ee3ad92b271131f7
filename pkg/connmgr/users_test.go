package connmgr

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// leaseAs is the environment variable that makes the test binary a wrapper: its value is a socket and, after
// a space, hosts. The binary leases a slot from the socket and writes a text of its own into it.
const leaseAs = "RDISTCC_TEST_LEASE"

// leaseCompiler is the environment variable with another compiler for that lease.
const leaseCompiler = "RDISTCC_TEST_COMPILER"

// stranger is a user other than root and, if root runs the tests, other than this one.
const stranger = 65534

func TestMain(m *testing.M) {
	if socket, hosts, ok := strings.Cut(os.Getenv(leaseAs), " "); ok {
		fmt.Println(leaseFrom(socket, hosts))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func leaseFrom(socket, hosts string) string {
	c, err := ipc.Dial(socket)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	l := leaseOf(hosts)
	if cc := os.Getenv(leaseCompiler); cc != "" {
		l.Compiler = cc
	}
	if err := c.Send(l.Append(nil)); err != nil {
		return err.Error()
	}
	kind, fields, err := c.Recv()
	if err != nil {
		return err.Error()
	}
	switch kind {
	case ipc.KindGoLocal:
		var no ipc.GoLocal
		if err := no.Parse(fields); err != nil {
			return err.Error()
		}
		return no.Reason
	case ipc.KindLeased:
		fds, err := c.TakeFDs(2)
		if err != nil {
			return err.Error()
		}
		if _, err := syscall.Write(fds[0], []byte("secret of a stranger")); err != nil {
			return err.Error()
		}
		if err := c.Send((&ipc.Finish{Where: ipc.WhereLocal, Reason: "diagnostics", Closed: true}).Append(nil)); err != nil {
			return err.Error()
		}
		return "leased"
	}
	return fmt.Sprint("frame ", kind)
}

// sourceBytes reads the start of the leased source into b. It opens the source again, because the descriptor
// may be for writing only.
func (w *wrapper) sourceBytes(b []byte) (int, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", w.source.Fd()))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(b, 0)
}

// expose lets all users reach a file below the directory of temporary files.
func expose(t *testing.T, path string) {
	t.Helper()
	for ; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherUsers: a user's manager serves only that user. The machine's manager serves all users who may open
// its socket, and no memory passes from one user to another.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "test") // the original is in a directory that other users cannot enter
	if err := exec.Command("cp", self, copied).Run(); err != nil {
		t.Fatal(err)
	}
	expose(t, copied)
	for _, anyUser := range []bool{false, true} {
		t.Run(fmt.Sprintf("any=%t", anyUser), func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.AnyUser = anyUser })
			d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
			expose(t, r.socket)
			cmd := exec.Command(copied)
			cmd.Env = []string{leaseAs + "=" + r.socket + " " + d.Addr}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			want := "denied"
			if anyUser {
				want = "leased"
			}
			if got := strings.TrimSpace(string(out)); got != want {
				t.Errorf("the stranger got %q, want %q", got, want)
			}
			r.idle()
			// This user does not see what the stranger wrote.
			w := r.dial()
			defer w.close()
			if !w.lease(leaseOf(d.Addr)) {
				t.FailNow()
			}
			b := make([]byte, 6)
			if _, err := w.sourceBytes(b); err != nil || string(b) == "secret" {
				t.Errorf("our new slot has %q, %v", b, err)
			}
		})
	}
}
