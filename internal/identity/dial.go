package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
)

// hostKey carries WithHost's name in a context.
type hostKey struct{}

// WithHost names the host that a Dial is for, where the address that is dialled does
// not: it has been looked up, or is a relay's. A certificate may be for it instead.
func WithHost(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, hostKey{}, name)
}

// Dial connects to addr, HOST:PORT, and under TLS makes sure that a daemon of the
// farm is there: the error is an *Error if not. The connection is a *net.TCPConn or, under
// TLS, a *Conn. It fits iwarp.Config.Dial.
//
// That the daemon does not accept this side's certificate shows in the first Read only:
// under TLS 1.3 a client is done before its certificate is looked at.
func (id *Identity) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil || id.mode != TLS {
		return c, err
	}
	host, _ := ctx.Value(hostKey{}).(string)
	if host == "" {
		if host, _, err = net.SplitHostPort(addr); err != nil {
			host = addr
		}
	}
	own := id.credentials()
	t := newConn(c, id, own)
	t.Conn = tls.Client(t.wire, id.clientConfig(own, host))
	if err := t.Conn.HandshakeContext(ctx); err != nil {
		_ = c.Close() // the error that counts is err
		if ctx.Err() != nil {
			return nil, &Error{CauseTimeout, "it did not answer to TLS in time: it may have no auth.tls set", ctx.Err()}
		}
		return nil, explain(err, Client, own, id.now())
	}
	t.agreed()
	return t, nil
}

// common is what both sides' configurations have: TLS 1.3 alone, nothing that would
// resume a session, and records as long as can be from the start, as what goes first is a
// message that the peer waits for whole.
func (id *Identity) common() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true, Time: id.now,
	}
}

func (id *Identity) clientConfig(own *credentials, host string) *tls.Config {
	cfg := id.common()
	// Not left to what the server says that it accepts: it is to say what is wrong
	// with this one.
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own.cert, nil }
	// VerifyConnection does the whole of it: a certificate may be for one of several
	// names, and must name its usage.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		leaf := s.PeerCertificates[0] // TLS 1.3 servers have one
		if err := verify(leaf, s.PeerCertificates[1:], own.roots, x509.ExtKeyUsageServerAuth, id.now()); err != nil {
			return certificateError(err, Client, id.now())
		}
		if err := isFor(leaf, host); err != nil {
			return err
		}
		return usable(leaf)
	}
	return cfg
}

// usable refuses a certificate whose name is of no use here.
func usable(leaf *x509.Certificate) error {
	if _, err := nameOf(leaf); err != nil {
		return &Error{Cause: CauseWrongName, Text: "its certificate " + err.Error(), Err: err}
	}
	return nil
}
