package ctl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

// lateManager is the variable that makes the test binary runLateManager in the directory that it names.
const lateManager = "RDISTCC_TEST_LATE_MANAGER"

// runLateManager answers one request to stop, closes its socket, and writes a file some time after that.
func runLateManager(dir string) {
	l, err := ipcserver.Listen(filepath.Join(dir, ipc.SocketName), false)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for stopped := false; !stopped; {
		c, err := l.AcceptConn()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		var q ipc.Control
		if kind, fields, err := c.Recv(); err == nil && kind == ipc.KindControl && q.Parse(fields) == nil {
			_ = c.Send((&ipc.Reply{Data: []byte("{}")}).Append(nil)) // who asked may be gone
			stopped = q.Args[0] == "stop"
		}
		c.Close()
	}
	l.Close()
	time.Sleep(500 * time.Millisecond)
	if err := os.WriteFile(filepath.Join(dir, "learned"), nil, 0o600); err != nil {
		os.Exit(1)
	}
}

// TestStopWaitsForTheProcess: a manager whose socket is closed still writes what it has learned, and whoever stopped
// it may remove its directory next.
func TestStopWaitsForTheProcess(t *testing.T) {
	s := newShell(t)
	dir := s.env["RDISTCC_DIR"]
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), lateManager+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var line string
	if _, err := fmt.Fscanln(out, &line); err != nil || line != "ready" {
		t.Fatalf("the manager says %q, %v", line, err)
	}
	s.want(0, "the connection manager has stopped\n", "", "stop")
	if _, err := os.Stat(filepath.Join(dir, "learned")); err != nil {
		t.Error("stop has returned before the manager had ended")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
