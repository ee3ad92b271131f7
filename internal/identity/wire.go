package identity

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

const (
	// recordMost is the most that one TLS record carries, in bytes (RFC 8446 §5.1).
	recordMost = 16 << 10
	// holdMost is how much is gathered for one write, in bytes: a system call for each record would cost a third
	// of what encrypting it does.
	holdMost = 128 << 10
	// handshakeMost is what a peer may send before it has proven its identity, in bytes. A chain of certificates is
	// a few thousand; crypto/tls would accept 256 KiB.
	handshakeMost = 64 << 10
)

// wire is the TCP connection as TLS sees it.
type wire struct {
	net.Conn
	done   atomic.Bool // the handshake is over
	budget int         // bytes that may come before that; owned by the handshake

	mu      sync.Mutex // guards what follows: an alert may be written during a Write
	holding bool
	held    []byte
}

var errTooMuch = errors.New("it sent more than a handshake takes")

func (w *wire) established() { w.done.Store(true) }

func (w *wire) Read(p []byte) (int, error) {
	if w.done.Load() {
		return w.Conn.Read(p)
	}
	if w.budget <= 0 {
		return 0, errTooMuch
	}
	n, err := w.Conn.Read(p[:min(len(p), w.budget)])
	w.budget -= n
	return n, err
}

// hold gathers further writes until release.
func (w *wire) hold() {
	w.mu.Lock()
	w.holding = true
	w.mu.Unlock()
}

// release writes what was gathered.
func (w *wire) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = false
	return w.flushLocked()
}

func (w *wire) flushLocked() error {
	if len(w.held) == 0 {
		return nil
	}
	_, err := w.Conn.Write(w.held)
	w.held = w.held[:0]
	if err != nil {
		w.held = nil
	}
	return err
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.holding {
		return w.Conn.Write(p)
	}
	if len(w.held)+len(p) > holdMost {
		if err := w.flushLocked(); err != nil {
			return 0, err
		}
	}
	w.held = append(w.held, p...)
	return len(p), nil
}
