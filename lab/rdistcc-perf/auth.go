package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// authKey is the context key of the identity flags' values.
type authKey struct{}

// authFlags adds the identity flags, which are the same for all subcommands.
func authFlags(root *cobra.Command) {
	var s identity.Settings
	f := root.PersistentFlags()
	f.StringVar(&s.PSKFile, "psk-file", "", "prove that we know the key in this `FILE`, and ask for that proof (submit, and tests between two rdistcc-perf)")
	f.StringVar(&s.Cert, "tls-cert", "", "speak TLS 1.3 with the certificate in this `FILE`")
	f.StringVar(&s.Key, "tls-key", "", "key of --tls-cert, a `FILE`")
	f.StringVar(&s.CA, "tls-ca", "", "`FILE` with the CA that signs the other side's certificate")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		c.SetContext(context.WithValue(c.Context(), authKey{}, s))
		return nil
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
	dev, err := iwarp.Open(iwarp.Config{Dial: id.Dial, Listen: id.Listen})
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
