package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
)

// hostKey is the context key of WithHost's name.
type hostKey struct{}

// WithHost names the host that a Dial is for if the address does not: the address is the result of a
// look-up, or a relay's. A certificate may be for that host instead.
func WithHost(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, hostKey{}, name)
}

// Dial connects to addr, HOST:PORT, and under TLS verifies that a daemon of the farm answers: if not,
// the error is an *Error. The connection is a *net.TCPConn or, under TLS, a *Conn. Dial fits
// iwarp.Config.Dial.
//
// If the daemon does not accept this side's certificate, only the first Read shows it: under TLS 1.3 a
// client is done before its certificate is examined.
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

// common returns the parts that both sides' configurations share: TLS 1.3 only, no session resumption,
// and full-size records from the start, as the first message is one that the peer needs whole.
func (id *Identity) common() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true, Time: id.now,
	}
}

func (id *Identity) clientConfig(own *credentials, host string) *tls.Config {
	cfg := id.common()
	// Send it whatever the server claims to accept: the server then says what is wrong with it.
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own.cert, nil }
	// VerifyConnection does all the verification: a certificate may be for one of several names, and
	// must state its usage.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		leaf := s.PeerCertificates[0] // TLS 1.3 servers always send one
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

// usable rejects a certificate whose name cannot be used here.
func usable(leaf *x509.Certificate) error {
	if _, err := nameOf(leaf); err != nil {
		return &Error{Cause: CauseWrongName, Text: "its certificate " + err.Error(), Err: err}
	}
	return nil
}
