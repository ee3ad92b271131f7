package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/capture"
)

// authKey is the context key of the identity flags' values.
type authKey struct{}

// commonFlags adds the flags that are the same for all subcommands: of identity, and of captures. close ends a capture.
func commonFlags(root *cobra.Command, stderr io.Writer) (close func() error) {
	var s identity.Settings
	var record captureFlags
	var file *capture.File
	f := root.PersistentFlags()
	f.StringVar(&s.PSKFile, "psk-file", "", "prove that we know the key in this `FILE`, and ask for that proof (submit, and tests between two rdistcc-perf)")
	f.StringVar(&s.Cert, "tls-cert", "", "speak TLS 1.3 with the certificate in this `FILE`")
	f.StringVar(&s.Key, "tls-key", "", "key of --tls-cert, a `FILE`")
	f.StringVar(&s.CA, "tls-ca", "", "`FILE` with the CA that signs the other side's certificate")
	record.add(f)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) (err error) {
		c.SetContext(context.WithValue(c.Context(), authKey{}, s))
		if file, err = record.open(c, stderr); err != nil {
			return &exitError{exitArguments, err}
		}
		return nil
	}
	return func() error {
		if file == nil {
			return nil
		}
		return file.Close()
	}
}

// identityOf returns this side's identity according to the flags.
func identityOf(ctx context.Context, role identity.Role) (*identity.Identity, error) {
	s, _ := ctx.Value(authKey{}).(identity.Settings)
	id, err := identity.New(role, s)
	if err != nil {
		return nil, &exitError{exitArguments, err}
	}
	return id, nil
}

// openDevice opens the software device. The listening side has the daemon's role.
func openDevice(ctx context.Context, role identity.Role) (iwarp.Device, error) {
	dev, key, err := openProving(ctx, role)
	if err == nil && key != nil {
		return nil, errors.Join(&exitError{exitArguments, errors.New("--psk-file: other programs' protocols have no message that could prove a key; use --tls-cert, --tls-key and --tls-ca")}, dev.Close())
	}
	return dev, err
}

// openProving is openDevice for a test that can prove a pre-shared key, if there is one.
func openProving(ctx context.Context, role identity.Role) (iwarp.Device, *psk.Key, error) {
	id, err := identityOf(ctx, role)
	if err != nil {
		return nil, nil, err
	}
	dev, err := iwarp.Open(deviceConfig(ctx, id))
	return dev, id.Key(), err
}

// sideRole returns the role of a server or a client.
func sideRole(server bool) identity.Role {
	if server {
		return identity.Daemon
	}
	return identity.Client
}

// noAuth rejects the flags where a test uses TCP only.
func noAuth(ctx context.Context, o *options) error {
	if s, _ := ctx.Value(authKey{}).(identity.Settings); s != (identity.Settings{}) {
		return &exitError{exitArguments, errors.New(o.t.name + " measures TCP alone: it takes no certificates and no key")}
	}
	return nil
}
