package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A daemon signs the results that it makes for several clients, and a build host those that it puts into a store which
// others use, by the key of its certificate. Whoever has the CA can verify such a signature, wherever the result comes from.
//
//	0        2
//	| length | signature | certificate, and those between it and the CA; each DER |
//
// What is signed begins as what TLS 1.3 signs does (RFC 8446 §4.4.3), with words of its own: "This structure is
// intended to prevent an attack on previous versions of TLS" in which a signature for one purpose serves for
// another.
var (
	resultContext = strings.Repeat(" ", 64) + "rdistcc, result of a compile\x00"
	keptContext   = strings.Repeat(" ", 64) + "rdistcc, result kept in a store\x00"
)

// Bounds of a signature.
const (
	lengthLen     = 2        // of its first field, in bytes
	mostSignature = 12 << 10 // bytes with the certificates
)

// Errors of SignResult and VerifyResult. Others are those of package x509.
var (
	errNoCertificate = errors.New("this side has no certificates to prove with who made a result")
	errMalformed     = errors.New("a signature that is malformed")
	// ErrExpired is wrapped by errors about a certificate that was valid at another time.
	ErrExpired = errors.New("its certificate is not valid now")
)

// signed returns the message that is signed for a result with that sum.
func signed(context string, sum [sha256.Size]byte) []byte {
	return append([]byte(context), sum[:]...)
}

// SignResult signs the sum of a result that this side has made, with the key of its certificate.
func (id *Identity) SignResult(sum [sha256.Size]byte) ([]byte, error) {
	return id.sign(resultContext, sum)
}

// SignKept signs the sum of a result that this side puts into a store, likewise. Its certificate has to be valid now.
func (id *Identity) SignKept(sum [sha256.Size]byte) ([]byte, error) {
	if end := id.Expires(); id.mode == TLS && !id.now().Before(end) {
		return nil, fmt.Errorf("certificate %s: expired on %s", id.s.Cert, when(end))
	}
	return id.sign(keptContext, sum)
}

func (id *Identity) sign(context string, sum [sha256.Size]byte) ([]byte, error) {
	if id.mode != TLS {
		return nil, errNoCertificate
	}
	own := id.credentials()
	_, hash, err := algorithm(own.leaf)
	if err != nil {
		return nil, err
	}
	key, ok := own.cert.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key %s: cannot sign", id.s.Key) // cannot be: TLS needs one that can
	}
	message := signed(context, sum)
	opts := crypto.SignerOpts(hash)
	if hash != 0 {
		h := hash.New()
		h.Write(message)
		message = h.Sum(nil)
	}
	if _, is := key.Public().(*rsa.PublicKey); is {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	sig, err := key.Sign(rand.Reader, message, opts)
	if err != nil {
		return nil, fmt.Errorf("sign a result: %w", err)
	}
	b := binary.BigEndian.AppendUint16(nil, uint16(len(sig)))
	b = append(b, sig...)
	for _, der := range own.cert.Certificate {
		b = append(b, der...)
	}
	if len(b) > mostSignature {
		return nil, fmt.Errorf("certificate %s: with all that it depends on, too long to go with each result", id.s.Cert)
	}
	return b, nil
}

// algorithm returns how the key of a certificate signs: as under TLS 1.3, by one algorithm for each kind of key.
// hash is 0 if the key signs a message itself.
func algorithm(leaf *x509.Certificate) (a x509.SignatureAlgorithm, hash crypto.Hash, err error) {
	switch k := leaf.PublicKey.(type) {
	case ed25519.PublicKey:
		return x509.PureEd25519, 0, nil
	case *rsa.PublicKey:
		return x509.SHA256WithRSAPSS, crypto.SHA256, nil
	case *ecdsa.PublicKey:
		switch bits := k.Curve.Params().BitSize; {
		case bits <= 256:
			return x509.ECDSAWithSHA256, crypto.SHA256, nil
		case bits <= 384:
			return x509.ECDSAWithSHA384, crypto.SHA384, nil
		}
		return x509.ECDSAWithSHA512, crypto.SHA512, nil
	}
	return 0, 0, fmt.Errorf("a certificate with a key of the kind %T, by which results cannot be signed", leaf.PublicKey)
}

// VerifyResult verifies a signature of SignResult for a sum: a daemon has made it, whose certificate is valid now
// for the CA of this side. It returns the name in the certificate.
func (id *Identity) VerifyResult(sum [sha256.Size]byte, signature []byte) (host string, err error) {
	if id.mode != TLS {
		return "", errNoCertificate
	}
	sig, chain, err := split(signature)
	if err != nil {
		return "", err
	}
	own := id.credentials()
	s, err := own.signers.find(chain, own, id.now())
	if err != nil {
		return "", err
	}
	if err := s.leaf.CheckSignature(s.algorithm, signed(resultContext, sum), sig); err != nil {
		return "", fmt.Errorf("not the signature of %s: %w", s.name, err)
	}
	return s.name, nil
}

// split returns the parts of a signature: what the key has made, and the certificates.
func split(signature []byte) (sig, chain []byte, err error) {
	if len(signature) < lengthLen || len(signature) > mostSignature {
		return nil, nil, errMalformed
	}
	n := int(binary.BigEndian.Uint16(signature))
	if n > len(signature)-lengthLen {
		return nil, nil, errMalformed
	}
	return signature[lengthLen:][:n], signature[lengthLen+n:], nil
}

// signer is whoever has signed results, by a certificate that was verified.
type signer struct {
	leaf      *x509.Certificate
	name      string
	algorithm x509.SignatureAlgorithm
	end       time.Time // when it, or one that it depends on, expires; zero: the key counts, whatever its certificate says
}

// signers are those whose signatures were seen, by the sums of their certificates. The zero value has none.
type signers struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]*signer
}

// mostSigners bounds a signers: more than a farm has hosts.
const mostSigners = 1024

// find returns the daemon that a chain of certificates is for.
func (v *signers) find(chain []byte, own *credentials, now time.Time) (*signer, error) {
	sum := sha256.Sum256(chain)
	if s := v.known(sum); s != nil && now.Before(s.end) {
		return s, nil
	}
	s, err := newSigner(chain, own, now)
	v.note(sum, s)
	return s, err
}

// known returns the signer whose certificates have that sum, or nil.
func (v *signers) known(sum [sha256.Size]byte) *signer {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[sum]
}

// note remembers a signer, or forgets it if s is nil.
func (v *signers) note(sum [sha256.Size]byte, s *signer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.all, sum)
	if s == nil {
		return
	}
	if len(v.all) >= mostSigners {
		clear(v.all)
	}
	if v.all == nil {
		v.all = make(map[[sha256.Size]byte]*signer)
	}
	v.all[sum] = s
}

// newSigner returns the daemon that a chain of certificates is for, which the CA of this side has to have signed.
func newSigner(chain []byte, own *credentials, now time.Time) (*signer, error) {
	certs, err := x509.ParseCertificates(chain)
	if err != nil || len(certs) == 0 {
		return nil, errMalformed
	}
	s := &signer{leaf: certs[0]}
	if s.end, err = validUntil(s.leaf, certs[1:], own.roots, x509.ExtKeyUsageServerAuth, now); err != nil {
		if timeProblem(err, now) != "" {
			return nil, fmt.Errorf("%w: %s", ErrExpired, timeProblem(err, now))
		}
		return nil, err
	}
	if err := s.complete(); err != nil {
		return nil, err
	}
	return s, nil
}

// complete sets what its certificate says of a signer.
func (s *signer) complete() (err error) {
	if s.leaf.KeyUsage != 0 && s.leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return errors.New("its certificate is not for signatures")
	}
	if s.name, err = nameOf(s.leaf); err != nil {
		return fmt.Errorf("its certificate %w", err)
	}
	s.algorithm, _, err = algorithm(s.leaf)
	return err
}
