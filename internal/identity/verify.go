package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// usageOf returns the usage that a role's certificate must have, and its name.
func usageOf(r Role) (x509.ExtKeyUsage, string) {
	if r == Daemon {
		return x509.ExtKeyUsageServerAuth, "serverAuth"
	}
	return x509.ExtKeyUsageClientAuth, "clientAuth"
}

func roleWord(r Role) string {
	if r == Daemon {
		return "a daemon"
	}
	return "a client"
}

// verify checks a certificate and its chain. The usage must be stated: x509 alone accepts a certificate without
// one for any usage.
func verify(leaf *x509.Certificate, rest []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage, now time.Time) error {
	_, err := validUntil(leaf, rest, roots, usage, now)
	return err
}

// validUntil is verify, and also returns when the answer will change: when the certificate, or one that it
// depends on, expires.
func validUntil(leaf *x509.Certificate, rest []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage, now time.Time) (end time.Time, err error) {
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range rest {
		o.Intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(o)
	if err != nil {
		return end, err
	}
	for _, chain := range chains {
		first := leaf.NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if first.After(end) {
			end = first
		}
	}
	return end, named(leaf, usage)
}

// errRole means that the certificate is not for the peer's side of a connection.
var errRole = errors.New("the certificate is not for this side of a connection")

func named(leaf *x509.Certificate, usage x509.ExtKeyUsage) error {
	if !slices.Contains(leaf.ExtKeyUsage, usage) {
		return errRole
	}
	return nil
}

// timeProblem describes a certificate outside its validity, with the time here; "" if that is not the problem.
func timeProblem(err error, now time.Time) string {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return ""
	}
	c := invalid.Cert
	of := ""
	if c.IsCA {
		of = "its CA's "
	}
	if now.Before(c.NotBefore) {
		return fmt.Sprintf("%snot valid before %s; the clock here says %s", of, when(c.NotBefore), when(now))
	}
	return fmt.Sprintf("%sexpired on %s; the clock here says %s", of, when(c.NotAfter), when(now))
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// maxName bounds the name of a peer, in bytes.
const maxName = 100

// nameOf returns the name of a certificate's owner: its first DNS name, URI, common name or address. It appears in
// logs and pages. A name that is long, or holds anything but visible ASCII, is rejected rather than changed, so
// that no two clients end up with the same name.
func nameOf(c *x509.Certificate) (string, error) {
	name := c.Subject.CommonName
	switch {
	case len(c.DNSNames) > 0:
		name = c.DNSNames[0]
	case len(c.URIs) > 0:
		name = c.URIs[0].String()
	case name == "" && len(c.IPAddresses) > 0:
		name = c.IPAddresses[0].String()
	}
	bad := strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'\\<>`", r) })
	switch {
	case name == "":
		return "", errors.New("has no name: it needs a DNS name, a URI or a common name")
	case bad || len(name) > maxName:
		return "", fmt.Errorf("its name %.110q is not %d or fewer visible characters of ASCII without quotes", name, maxName)
	}
	return name, nil
}

// subject returns the name of a CA for messages.
func subject(c *x509.Certificate) string {
	s := c.Subject.String()
	return s[:min(len(s), maxName)]
}

// isFor checks that a daemon's certificate is for the host that was dialled.
func isFor(leaf *x509.Certificate, host string) error {
	if leaf.VerifyHostname(Anyone) == nil {
		return nil
	}
	if ip := strings.IndexByte(host, '%'); ip > 0 { // a zone means something on this machine only
		host = host[:ip]
	}
	if leaf.VerifyHostname(host) == nil {
		return nil
	}
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	text := strings.Join(names, ", ")
	return &Error{Cause: CauseWrongName, Text: fmt.Sprintf("its certificate is for %.200q, not for %.100q and not for %s (any daemon)", text, host, Anyone)}
}
