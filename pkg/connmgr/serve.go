package connmgr

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
)

// lastCalls is how long wrappers that had connected before the socket was removed are still accepted.
const lastCalls = 20 * time.Millisecond

// Serve accepts wrappers from l until ctx ends, Stop is called, or there was no command for IdleExit. In each
// of these cases it returns nil. It closes l. Wrappers that are being served go on.
func (m *Manager) Serve(ctx context.Context, l *socket.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.clients.Go(func() { m.watch(ctx, cancel, l) })
	m.service.begin(l)
	if own := m.lists.Own(); own.Err == nil && !own.Empty() {
		m.farm.Want(own.Sched, nil) // so that the first job does not wait for them
	}
	err := m.accept(ctx, l)
	m.service.end()
	cancel()
	if l.Left() { // the other manager serves wrappers that have connected
		return errors.Join(err, l.Close())
	}
	m.keepLast() // for commands that find no socket; Close writes it once more
	// Wrappers that are connected but not accepted would only find a closed
	// connection. The name goes first, so that no more come; a successor cannot
	// take it before Close, which gives up the lock.
	err = errors.Join(err, l.Hide())
	_ = l.SetDeadline(time.Now().Add(lastCalls)) // fails only when l is closed
	for {
		c, aerr := l.AcceptConn()
		if aerr != nil {
			break
		}
		if !m.places.TryAcquire(1) {
			_ = c.Close() // it compiles by itself, like wrappers that come later
			continue
		}
		m.take(c)
	}
	return errors.Join(err, l.Close())
}

// Ready returns nil if the manager takes commands, otherwise why not.
func (m *Manager) Ready() error {
	if m.service.current() == nil {
		return errNotServing
	}
	return nil
}

var errNotServing = errors.New("not serving: starting, or finishing what runs")

// accept accepts wrappers until ctx ends. Those beyond MaxWrappers wait in the socket's queue, because each
// one that is served takes a descriptor and some memory.
func (m *Manager) accept(ctx context.Context, l *socket.Listener) error {
	var spare reserve
	spare.restore(ctx)
	defer spare.give()
	for {
		if m.places.Acquire(ctx, 1) != nil {
			return nil
		}
		c, err := l.AcceptConn()
		if err != nil {
			m.places.Release(1)
		}
		switch {
		case err == nil && spare.restore(ctx):
			m.take(c)
		case err == nil:
			m.o.Log.Warn("no descriptors left: a wrapper is sent away")
			shed(c)
			m.places.Release(1)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case spare.f != nil && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)):
			spare.give() // to the next accept
		default:
			m.o.Log.Warn("accept a wrapper", "err", err)
			if !sleep(ctx, 10*time.Millisecond) {
				return nil
			}
		}
	}
}

// watch ends Serve when it is time: it cancels ctx and wakes accept.
func (m *Manager) watch(ctx context.Context, cancel context.CancelFunc, l *socket.Listener) {
	every := func() time.Duration {
		if exit := m.live().IdleExit; exit > 0 {
			return min(time.Minute, max(exit/4, 10*time.Millisecond))
		}
		return time.Minute
	}
	m.keepNow(time.Now()) // otherwise, if this manager is killed soon, the file would be its predecessor's
	t := time.NewTicker(every())
	defer t.Stop()
	defer func() {
		cancel()
		_ = l.SetDeadline(time.Now()) // fails only when l is closed
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.service.stopping:
			m.service.ending("it was told to end")
			return
		case <-m.service.idleChanged:
			t.Reset(every())
		case <-t.C:
			idle := m.underway.Idle()
			if idle > time.Minute {
				m.memory.Trim(keepSlots)
			}
			if exit := m.live().IdleExit; exit > 0 && idle >= exit {
				m.o.Log.Info("idle, stopping", "for", idle.Round(time.Second))
				m.service.ending("nothing was compiled for " + exit.String())
				return
			}
			m.keepNow(time.Now())
		}
	}
}

// keepSlots is how many slots an idle manager keeps ready.
const keepSlots = 2

// take serves one wrapper, for which the caller has acquired a place.
func (m *Manager) take(conn *ipcserver.Conn) {
	c := newClient(m, conn)
	m.underway.Add(&c.place, c)
	m.clients.Go(func() {
		c.run()
		m.places.Release(1)
		m.underway.Remove(&c.place)
	})
}
