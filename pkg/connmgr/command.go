package connmgr

import (
	"fmt"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

func newClient(m *Manager, conn *ipcserver.Conn) *client {
	return &client{m: m, Session: ipcserver.NewSession(m.ctx, conn, m.o.Log)}
}

// run serves the command to its end and releases everything that it held.
func (c *client) run() {
	err := c.serve()
	if err != nil && c.Context().Err() == nil {
		c.m.o.Log.Warn("wrapper", "err", err)
	}
	c.End()
	c.endTurn()
	c.endLease()
	c.endShare()
	c.endMaking()
	c.endGuard()
	c.logJob()
}

// serve answers the wrapper's frames until Finish, or until the wrapper is gone.
func (c *client) serve() error {
	var err error
	if c.uid, c.pid, err = c.Peer(); err != nil {
		return fmt.Errorf("who is the wrapper: %w", err)
	}
	allowed := c.m.o.AnyUser || c.uid == 0 || c.uid == c.m.uid
	for {
		f := c.Next()
		if f == nil {
			return nil
		}
		if !allowed {
			c.m.o.Log.Warn("wrapper of another user refused", "uid", c.uid)
			return c.Send(&ipc.GoLocal{Reason: reason.Denied, Trouble: true, Code: reason.ExitDenied,
				Detail: fmt.Sprintf("the connection manager of user %d does not serve user %d", c.m.uid, c.uid)})
		}
		switch f := f.(type) {
		case *ipc.Lease:
			err = c.onLease(f)
		case *ipc.Whole:
			err = c.onWhole(f)
		case *ipc.Submit:
			err = c.onSubmit(f)
		case *ipc.Local:
			err = c.onLocal(f)
		case *ipcserver.Making:
			c.onMaking(&f.Lease)
		case ipcserver.Made:
			err = c.onMade()
		case *ipc.Listed:
			err = c.onListed(f)
		case *ipc.Ran:
			err = c.onRan(f)
		case *ipc.Finish:
			c.onFinish(f)
			return nil
		case *ipc.Control:
			return c.onControl(f)
		case *ipc.Replace:
			return c.onReplace(f)
		case ipcserver.GoAhead:
			return errProtocol
		case ipcserver.OtherVersion:
			return c.Send(&ipc.GoLocal{Reason: reason.Manager, Trouble: true, Code: reason.ExitProtocol,
				Detail: "the connection manager is of another version than this rdistcc; rdistcc-cm --replace puts the right one in its place"})
		}
		if err != nil {
			return err
		}
	}
}
