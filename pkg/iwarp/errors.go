package iwarp

import (
	"errors"
	"fmt"
)

// TerminateError ends a stream: an error that we found, or that the peer reports
// (RFC 5040 §4.8).
type TerminateError struct {
	FromPeer          bool
	Layer, Type, Code uint8
	Detail            string // what that means, in words
	DDP               []byte // header of the segment at fault, 14 or 18 bytes; nil if not told
	ReadRequest       []byte // RDMAP header of the Read Request at fault, 28 bytes; nil if not told
	Raw               []byte // the Terminate's payload as it came; nil if it is ours
	PeerLayout        bool   // decoded from the bit order that the Linux siw driver sends
}

// RejectedError is a Dial answered with R=1.
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

	// ErrPeerTLS: whoever was dialled answers with an alert of TLS, which nobody speaks here.
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
