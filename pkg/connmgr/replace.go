package connmgr

import (
	"fmt"
	"os"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
)

// readyWithin is how long a successor may take from getting the socket to serving it.
var readyWithin = socket.ReadyWithin

// onReplace gives the socket to another manager of the same user. Nothing changes here until that one serves,
// so it may end before that without a trace.
func (c *client) onReplace(f *ipc.Replace) error {
	m := c.m
	if c.uid != 0 && c.uid != m.uid {
		return c.refuse(reason.ExitDenied, fmt.Sprintf("the connection manager is user %d's: only that user and root may replace it", m.uid))
	}
	m.service.replacing.Lock()
	defer m.service.replacing.Unlock()
	l := m.service.current()
	switch {
	case l == nil || l.Left():
		return c.refuse(reason.ExitConnect, "the connection manager has just ended")
	case l.Given():
		return c.refuse(reason.ExitDenied, "the connection manager has its socket from the service manager: restart it there (systemctl restart)")
	case !f.Force && f.Version <= ipc.Version:
		return c.refuse(reason.ExitProtocol, fmt.Sprintf("the connection manager speaks version %d of the local protocol, you speak %d", ipc.Version, f.Version))
	}
	err := l.Lend(func(listener, lock int) error {
		return c.Send(&ipc.Reply{Data: fmt.Appendf(nil, `{"pid":%d}`, os.Getpid())}, listener, lock)
	})
	if err != nil {
		return fmt.Errorf("hand the socket over: %w", err)
	}
	late := time.AfterFunc(readyWithin, func() { _ = c.Close() }) // ends the wait for its next frame
	answer := c.Next()
	late.Stop()
	if _, ok := answer.(ipcserver.GoAhead); !ok {
		m.o.Log.Warn("a successor took the socket and did not serve it; this manager goes on")
		return nil
	}
	m.o.Log.Info("another manager serves the socket now; what runs is finished here")
	m.saveHistory()
	m.saveHeld()
	m.saveHeaders()
	m.service.handOn(l)
	m.Stop()
	if m.o.Replaced != nil {
		m.o.Replaced()
	}
	return c.reply(struct{}{})
}

// StepBack ends Serve of l, because another manager keeps the socket after all. Wrappers that were accepted
// are served to their end.
func (m *Manager) StepBack(l *socket.Listener) {
	m.service.handOn(l)
	m.Stop()
}
