package socket

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

func TestOneManagerServesASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "cm.sock")
	first, err := Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("second Listen: %v, want ErrInUse", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	// As after a kill: the lock is free, but the name still exists.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(path, nil)
	if err != nil {
		t.Fatalf("Listen over a stale socket: %v", err)
	}
	second.Close()
}

func TestSocketDirectoryMustBeOurs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(dir, "cm.sock"), nil); !errors.Is(err, ipc.ErrWritable) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Listen in a directory that all may write: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(dir, "cm.sock"), nil); !errors.Is(err, ipc.ErrOwner) {
		t.Errorf("Listen in another user's directory: %v", err)
	}
}

// TestOlderManagerIsStopped: a manager that does not know Replace and speaks another version is told to stop.
func TestOlderManagerIsStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s", "cm.sock")
	if err := ipcserver.MakeDir(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	l, err := ipcserver.Listen(path, false)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.AcceptConn()
			if err != nil {
				return
			}
			kind, fields, err := c.Recv()
			switch {
			case err != nil:
			case kind != ipc.KindControl: // it knows no other kind
			case fields[0] != ipc.Version-1:
				_ = c.Send((&ipc.GoLocal{Reason: "manager", Code: reason.ExitProtocol}).Append(nil)) // the other end sees an error
			default:
				_ = c.Send((&ipc.Reply{Data: []byte("{}")}).Append(nil)) // as above
				_ = l.Close()
			}
			_ = c.Close()
		}
	}()
	got, err := TakeOver(path, false)
	if got != nil || err != nil {
		t.Errorf("took %v over, %v", got, err)
	}
	<-ended
	next, err := Listen(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
