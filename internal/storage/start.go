package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

// startPause is for how long no manager is started after one that did not serve.
const startPause = 10 * time.Second

// readyVariable names the descriptor to which a manager writes a byte, 1, once it serves, or why it does not.
const readyVariable = "RDISTCC_READY_FD"

// start starts a manager, as rdistcc does, and waits until it serves. It returns nil if one serves, or may.
func (m *manager) start(ctx context.Context) error {
	m.starting.Lock()
	defer m.starting.Unlock()
	if d := m.dialWithin(ctx); !absent(d.err) { // another request has started it meanwhile
		if d.conn != nil {
			d.conn.Close()
		}
		return nil
	}
	if time.Now().Before(m.again) {
		return m.refused
	}
	err := m.spawn(ctx)
	if err != nil {
		err = fmt.Errorf("no connection manager runs, and none can be started: %w", err)
		m.again, m.refused = time.Now().Add(startPause), err
	}
	return err
}

// spawn starts a manager that this program does not wait for.
func (m *manager) spawn(ctx context.Context) error {
	dir := ipc.StateDir(m.getenv)
	if err := ipcserver.MakeDir(dir); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	lock, err := os.OpenFile(dir+"/"+ipc.LockName, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // and it is released
	for syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select { // an rdistcc is starting one
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if d := m.dialWithin(ctx); !absent(d.err) {
		if d.conn != nil {
			d.conn.Close()
		}
		return nil
	}
	log, err := os.OpenFile(dir+"/"+ipc.LogName, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ready, says, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	defer says.Close()
	cmd := exec.Command("/proc/self/exe", "--socket", m.path)
	cmd.Args[0] = "rdistcc-cm"
	cmd.Dir, cmd.Stderr, cmd.ExtraFiles = "/", log, []*os.File{says}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "CRSH_") && !strings.HasPrefix(kv, "CCACHE_") && !strings.HasPrefix(kv, readyVariable+"=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, readyVariable+"=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // it outlives this program, mostly
	_ = says.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = ready.SetReadDeadline(end)
	}
	b := make([]byte, 1024)
	n, err := ready.Read(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil // it is slow; the next request finds it
	case n > 1:
		return errors.New(strings.TrimSpace(string(b[1:n]))) // behind an exit status
	case n == 0:
		return fmt.Errorf("it has ended, see %s/%s", dir, ipc.LogName)
	}
	return nil
}
