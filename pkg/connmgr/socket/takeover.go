package socket

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

// ReadyWithin is how long a successor may take from getting the socket to serving it.
const ReadyWithin = 10 * time.Second

// Takeover is a socket on its way from one manager to its successor.
type Takeover struct {
	*Listener
	Conn *ipc.Conn // to the old manager; closed by Done
	old  struct {
		PID int `json:"pid"`
	}
}

// TakeOver asks the manager that serves path for its socket. It returns nil without an error if no manager
// serves path, or if the manager does not know Replace and was told to stop; then the caller uses Listen.
// With force, it asks for the socket even if the manager's protocol version is not older than ours.
//
// The error wraps ErrInUse if the manager refuses to be replaced.
func TakeOver(path string, force bool) (*Takeover, error) {
	path, group, err := place(path)
	if err != nil {
		return nil, err
	}
	var conn *incumbent
	var r ipc.Reply
	for end := time.Now().Add(ReadyWithin); ; time.Sleep(10 * time.Millisecond) {
		conn, err = ask(path, (&ipc.Replace{Version: ipc.Version, Force: force}).Append(nil))
		if conn == nil || err != nil {
			return nil, err
		}
		r, err = conn.reply()
		if err != nil || r.Code != reason.ExitConnect || time.Now().After(end) {
			break
		}
		conn.Close() // this manager has just been replaced; its successor will answer
	}
	switch {
	case errors.Is(err, ipc.ErrClosed): // the manager does not know Replace
		conn.Close()
		return nil, Stop(path)
	case err == nil && r.Code != 0:
		err = fmt.Errorf("socket %s: %w: %s", path, ErrInUse, r.Data)
	}
	var fds []int
	if err == nil {
		fds, err = conn.TakeFDs(2)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	own, err := ipcserver.Adopt(path, fds[0], fds[1])
	if err != nil {
		conn.Close()
		return nil, err
	}
	t := &Takeover{Conn: conn.Conn, Listener: &Listener{UnixListener: own.UnixListener, Path: path, Group: group, own: own}}
	_ = json.Unmarshal(r.Data, &t.old) // without a PID, an old manager that does not answer counts as gone
	return t, nil
}

// Done tells the old manager that this one serves, and returns when the old one has given up its other
// addresses. If the error wraps ErrInUse, the old manager did not wait that long and goes on serving, so this
// one must step back. Any other error means that the old manager has ended.
func (t *Takeover) Done() error {
	defer t.Conn.Close()
	err := t.Conn.Send(ipc.AppendBare(nil, ipc.KindGo))
	if err == nil {
		_, err = (&incumbent{t.Conn}).reply()
	}
	if err != nil && t.old.PID > 0 && syscall.Kill(t.old.PID, 0) == nil {
		return fmt.Errorf("socket %s: %w: it serves on", t.Path, ErrInUse)
	}
	return err
}

// incumbent is a connection to another manager.
type incumbent struct{ *ipc.Conn }

// ask connects to the manager that serves path and sends a frame. The manager must run as this user, unless
// this user is root. It returns nil if no manager serves path.
func ask(path string, frame []byte) (*incumbent, error) {
	conn, err := ipc.Dial(path)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	uid, err := conn.PeerUID()
	if err == nil && int(uid) != os.Geteuid() && os.Geteuid() != 0 {
		err = fmt.Errorf("socket %s is served by user %d", path, uid)
	}
	if err == nil {
		err = conn.Send(frame)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &incumbent{conn}, nil
}

// reply waits for a Reply. It returns errOtherVersion for any other frame.
func (q *incumbent) reply() (r ipc.Reply, err error) {
	kind, fields, err := q.Recv()
	switch {
	case err != nil:
	case kind != ipc.KindReply:
		err = errOtherVersion
	default:
		err = r.Parse(fields)
	}
	return r, err
}

var errOtherVersion = errors.New("the connection manager is of another version")

// Stop tells the manager that serves path to end once its commands have finished. The manager may speak any of
// the nearest versions of the protocol. Stop returns nil if no manager serves path.
func Stop(path string) error {
	versions := []uint8{ipc.Version}
	for d := uint8(1); d <= 8; d++ { // the nearest first
		versions = append(versions, ipc.Version+d)
		if ipc.Version > d {
			versions = append(versions, ipc.Version-d)
		}
	}
	for _, v := range versions {
		q, err := ask(path, (&ipc.Control{Version: v, Args: []string{"stop"}}).Append(nil))
		if q == nil || err != nil {
			return err
		}
		r, err := q.reply()
		q.Close()
		switch {
		case errors.Is(err, errOtherVersion):
		case err != nil:
			return fmt.Errorf("socket %s: %w", path, err)
		case r.Code != 0:
			return fmt.Errorf("socket %s: %s", path, r.Data)
		default:
			return nil
		}
	}
	return fmt.Errorf("socket %s: %w", path, errOtherVersion)
}
