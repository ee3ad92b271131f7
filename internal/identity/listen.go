package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/internal/tcpaddr"
)

// Listen opens a TCP listener on addr and wraps it with Wrap. It fits iwarp.Config.Listen.
func (id *Identity) Listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // segment size and congestion control belong to one path
	l, err := lc.Listen(ctx, tcpaddr.Network(addr), addr)
	if err != nil {
		return nil, err
	}
	return id.Wrap(l), nil
}

// Wrap returns a listener with this identity around l: addresses that failed too often wait, and under TLS its
// connections are *Conn.
func (id *Identity) Wrap(l net.Listener) net.Listener {
	if id.mode == Open {
		return l
	}
	return &listener{Listener: l, id: id}
}

type listener struct {
	net.Listener
	id *Identity
}

// Accept returns the next connection whose address may try. It does not wait for anything that the peer sends.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		visit, ok := l.id.door.admit(c.RemoteAddr())
		if !ok {
			if l.id.mode == TLS {
				_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // never blocks: the socket is empty
				_, _ = c.Write(alertRecord(alertAccessDenied))
			}
			_ = c.Close() // rejected
			continue
		}
		if l.id.mode != TLS {
			l.id.door.settle(&visit) // a proof by key is judged elsewhere
			return c, nil
		}
		t := newConn(c, l.id, nil)
		t.visit = visit
		cfg := l.id.common()
		// Within the handshake, for which other connections do not wait: checking the files may take time.
		cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			t.own = l.id.credentials()
			return l.id.serverConfig(t.own), nil
		}
		t.Conn = tls.Server(t.wire, cfg)
		return t, nil
	}
}

func (id *Identity) serverConfig(own *credentials) *tls.Config {
	cfg := id.common()
	cfg.Certificates = []tls.Certificate{own.cert}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.ClientCAs = own.roots
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		leaf := s.PeerCertificates[0] // one is required
		if err := named(leaf, x509.ExtKeyUsageClientAuth); err != nil {
			return certificateError(err, Daemon, id.now())
		}
		return usable(leaf)
	}
	return cfg
}
