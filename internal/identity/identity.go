// Package identity holds this side's identity, and the way in which the other side proves its own: by
// certificates, in mutual TLS 1.3 below MPA; by a key that both share (package psk, whose proof travels
// in MPA's start-up); or not at all.
//
// The mode is configured on both sides and never negotiated: nothing that a peer, or a man in the middle,
// sends can change it. Under TLS no byte of a protocol of ours is read before the peer's certificate has
// been verified.
//
// A daemon's certificate is signed by the CA and is for servers (serverAuth). It names the host as it was
// dialled, by name or by address, or it names Anyone, which is valid for any daemon of the farm. A client's
// certificate is signed by the CA and for clients (clientAuth); its name is the daemon's name for that
// client. A certificate must state its usage: one without any is valid for neither.
//
// There are no session tickets, so no session is resumed, and no early data, which crypto/tls never uses
// over TCP. A recorded session cannot be replayed.
//
// The files are checked for changes when a connection is made, at most once a second. New ones apply to new
// connections, once all are complete and fit together; until then the old ones stay in force.
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

// Anyone is the DNS name in a certificate that is valid for any daemon of the farm.
const Anyone = "rdistccd"

// Role is the side of a connection that this process is on.
type Role uint8

// The roles.
const (
	Client Role = iota // a build host: dials
	Daemon             // a compile host: listens
)

// Mode is the way in which the sides prove their identity.
type Mode uint8

// The modes.
const (
	Open Mode = iota // no proof
	PSK              // by a key that both sides have
	TLS              // by certificates
)

func (m Mode) String() string { return [...]string{"open", "psk", "tls"}[m] }

// Settings names the files, as the configuration does. No file at all means Open.
type Settings struct {
	PSKFile       string
	Cert, Key, CA string // PEM: all three or none
}

// mode returns the mode that the settings imply.
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

// Identity is one side's identity. Its methods may be called from any goroutine.
type Identity struct {
	role Role
	mode Mode
	s    Settings
	now  func() time.Time
	door *doorman
	log  atomic.Pointer[slog.Logger]

	current atomic.Pointer[credentials] // in force, with TLS or a shared key

	mu     sync.Mutex // guards what follows, and loading
	looked time.Time  // when the files were last checked
	seen   stamps     // of the files, as last loaded or refused
	told   string     // the last complaint in the log
}

// New reads and checks the files. An error is one line that names the file and the remedy.
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

// Mode returns how the sides prove their identity.
func (id *Identity) Mode() Mode { return id.mode }

// Key returns the shared key in force; nil in other modes.
func (id *Identity) Key() *psk.Key {
	if id.mode != PSK {
		return nil
	}
	return id.credentials().psk
}

// SetLog makes l the log for errors from now on.
func (id *Identity) SetLog(l *slog.Logger) { id.log.Store(l) }

func (id *Identity) logger() *slog.Logger {
	if l := id.log.Load(); l != nil {
		return l
	}
	return slog.New(slog.DiscardHandler)
}

// OnFailure sets f to be called, with one of Causes, for each peer that failed to prove its identity. It must be
// called before the first connection.
func (id *Identity) OnFailure(f func(cause string)) { id.door.count = f }

// Failed records that a peer at remote failed to prove its identity by a method outside this package: its
// address counts as one that failed. cause is one of a few fixed words.
func (id *Identity) Failed(remote net.Addr, cause, detail string) {
	id.door.failed(remote, cause, detail)
}

// Passed records that a peer at remote has proven its identity.
func (id *Identity) Passed(remote net.Addr) { id.door.passed(remote) }

// Expires returns when this side's certificate expires, or the CA that it depends on if that is earlier: no peer
// accepts it then. It is zero without a certificate. New files are noticed, as by a new connection.
func (id *Identity) Expires() time.Time {
	if id.mode != TLS {
		return time.Time{}
	}
	return id.credentials().end
}
