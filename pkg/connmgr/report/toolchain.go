package report

import (
	"fmt"
	"time"
)

// Toolchain is a compiler of this machine that jobs have used, and what is known of it at the hosts of a list.
type Toolchain struct {
	ID       string    `json:"id"`
	Compiler string    `json:"compiler"` // its usual name
	Path     string    `json:"path"`
	Used     time.Time `json:"used"`
	Bytes    uint64    `json:"bytes,omitempty"` // of all that a host is sent; 0 if no host has needed it yet
	// Error is why no host can be sent it, or empty.
	Error string          `json:"error,omitempty"`
	Hosts []ToolchainHost `json:"hosts"`
}

// States of a compiler at a host.
const (
	ToolchainInstalled = "installed"
	ToolchainReceived  = "received" // it was sent there
	ToolchainSending   = "sending"
	ToolchainWaiting   = "waiting" // to be sent
	ToolchainLacking   = "lacking" // and cannot be sent, because of Error
	ToolchainUnknown   = "unknown" // the host is not connected; Error says why, as far as that is known
)

// ToolchainHost is what is known of a compiler at a host.
type ToolchainHost struct {
	Host  string `json:"host"`
	State string `json:"state"`
	// Done is how many bytes of the compiler are there, of All, while it is being sent. All is 0 until the host
	// has said what it lacks.
	Done  uint64 `json:"done,omitempty"`
	All   uint64 `json:"all,omitempty"`
	Error string `json:"error,omitempty"`
	Down  bool   `json:"down,omitempty"`  // unknown: it could not be reached
	Again bool   `json:"again,omitempty"` // lacking: it is tried again soon
}

// String says that in a few words.
func (h *ToolchainHost) String() string {
	switch h.State {
	case ToolchainSending:
		if h.All == 0 {
			return "being sent"
		}
		return fmt.Sprintf("being sent: %d of %d MB", h.Done/1e6, h.All/1e6)
	case ToolchainWaiting:
		return "going to be sent"
	case ToolchainLacking:
		if h.Again {
			return "not there yet, and tried again soon: " + h.Error
		}
		return "cannot be sent: " + h.Error
	case ToolchainUnknown:
		return "not known: " + h.Error
	}
	return h.State
}
