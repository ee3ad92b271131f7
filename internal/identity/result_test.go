package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity"
)

// kindsOfKeys are the kinds of keys that certificates of a user's own CA may have.
var kindsOfKeys = map[string]func() (crypto.Signer, error){
	"P-256": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	"P-384": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
	"P-521": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) },
	"RSA":   func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) },
	"Ed25519": func() (crypto.Signer, error) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	},
}

// chained writes the pair of a daemon with a key of some kind, below a CA between it and the root.
func (c *ca) chained(key func() (crypto.Signer, error)) identity.Settings {
	c.t.Helper()
	now := time.Now()
	var file []byte
	issue := func(t, parent *x509.Certificate, by crypto.Signer) (*x509.Certificate, crypto.Signer) {
		c.t.Helper()
		k, err := key()
		if err != nil {
			c.t.Fatal(err)
		}
		t.SerialNumber, t.NotBefore, t.NotAfter, t.BasicConstraintsValid = big.NewInt(now.UnixNano()), now.Add(-time.Hour), now.Add(time.Hour), true
		if parent == nil {
			parent, by = t, k
		}
		der, err := x509.CreateCertificate(rand.Reader, t, parent, k.Public(), by)
		if err != nil {
			c.t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			c.t.Fatal(err)
		}
		file = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), file...)
		return cert, k
	}
	root, rootKey := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "root"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	roots := c.write("root.crt", file, 0o644)
	file = nil
	between, betweenKey := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "between"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}, root, rootKey)
	_, leafKey := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "build7"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, between, betweenKey)
	secret, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		c.t.Fatal(err)
	}
	return identity.Settings{Cert: c.write("leaf.crt", file, 0o644), Key: c.write("leaf.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600), CA: roots}
}

// TestSignedResults: a client of the farm verifies what a daemon has signed, whatever kind of key that has. A
// signature that differs in any byte, or is for another result, is not accepted.
func TestSignedResults(t *testing.T) {
	for kind, key := range kindsOfKeys {
		s := newCA(t).chained(key)
		daemon, client := mustNew(t, identity.Daemon, s), mustNew(t, identity.Client, s)
		sum := [32]byte{1, 2, 3}
		sig, err := daemon.SignResult(sum)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if who, err := client.VerifyResult(sum, sig); err != nil || who != "build7" {
			t.Errorf("%s: %q, %v", kind, who, err)
		}
		if who, err := client.VerifyResult([32]byte{1, 2}, sig); err == nil {
			t.Errorf("%s: another result is accepted as that of %s", kind, who)
		}
		n := int(sig[0])<<8 | int(sig[1])
		for i := range sig {
			if i > n+2 && i%7 != 0 { // enough of the certificates
				continue
			}
			sig[i] ^= 0x40
			if who, err := client.VerifyResult(sum, sig); err == nil {
				t.Errorf("%s: byte %d is another, and it is accepted as that of %s", kind, i, who)
			}
			sig[i] ^= 0x40
		}
		for i := range len(sig) {
			if i > n+2 && i%7 != 0 {
				continue
			}
			if who, err := client.VerifyResult(sum, sig[:i]); err == nil {
				t.Errorf("%s: cut after %d bytes, and it is accepted as that of %s", kind, i, who)
			}
		}
	}
}

// TestResultsOfOthers: nobody but a daemon with a certificate of this CA that is valid now can sign a result.
func TestResultsOfOthers(t *testing.T) {
	farm, other := newCA(t), newCA(t)
	sum := [32]byte{9}
	later := time.Now()
	client := use(t, identity.Client, farm.client(), func() time.Time { return later })
	sign := func(role identity.Role, s identity.Settings) []byte {
		t.Helper()
		sig, err := mustNew(t, role, s).SignResult(sum)
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	good := sign(identity.Daemon, farm.daemon("build7"))
	if who, err := client.VerifyResult(sum, good); err != nil || who != "build7" {
		t.Errorf("%q, %v", who, err)
	}
	if who, err := mustNew(t, identity.Daemon, farm.daemon("build9")).VerifyResult(sum, good); err != nil || who != "build7" {
		t.Errorf("at another daemon: %q, %v", who, err)
	}
	for what, sig := range map[string][]byte{
		"a daemon of another CA": sign(identity.Daemon, other.daemon("build7")),
		"a client":               sign(identity.Client, farm.client()),
		"nobody":                 nil,
		"garbage":                make([]byte, 200),
	} {
		if who, err := client.VerifyResult(sum, sig); err == nil || errors.Is(err, identity.ErrExpired) {
			t.Errorf("%s: %q, %v", what, who, err)
		}
	}
	for _, later = range []time.Time{time.Now().Add(2 * time.Hour), time.Now().Add(-3 * time.Hour)} {
		fresh := use(t, identity.Client, farm.client(), func() time.Time { return later })
		for _, id := range []*identity.Identity{client, fresh} { // the one has verified the certificate before
			if who, err := id.VerifyResult(sum, good); !errors.Is(err, identity.ErrExpired) && (id == fresh || later.After(time.Now())) {
				t.Errorf("at %v: %q, %v", later, who, err)
			}
		}
	}
	open := mustNew(t, identity.Daemon, identity.Settings{})
	if _, err := open.SignResult(sum); err == nil {
		t.Error("a daemon without a certificate signs")
	}
	if _, err := open.VerifyResult(sum, good); err == nil {
		t.Error("a side without a CA verifies")
	}
}

// BenchmarkResult is what a signature of each kind costs its host, and a reader.
func BenchmarkResult(b *testing.B) {
	for kind, key := range kindsOfKeys {
		daemon := mustNew(b, identity.Daemon, newCA(b).chained(key))
		sig, err := daemon.SignResult([32]byte{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(kind+"/sign", func(b *testing.B) {
			for b.Loop() {
				_, err = daemon.SignResult([32]byte{})
			}
			b.ReportMetric(float64(len(sig)), "bytes")
		})
		b.Run(kind+"/verify", func(b *testing.B) {
			for b.Loop() {
				_, err = daemon.VerifyResult([32]byte{}, sig)
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
