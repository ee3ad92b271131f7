// Package tlsfiles reads what a client needs for TLS from PEM files.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Client returns what a client needs for TLS. ca has the CA that signs the server's certificate; without it, the system's CAs are
// trusted. cert and key are a certificate for servers that ask for one, or both empty. Errors begin with the settings' section.
func Client(section, ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%s.ca: %w", section, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s.ca: %s has no certificate in PEM form", section, ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s.cert: %w", section, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
