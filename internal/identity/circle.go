package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// circle is one set of those whose signatures count.
type circle struct {
	roots *x509.CertPool
	certs []*x509.Certificate // that count by themselves
	keys  [][]byte            // likewise, as in certificates
	names []string            // that they have to have; nil: any

	keepers *signers // of it that were verified
}

// afterwards is for how long a signature counts after its certificate has expired. The time of the result, which is signed, has to
// be before that; but only whoever had the key can tell whether that is true.
const afterwards = 30 * 24 * time.Hour

// find returns whom a chain of certificates with that sum is for.
func (c *circle) find(sum [sha256.Size]byte, chain []byte, now, made time.Time) (*signer, error) {
	s := c.keepers.known(sum)
	if s == nil {
		var err error
		if s, err = c.verify(chain, now, made); err != nil {
			return nil, err
		}
		c.keepers.note(sum, s)
	}
	switch {
	case s.end.IsZero(), now.Before(s.end):
		return s, nil
	case !made.Before(s.end) || made.Before(s.leaf.NotBefore):
		return nil, fmt.Errorf("%w: %s made it at another time than its certificate was valid", ErrExpired, s.name)
	case now.Sub(s.end) > afterwards:
		return nil, fmt.Errorf("%w: that of %s expired on %s, more than %d days ago", ErrExpired, s.name, when(s.end), afterwards/(24*time.Hour))
	}
	return s, nil
}

// verify verifies a chain of certificates, as of now, or if one of them has expired, as of the time when a result was made.
func (c *circle) verify(chain []byte, now, made time.Time) (*signer, error) {
	certs, err := x509.ParseCertificates(chain)
	if err != nil || len(certs) == 0 {
		return nil, errMalformed
	}
	s := &signer{leaf: certs[0]}
	if err := s.complete(); err != nil {
		return nil, err
	}
	key := func(k []byte) bool { return bytes.Equal(k, s.leaf.RawSubjectPublicKeyInfo) }
	switch {
	case slices.ContainsFunc(c.keys, key):
		return s, nil
	case now.Before(s.leaf.NotBefore):
		return nil, fmt.Errorf("%w: that of %s is not valid before %s; the clock here says %s", ErrExpired, s.name, when(s.leaf.NotBefore), when(now))
	case slices.ContainsFunc(c.certs, s.leaf.Equal):
		s.end = s.leaf.NotAfter
		return s, nil
	case c.roots == nil:
		return nil, fmt.Errorf("%w: it is that of %s", ErrStranger, s.name)
	}
	usage := x509.ExtKeyUsageClientAuth
	if slices.Contains(s.leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		usage = x509.ExtKeyUsageServerAuth
	}
	s.end, err = validUntil(s.leaf, certs[1:], c.roots, usage, now)
	if err != nil && timeProblem(err, now) != "" {
		s.end, err = validUntil(s.leaf, certs[1:], c.roots, usage, made)
	}
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil:
		return s, nil
	case errors.As(err, &unknown):
		return nil, fmt.Errorf("%w: no CA that counts has signed the certificate of %s", ErrStranger, s.name)
	case timeProblem(err, made) != "":
		return nil, fmt.Errorf("%w: %s made it at another time than its certificate was valid", ErrExpired, s.name)
	}
	return nil, fmt.Errorf("%w: the certificate of %s: %w", ErrStranger, s.name, err)
}

// add adds what is in a file.
func (c *circle) add(path string, text []byte) error {
	found := false
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			break
		}
		switch b.Type {
		case "CERTIFICATE":
			cert, err := x509.ParseCertificate(b.Bytes)
			switch {
			case err != nil:
				return fmt.Errorf("cache.trust: %s: %w", path, err)
			case !cert.IsCA:
				c.certs = append(c.certs, cert)
			case c.roots == nil:
				c.roots = x509.NewCertPool()
				fallthrough
			default:
				c.roots.AddCert(cert)
			}
		case "PUBLIC KEY":
			if _, err := x509.ParsePKIXPublicKey(b.Bytes); err != nil {
				return fmt.Errorf("cache.trust: %s: %w", path, err)
			}
			c.keys = append(c.keys, b.Bytes)
		default:
			continue
		}
		found = true
	}
	if !found {
		return fmt.Errorf("cache.trust: %s: holds neither a certificate (-----BEGIN CERTIFICATE-----) nor a public key (-----BEGIN PUBLIC KEY-----) in PEM", path)
	}
	return nil
}
