package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Trusted names those whose signatures on results in stores count.
type Trusted struct {
	Farm  bool     // all machines of the farm: with a certificate that a CA of this side has signed
	Names []string // without Farm, those of these machines that have such a name
	// Files are PEM files. A CA in one of them stands for all machines with a certificate of its; another certificate, and a
	// public key, for its owner alone.
	Files []string
	Not   []string // names that never count
}

// Trust decides whose signatures on results in stores count. Its methods may be called from any goroutine.
//
// A certificate of a daemon and one of a client count alike, as both can have things compiled for others. A signature stays
// valid when its certificate has expired since, for as long as afterwards says.
type Trust struct {
	whom Trusted
	id   *Identity
	now  func() time.Time

	mu     sync.Mutex // guards what follows
	looked time.Time  // when the files were last checked
	seen   []stamp    // of them, as last loaded or refused
	told   string     // the last complaint in the log
	files  *circle    // what they say
}

// afterwards is for how long a signature counts after its certificate has expired. The time of the result, which is signed, has to
// be before that; but only whoever had the key can tell whether that is true.
const afterwards = 30 * 24 * time.Hour

// ErrStranger is wrapped by errors about a signature of somebody whose signatures do not count.
var ErrStranger = errors.New("its signature does not count here (cache.trust)")

// circle is one set of those whose signatures count.
type circle struct {
	roots *x509.CertPool
	certs []*x509.Certificate // that count by themselves
	keys  [][]byte            // likewise, as in certificates
	names []string            // that they have to have; nil: any

	keepers *signers // of it that were verified
}

// NewTrust returns the Trust of a process with that identity. An error is one line that names the file and the remedy.
func NewTrust(id *Identity, whom Trusted) (*Trust, error) {
	if (whom.Farm || len(whom.Names) > 0) && id.mode != TLS {
		return nil, errors.New("cache.trust: farm: there are no certificates of this farm without auth.tls")
	}
	t := &Trust{whom: whom, id: id, now: id.now, files: &circle{keepers: new(signers)}}
	if len(whom.Files) > 0 {
		t.seen = t.stamps()
		if err := t.loadLocked(t.now()); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Verify verifies a signature of SignKept for the sum of a result that says that it was made at that time. It returns the name
// in the signer's certificate. The error wraps ErrStranger if the signature may be right, but does not count.
func (t *Trust) Verify(sum [sha256.Size]byte, made time.Time, signature []byte) (who string, err error) {
	sig, chain, err := split(signature)
	if err != nil {
		return "", err
	}
	s, err := t.signer(chain, made)
	if err != nil {
		return "", err
	}
	if err := s.leaf.CheckSignature(s.algorithm, signed(keptContext, sum), sig); err != nil {
		return "", fmt.Errorf("not the signature of %s: %w", s.name, err)
	}
	return s.name, nil
}

// Accepts returns why signatures of whoever has made this one do not count any more. It is for what Verify has accepted before, and
// verifies neither what is signed nor that a certificate is valid now.
func (t *Trust) Accepts(made time.Time, signature []byte) error {
	_, chain, err := split(signature)
	if err == nil {
		_, err = t.signer(chain, made)
	}
	if errors.Is(err, ErrExpired) {
		return nil
	}
	return err
}

// signer returns whom a chain of certificates is for.
func (t *Trust) signer(chain []byte, made time.Time) (*signer, error) {
	now, sum := t.now(), sha256.Sum256(chain)
	err := fmt.Errorf("%w: nobody's does", ErrStranger)
	for _, c := range t.circles(now) {
		s, why := c.find(sum, chain, now, made)
		switch {
		case why == nil && slices.Contains(t.whom.Not, s.name):
			return nil, fmt.Errorf("%w: %s is excepted", ErrStranger, s.name)
		case why == nil && c.names != nil && !slices.Contains(c.names, s.name):
			err = fmt.Errorf("%w: %s is none of the machines of the farm that do", ErrStranger, s.name)
		case why == nil:
			return s, nil
		case !errors.Is(err, ErrExpired):
			err = why // that of somebody who counts says most
		}
	}
	return nil, err
}

// circles returns those in force.
func (t *Trust) circles(now time.Time) (all []*circle) {
	if t.whom.Farm || len(t.whom.Names) > 0 {
		own := t.id.credentials()
		farm := &circle{roots: own.roots, keepers: &own.keepers}
		if !t.whom.Farm {
			farm.names = t.whom.Names
		}
		all = append(all, farm)
	}
	if len(t.whom.Files) > 0 {
		all = append(all, t.current(now))
	}
	return all
}

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

func (t *Trust) stamps() (all []stamp) {
	for _, f := range t.whom.Files {
		all = append(all, stampOf(f))
	}
	return all
}

// current returns what the files say, after checking them for changes.
func (t *Trust) current(now time.Time) *circle {
	t.mu.Lock()
	defer t.mu.Unlock()
	if age := now.Sub(t.looked); age >= 0 && age < lookEvery {
		return t.files
	}
	t.looked = now
	if s := t.stamps(); !slices.Equal(s, t.seen) {
		t.seen = s
		if err := t.loadLocked(now); err != nil && err.Error() != t.told {
			t.told = err.Error()
			t.id.logger().Warn("whose results count is as before", "err", err)
		}
	}
	return t.files
}

// loadLocked reads the files, whose stamps are those of seen. On error what they said before stays in force.
func (t *Trust) loadLocked(now time.Time) error {
	t.looked = now
	if fresh(t.seen, now) {
		t.seen = nil // read again at the next check
	}
	c := &circle{keepers: new(signers)}
	for _, path := range t.whom.Files {
		text, err := readFile("cache.trust:", path, false)
		if err != nil {
			return err
		}
		if err := c.add(path, text); err != nil {
			return err
		}
	}
	t.files, t.told = c, ""
	return nil
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
