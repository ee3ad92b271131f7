package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
)

// maxFile bounds a file, in bytes.
const maxFile = 1 << 20

// credentials holds the content of the files. It does not change once made, except for what is remembered.
type credentials struct {
	cert  tls.Certificate
	leaf  *x509.Certificate // of cert
	end   time.Time         // when it, or the CA that it depends on, expires
	name  string            // name in the certificate
	roots *x509.CertPool
	ca    []byte // PEM

	signers signers // daemons whose results were verified by the CA
	keepers signers // daemons and clients whose signatures in stores were

	psk *psk.Key // with a shared key, only this is set
}

// same reports whether both have the same content.
func (c *credentials) same(d *credentials) bool {
	return reflect.DeepEqual(c.psk, d.psk) && bytes.Equal(c.ca, d.ca) && slices.EqualFunc(c.cert.Certificate, d.cert.Certificate, bytes.Equal)
}

// load reads and checks a role's files.
func load(role Role, mode Mode, s Settings, now time.Time) (*credentials, error) {
	if mode == PSK {
		k, err := psk.Load(s.PSKFile)
		if err != nil {
			return nil, err
		}
		return &credentials{psk: k}, nil
	}
	cert, err := readFile("certificate", s.Cert, false)
	if err != nil {
		return nil, err
	}
	key, err := readFile("key", s.Key, true)
	if err != nil {
		return nil, err
	}
	ca, err := readFile("CA", s.CA, false)
	if err != nil {
		return nil, err
	}
	c := &credentials{roots: x509.NewCertPool(), ca: ca}
	chain, err := certificates("certificate", s.Cert, cert)
	if err != nil {
		return nil, err
	}
	roots, err := certificates("CA", s.CA, ca)
	if err != nil {
		return nil, err
	}
	for _, r := range roots {
		if !r.IsCA {
			return nil, fmt.Errorf("CA %s: the certificate of %q is no CA's", s.CA, subject(r))
		}
		c.roots.AddCert(r)
	}
	if c.cert, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, keyError(s, key, err)
	}
	c.leaf = chain[0]
	if c.name, err = nameOf(c.leaf); err != nil {
		return nil, fmt.Errorf("certificate %s: %w", s.Cert, err)
	}
	usage, word := usageOf(role)
	if !slices.Contains(c.leaf.ExtKeyUsage, usage) {
		return nil, fmt.Errorf("certificate %s: is not for %s: it lacks the extended key usage %s; `rdistcc certs` makes such ones", s.Cert, roleWord(role), word)
	}
	if c.end, err = validUntil(c.leaf, chain[1:], c.roots, usage, now); err != nil {
		var unknown x509.UnknownAuthorityError
		switch {
		case errors.As(err, &unknown):
			return nil, fmt.Errorf("certificate %s: not signed by the CA in %s", s.Cert, s.CA)
		case timeProblem(err, now) != "":
			return nil, fmt.Errorf("certificate %s: %s", s.Cert, timeProblem(err, now))
		}
		return nil, fmt.Errorf("certificate %s: %w", s.Cert, err)
	}
	return c, nil
}

// readFile reads a file. It refuses one that others may write, and a secret one that everybody may read.
func readFile(what, path string, secret bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe without a writer
	if err != nil {
		err = pathError(err)
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("%s %s: %w (for user %d)", what, path, err, os.Geteuid())
		}
		return nil, fmt.Errorf("%s %s: %w", what, path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", what, path, pathError(err))
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s %s: not a regular file", what, path)
	case st.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s %s: others than its owner may write it; use chmod go-w %s", what, path, path)
	case secret && st.Mode().Perm()&0o004 != 0:
		return nil, fmt.Errorf("%s %s: everybody may read it; use chmod o= %s", what, path, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", what, path, pathError(err))
	case len(text) > maxFile:
		return nil, fmt.Errorf("%s %s: longer than %d bytes", what, path, maxFile)
	}
	return text, nil
}

// certificates returns all certificates in a PEM file; there must be at least one.
func certificates(what, path string, text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", what, path, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s %s: holds no certificate in PEM (-----BEGIN CERTIFICATE-----)", what, path)
	}
	return all, nil
}

// keyError describes why key does not fit the certificate.
func keyError(s Settings, key []byte, err error) error {
	b, _ := pem.Decode(key)
	switch {
	case b == nil || !strings.HasSuffix(b.Type, "PRIVATE KEY") && b.Type != "EC PARAMETERS":
		return fmt.Errorf("key %s: holds no private key in PEM (-----BEGIN PRIVATE KEY-----)", s.Key)
	case strings.Contains(b.Type, "ENCRYPTED") || b.Headers["DEK-Info"] != "":
		return fmt.Errorf("key %s: is encrypted, and its passphrase cannot be asked for; use a key without one", s.Key)
	case strings.Contains(err.Error(), "does not match"):
		return fmt.Errorf("key %s: does not belong to the certificate %s", s.Key, s.Cert)
	}
	return fmt.Errorf("key %s: %s", s.Key, strings.TrimPrefix(err.Error(), "tls: "))
}
