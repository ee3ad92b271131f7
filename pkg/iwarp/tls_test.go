package iwarp_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestTLSUnderMPA: the connections that a device is given need not be TCP's. Over
// TLS everything works as over TCP, and the wire shows nothing of it.
//
// covers SEC-24
func TestTLSUnderMPA(t *testing.T) {
	cert, roots := certificate(t)
	n := iwarptest.NewNetwork()
	var wire bytes.Buffer // what the initiator writes, encrypted; read when both have ended
	client := iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := n.Dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		s := tls.Client(&tapConn{c, &wire}, &tls.Config{RootCAs: roots, ServerName: "farm", MinVersion: tls.VersionTLS13})
		return s, s.HandshakeContext(ctx)
	}}
	server := iwarp.Config{Listen: func(ctx context.Context, addr string) (net.Listener, error) {
		l, err := n.Listen(ctx, addr)
		if err != nil {
			return nil, err
		}
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}), nil
	}}
	a := iwarptest.NewEnd(t, iwarptest.Open(t, client), iwarp.QPInitAttr{})
	b := iwarptest.NewEnd(t, iwarptest.Open(t, server), iwarp.QPInitAttr{})
	depth := &iwarp.ConnParam{ORD: 4, IRD: 4}
	iwarptest.Connect(t, a, b, "127.0.0.1:0", depth, depth)

	secret := bytes.Repeat([]byte("for the compile host's eyes only "), 10_000)
	src := a.Reg(t, bytes.Clone(secret), iwarp.LocalWrite, nil)
	memory := make([]byte, len(secret))
	dst := b.Reg(t, memory, iwarp.LocalWrite|iwarp.RemoteWrite|iwarp.RemoteRead, nil)
	back := make([]byte, len(secret))
	sink := a.Reg(t, back, iwarp.LocalWrite, nil)
	a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, STag: dst.STag(), TO: dst.Base(),
		SGL: []iwarp.SGE{{Addr: src.Base(), Length: uint32(len(secret)), LKey: src.STag()}}})
	a.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpRead, STag: dst.STag(), TO: dst.Base(),
		SGL: []iwarp.SGE{{Addr: sink.Base(), Length: uint32(len(secret)), LKey: sink.STag()}}})
	a.WaitOK(t, 1)
	a.WaitOK(t, 2)
	if !bytes.Equal(memory, secret) || !bytes.Equal(back, secret) {
		t.Error("what was written and read back is not what was sent")
	}
	ctx := iwarptest.Context(t)
	if err := a.QP.Disconnect(ctx); err != nil {
		t.Errorf("graceful end over TLS: %v", err)
	}
	if err := b.WaitDone(t); err != nil {
		t.Errorf("the responder's end: %v", err)
	}
	if wire.Len() < len(secret) || bytes.Contains(wire.Bytes(), secret[:32]) || bytes.Contains(wire.Bytes(), []byte("MPA ID Req Frame")) {
		t.Errorf("%d bytes on the wire are not encrypted, or are not all", wire.Len())
	}
}

// tapConn keeps what is written.
type tapConn struct {
	net.Conn
	to *bytes.Buffer
}

func (c *tapConn) Write(p []byte) (int, error) {
	c.to.Write(p)
	return c.Conn.Write(p)
}

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"farm"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
