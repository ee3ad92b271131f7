// Package identity is who this side of a connection is, and how the other side proves
// who it is: by certificates, in mutual TLS 1.3 below MPA, or by a key that both
// share (package psk, whose proof travels in MPA's start-up), or not at all.
//
// The mode is configured, on both sides, and never negotiated: what a peer, or
// somebody between, says cannot change it. Under TLS no byte of a protocol of ours is
// read before the peer's certificate has been found good.
//
// A daemon's certificate is signed by the CA, is for servers (serverAuth), and names
// the host as it was dialled, by name or by address, or Anyone: such a one is good for any
// daemon of the farm. A client's is signed by the CA and for clients (clientAuth);
// its name is what the daemon knows the client by. A usage has to be written in the
// certificate: one without any is good for neither.
//
// There are no session tickets, so no session is resumed, and no early data: crypto/tls
// never takes it over TCP. What was recorded cannot be played again.
//
// The files are looked at when a connection is made, once a second at most. New ones
// are for new connections, once all are whole and fit together; until then the old ones
// stay in force.
package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
)

// Anyone is the DNS name in a certificate that is good for any daemon of the farm.
const Anyone = "rdistccd"

// Role is which side of a connection this one is.
type Role uint8

// The roles.
const (
	Client Role = iota // a build host: dials
	Daemon             // a compile host: listens
)

// Mode is how the sides prove who they are.
type Mode uint8

// The modes.
const (
	Open Mode = iota // not at all
	PSK              // by a key that both have
	TLS              // by certificates
)

func (m Mode) String() string { return [...]string{"open", "psk", "tls"}[m] }

// Settings name the files, as the configuration does. No file at all means Open.
type Settings struct {
	PSKFile       string
	Cert, Key, CA string // PEM: all three or none
}

// mode is what the settings mean.
func (s Settings) mode() (Mode, error) {
	some := s.Cert != "" || s.Key != "" || s.CA != ""
	all := s.Cert != "" && s.Key != "" && s.CA != ""
	switch {
	case some && s.PSKFile != "":
		return Open, errors.New("both a shared key (psk-file) and certificates (tls) are set: choose one, the same on all hosts")
	case some && !all:
		for _, f := range []struct{ name, path string }{{"certificate (tls-cert)", s.Cert}, {"key (tls-key)", s.Key}, {"CA (tls-ca)", s.CA}} {
			if f.path == "" {
				return Open, fmt.Errorf("TLS needs a certificate, its key and a CA: the %s is not set", f.name)
			}
		}
	case all:
		return TLS, nil
	case s.PSKFile != "":
		return PSK, nil
	}
	return Open, nil
}

// Identity is one side's. Its methods may be called from any goroutine.
type Identity struct {
	role Role
	mode Mode
	s    Settings
	now  func() time.Time
	door *doorman
	log  atomic.Pointer[slog.Logger]

	current atomic.Pointer[credentials] // under TLS, or by a key: those in force

	mu     sync.Mutex // guards what follows, and loading
	looked time.Time  // when the files were looked at
	seen   stamps     // of the files, as they were last loaded or refused
	told   string     // the last complaint in the log
}

// New reads and checks the files. What is wrong is said in one line that names the
// file and the remedy.
func New(role Role, s Settings) (*Identity, error) {
	return newAt(role, s, time.Now)
}

// newAt is New with another clock.
func newAt(role Role, s Settings, now func() time.Time) (*Identity, error) {
	mode, err := s.mode()
	if err != nil {
		return nil, err
	}
	id := &Identity{role: role, mode: mode, s: s, now: now}
	id.door = newDoorman(now, id.logger)
	if mode != Open {
		if err := id.Reload(); err != nil {
			return nil, err
		}
	}
	return id, nil
}

// Mode is how the sides prove who they are.
func (id *Identity) Mode() Mode { return id.mode }

// Key is the shared key that is in force; nil in other modes.
func (id *Identity) Key() *psk.Key {
	if id.mode != PSK {
		return nil
	}
	return id.credentials().psk
}

// SetLog has what goes wrong logged from now on.
func (id *Identity) SetLog(l *slog.Logger) { id.log.Store(l) }

func (id *Identity) logger() *slog.Logger {
	if l := id.log.Load(); l != nil {
		return l
	}
	return slog.New(slog.DiscardHandler)
}

// OnFailure has f called for each peer that did not prove who it is, with one of
// Causes. It is set before the first connection.
func (id *Identity) OnFailure(f func(cause string)) { id.door.count = f }

// Failed notes that a peer at remote did not prove who it is, by a method that is not
// this package's: its address counts as one that failed. Cause is one of a few fixed words.
func (id *Identity) Failed(remote net.Addr, cause, detail string) {
	id.door.failed(remote, cause, detail)
}

// Passed notes that a peer at remote did prove it.
func (id *Identity) Passed(remote net.Addr) { id.door.passed(remote) }

// Expires is when this side's certificate does, or the CA that it hangs on if that is
// earlier: nobody accepts it then. Zero without one. New files are seen, as a new connection
// would see them.
func (id *Identity) Expires() time.Time {
	if id.mode != TLS {
		return time.Time{}
	}
	return id.credentials().end
}
