package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/textfile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
)

// errNoManager means that no process serves the socket.
var errNoManager = errors.New("no connection manager runs")

// ask sends words to the manager and decodes its answer into v, unless that is
// nil. It returns the answer as it came. The error is errNoManager when none
// runs, or an *exitError.
func (c *ctl) ask(v any, words ...string) ([]byte, error) {
	return c.askWithin(ipc.Patience, v, words...)
}

// askWithin is ask with less patience.
func (c *ctl) askWithin(patience time.Duration, v any, words ...string) ([]byte, error) {
	path := ipc.SocketPath(c.getenv)
	conn, err := c.dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetPatience(patience); err != nil {
		return nil, failf(reason.ExitConnect, "%s: %v", path, err)
	}
	reply, err := exchange(conn, &ipc.Control{Version: ipc.Version, Args: words, Hosts: c.hostText()})
	if err != nil {
		return nil, failf(reason.ExitProtocol, "%s: %v", path, err)
	}
	if reply.Code != 0 {
		return nil, &exitError{code: int(reply.Code), line: string(reply.Data)}
	}
	if v != nil {
		if err := json.Unmarshal(reply.Data, v); err != nil {
			return nil, failf(reason.ExitProtocol, "%s: answer to %q: %v", path, words, err)
		}
	}
	return reply.Data, nil
}

// dial connects to the manager as a compile would: a socket in a directory that others can write to is not trusted.
func (c *ctl) dial(path string) (*ipc.Conn, error) {
	if c.getenv("RDISTCC_CM_SOCKET") == "" {
		dir := ipc.StateDir(c.getenv)
		switch err := ipc.CheckDir(dir); {
		case errors.Is(err, syscall.ENOENT):
			return nil, errNoManager
		case err != nil:
			return nil, failf(reason.ExitDenied, "%s: %v (RDISTCC_DIR names another one)", dir, err)
		}
	}
	conn, err := ipc.Dial(path)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return nil, errNoManager
	case errors.Is(err, syscall.EACCES):
		return nil, failf(reason.ExitDenied, "%s: %v", path, err)
	case err != nil:
		return nil, failf(reason.ExitConnect, "%s: %v", path, err)
	}
	uid, err := conn.PeerUID()
	if err == nil {
		err = ipc.Trusted(path, uid)
	}
	if err != nil {
		conn.Close()
		return nil, failf(reason.ExitDenied, "%s: %v", path, err)
	}
	return conn, nil
}

func exchange(conn *ipc.Conn, q *ipc.Control) (*ipc.Reply, error) {
	if err := conn.Send(q.Append(nil)); err != nil {
		return nil, err
	}
	kind, fields, err := conn.Recv()
	switch {
	case err != nil:
		return nil, err
	case kind == ipc.KindGoLocal: // of another version
		var g ipc.GoLocal
		if err := g.Parse(fields); err != nil {
			return nil, err
		}
		return nil, errors.New(g.Detail)
	case kind != ipc.KindReply:
		return nil, fmt.Errorf("answered with a frame of kind %d", kind)
	}
	var r ipc.Reply
	err = r.Parse(fields)
	return &r, err
}

// hostText returns the host list of the environment, as a compile would send it to the manager: empty means
// the manager's own.
func (c *ctl) hostText() string {
	for _, name := range []string{"RDISTCC_HOSTS", "DISTCC_HOSTS"} {
		if text, set := c.lookup(name); set {
			if text == "" {
				return "\n" // a list without hosts
			}
			return text
		}
	}
	if dir := c.getenv("DISTCC_DIR"); dir != "" {
		if text, there, err := textfile.Optional(hostlist.MaxText)(dir + "/hosts"); there && err == nil {
			return ipc.DistccList + string(text)
		}
	}
	return ""
}

// printJSON writes an answer of the manager as JSON, indented for people.
func (c *ctl) printJSON(data []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return failf(reason.ExitProtocol, "answer of the connection manager: %v", err)
	}
	b.WriteByte('\n')
	return c.print(b.Bytes())
}

func (c *ctl) print(b []byte) error {
	if _, err := c.out.Write(b); err != nil {
		return failf(reason.ExitIO, "standard output: %v", err)
	}
	return nil
}

// stopWithin is how long `stop` waits for the manager to end.
const stopWithin = 10 * time.Second

// processOf returns a function that reports whether the process that serves conn has ended. It reports true where
// that cannot be known: the process is in another PID namespace, say.
func processOf(conn *ipc.Conn) (ended func() bool) {
	unknown := func() bool { return true }
	pid, err := conn.PeerPID()
	if err != nil || pid <= 0 || pid == os.Getpid() {
		return unknown
	}
	fd, err := unix.PidfdOpen(pid, 0) // a number could be another process's by then
	if err != nil {
		return unknown
	}
	process := os.NewFile(uintptr(fd), "process")
	return func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}
}

func (c *ctl) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the connection manager once its jobs are finished",
		Long: "Stops the connection manager: it accepts nothing new, finishes what is running, and exits. The next compile\n" +
			"starts another one. If no manager is running there is nothing to do, and that is not an error.",
		Example: "  rdistcc stop",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			conn, err := c.dial(ipc.SocketPath(c.getenv))
			if errors.Is(err, errNoManager) {
				return c.print([]byte("no connection manager runs\n"))
			}
			if err != nil {
				return err
			}
			ended := processOf(conn)
			conn.Close()
			if err := socket.Stop(ipc.SocketPath(c.getenv)); err != nil { // whatever its version
				return failf(reason.ExitProtocol, "%v", err)
			}
			for end := time.Now().Add(stopWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				conn, err := c.dial(ipc.SocketPath(c.getenv))
				if err == nil {
					conn.Close()
				}
				// Without a socket, the manager still writes what it has learned, and a script may remove its directory next.
				if errors.Is(err, errNoManager) && ended() {
					return c.print([]byte("the connection manager has stopped\n"))
				}
			}
			return c.print([]byte("the connection manager stops when its jobs are finished\n"))
		},
	}
}
