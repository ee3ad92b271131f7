package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// Causes of a failed handshake, as metrics have them.
const (
	CausePlaintext     = "tls-plaintext"      // the peer does not speak TLS
	CauseExpired       = "tls-expired"        // its certificate has expired
	CauseNotYet        = "tls-not-yet-valid"  // its certificate is not valid yet
	CauseUnknownCA     = "tls-unknown-ca"     // another CA signed it
	CauseWrongRole     = "tls-wrong-role"     // the certificate is not for the peer's side
	CauseWrongName     = "tls-wrong-name"     // the certificate is for another host, or its name cannot be used
	CauseNoCertificate = "tls-no-certificate" // the peer sent no certificate
	CauseRefused       = "tls-refused"        // the peer does not accept ours
	CauseTimeout       = "tls-timeout"        // the handshake took too long
	CauseClosed        = "tls-closed"         // the peer went away
	CauseOther         = "tls-other"
	CauseTooMany       = "too-many" // attempts from an address that failed too often, closed unread
)

// Causes returns all causes, for metrics that must exist from the start.
func Causes() []string {
	return []string{CausePlaintext, CauseExpired, CauseNotYet, CauseUnknownCA, CauseWrongRole, CauseWrongName,
		CauseNoCertificate, CauseRefused, CauseTimeout, CauseClosed, CauseOther, CauseTooMany}
}

// Error means that a peer failed to prove its identity, or did not accept this side's proof.
type Error struct {
	Cause string // one of Causes
	Text  string // one line, without the peer's name
	Err   error  // the underlying error; may be nil
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.Err }

// Numbers of TLS alerts (RFC 8446 §6) for which a remedy is known.
const (
	alertUnexpected    = 10
	alertBadCert       = 42
	alertUnsupported   = 43
	alertCertExpired   = 45
	alertCertUnknown   = 46
	alertUnknownCA     = 48
	alertAccessDenied  = 49
	alertDecryptError  = 51
	alertVersion       = 70
	alertNoCertificate = 116
)

// alertOf returns the number of an alert that the peer sent. crypto/tls does not export its type.
func alertOf(err error) (number int, ok bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}
	if v := reflect.ValueOf(op.Err); v.Kind() == reflect.Uint8 {
		return int(v.Uint()), true
	}
	return 0, false
}

// explain turns the error that ended a handshake into an Error. own is what this side presented.
func explain(err error, role Role, own *credentials, now time.Time) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if n, ok := alertOf(err); ok {
		return refused(n, err, own, now)
	}
	var record tls.RecordHeaderError
	var bad *tls.CertificateVerificationError
	switch {
	case errors.As(err, &record):
		return &Error{CausePlaintext, "it speaks no TLS: set auth there as it is here", err}
	case errors.As(err, &bad):
		return certificateError(bad.Err, role, now)
	case strings.Contains(err.Error(), "didn't provide a certificate"):
		return &Error{CauseNoCertificate, "it showed no certificate", err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{CauseTimeout, "TLS did not begin in time", err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		if role == Client {
			return &Error{CauseClosed, "it hung up on TLS: it has no auth.tls set, or keeps this address out for some seconds after failed attempts", err}
		}
		return &Error{CauseClosed, "it went away before TLS was agreed on", err}
	}
	return &Error{CauseOther, strings.TrimPrefix(err.Error(), "tls: "), err}
}

// certificateError describes what is wrong with a peer's certificate. role is this side's.
func certificateError(err error, role Role, now time.Time) *Error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	peer := Client
	if role == Client {
		peer = Daemon
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case timeProblem(err, now) != "":
		errors.As(err, &invalid)
		cause := CauseExpired
		if now.Before(invalid.Cert.NotBefore) {
			cause = CauseNotYet
		}
		return &Error{cause, "its certificate: " + timeProblem(err, now), err}
	case errors.As(err, &unknown):
		return &Error{CauseUnknownCA, "its certificate is not signed by the CA that is trusted here", err}
	case errors.Is(err, errRole), errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		_, word := usageOf(peer)
		return &Error{CauseWrongRole, fmt.Sprintf("its certificate is not for %s: it lacks %s", roleWord(peer), word), err}
	}
	return &Error{CauseOther, "its certificate: " + strings.TrimPrefix(err.Error(), "x509: "), err}
}

// refused describes a peer's alert.
func refused(alert int, err error, own *credentials, now time.Time) *Error {
	text := ""
	switch alert {
	case alertNoCertificate:
		text = "it wants a certificate: set auth.tls here"
	case alertUnknownCA:
		text = "it does not trust the CA of our certificate: both sides need one CA"
	case alertCertExpired:
		text = "it says that it is not the time of our certificate"
		if own != nil && own.leaf != nil {
			text += fmt.Sprintf(", which is valid from %s to %s", when(own.leaf.NotBefore), when(own.leaf.NotAfter))
			if now.After(own.leaf.NotBefore) && now.Before(own.leaf.NotAfter) {
				text += fmt.Sprintf(": its clock is wrong, or the one here, which says %s", when(now))
			}
		}
	case alertBadCert, alertUnsupported, alertCertUnknown:
		text = "it does not accept our certificate: is that for this side of a connection (clients: clientAuth, daemons: serverAuth)?"
	case alertAccessDenied:
		return &Error{CauseTooMany, "it keeps this address out for some seconds, after too many failed attempts", err}
	case alertVersion:
		text = "it speaks another version of TLS: 1.3 is needed"
	case alertUnexpected:
		return &Error{CausePlaintext, "it did not take this for TLS", err}
	default:
		text = fmt.Sprintf("it ended TLS with alert %d", alert)
	}
	return &Error{CauseRefused, text, err}
}
