// Package authority issues certificates for a farm: a small CA, and pairs of certificate and key for daemons
// and clients. Keys are on the curve P-256.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
)

// CA signs certificates.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, both PEM.
type Pair struct{ Cert, Key []byte }

// skew is how far in the past a certificate's validity begins: clocks differ.
const skew = time.Hour

// New returns a CA that is valid from now on for life.
func New(name string, now time.Time, life time.Duration) (*CA, Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(t, t, key, key)
}

// Load returns a CA from the text of its files.
func Load(p Pair) (*CA, error) {
	c, _ := pem.Decode(p.Cert)
	k, _ := pem.Decode(p.Key)
	if c == nil || k == nil {
		return nil, errors.New("the CA's certificate or key is no PEM")
	}
	cert, err := x509.ParseCertificate(c.Bytes)
	if err != nil {
		return nil, err
	}
	any, err := x509.ParsePKCS8PrivateKey(k.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := any.(*ecdsa.PrivateKey)
	if !ok || !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the CA's key does not belong to its certificate, or is of another kind than rdistcc makes")
	}
	return &CA{cert, key}, nil
}

// Expires returns when the CA expires, and with it everything that it has signed.
func (a *CA) Expires() time.Time { return a.cert.NotAfter }

// Request describes a certificate to be issued.
type Request struct {
	Role     identity.Role
	Names    []string // host names and addresses; for a client, the first one is its name
	From, To time.Time
}

// Issue issues a certificate, and returns it with its key.
func (a *CA) Issue(r Request) (Pair, error) {
	if len(r.Names) == 0 {
		return Pair{}, errors.New("a certificate needs a name")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: r.Names[0]},
		NotBefore: r.From, NotAfter: r.To, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if r.Role == identity.Daemon {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, n := range r.Names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	_, p, err := sign(t, a.cert, key, a.key)
	return p, err
}

// Valid returns the validity of a Request from now on for life, limited by the CA's.
func (a *CA) Valid(now time.Time, life time.Duration) (from, to time.Time) {
	from, to = now.Add(-skew), now.Add(life)
	if to.After(a.cert.NotAfter) {
		to = a.cert.NotAfter
	}
	return from, to
}

// serial returns a random serial number of 127 bits.
func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(fmt.Sprintf("authority: the system's random numbers: %v", err)) // never fails, according to its documentation
	}
	return n
}

func sign(t, parent *x509.Certificate, key, by *ecdsa.PrivateKey) (*CA, Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, by)
	if err != nil {
		return nil, Pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, Pair{}, err
	}
	return &CA{cert, key}, Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}
