package iwarp

import (
	"errors"
	"fmt"
)

// TerminateError is the error that ends a stream. Either we found it, or the peer reports it
// (RFC 5040 §4.8).
type TerminateError struct {
	FromPeer          bool
	Layer, Type, Code uint8
	Detail            string // the meaning in words
	DDP               []byte // header of the segment at fault, 14 or 18 bytes; nil if not given
	ReadRequest       []byte // RDMAP header of the Read Request at fault, 28 bytes; nil if not given
	Raw               []byte // the Terminate's payload as it came; nil if it is ours
	PeerLayout        bool   // decoded from the bit order that the Linux siw driver sends
}

// RejectedError means that a Dial was answered with R=1.
type RejectedError struct {
	PrivateData      []byte
	PeerORD, PeerIRD uint16
}

// Sentinels.
var (
	ErrQueueFull = errors.New("iwarp: queue full") // poll, then post again
	ErrClosed    = errors.New("iwarp: closed")
	ErrState     = errors.New("iwarp: wrong QP state")
	ErrInvalid   = errors.New("iwarp: invalid argument")
	ErrLimit     = errors.New("iwarp: device limit reached")

	// ErrPeerTLS means that the peer answered a Dial with a TLS alert, while this side does not use TLS.
	ErrPeerTLS = errors.New("it speaks TLS: set auth.tls here as it is there")

	ErrUnsupported = errors.New("iwarp: the device cannot do that") // see DeviceAttr
)

func (e *TerminateError) Error() string {
	if e.FromPeer {
		return fmt.Sprintf("iwarp: the peer ended the stream: %s (terminate %d/%d/%02x)", e.Detail, e.Layer, e.Type, e.Code)
	}
	return fmt.Sprintf("iwarp: stream ended: %s (terminate %d/%d/%02x)", e.Detail, e.Layer, e.Type, e.Code)
}

func (e *RejectedError) Error() string { return "iwarp: rejected by the peer's application" }
