package main

import (
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
)

// TestDistccIsRefused: clients that prove nothing are served only where the settings say so clearly.
func TestDistccIsRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		set     config.Distcc
		mode    identity.Mode
		other   string // provider
		refusal string // "": it is served
	}{
		{name: "off"},
		{name: "off, with certificates", mode: identity.TLS},
		{name: "off, but networks", set: config.Distcc{Allow: []string{"10.0.0.0/8"}}, mode: identity.TLS},
		{name: "loopback", set: config.Distcc{Listen: []string{"127.0.0.1:3632", "[::1]:3632", "localhost:3632"}}},
		{name: "beyond, with networks", set: config.Distcc{Listen: []string{"10.0.0.1:3632"}, Allow: []string{"10.0.0.0/8"}}},
		{name: "certificates, and said", set: config.Distcc{Listen: []string{":3632"}, Allow: []string{"10.0.0.0/8"}, WithoutProof: true}, mode: identity.TLS},
		{name: "beyond", set: config.Distcc{Listen: []string{"10.0.0.1:3632"}}, refusal: "--distcc-allow 10.0.0.0/8"},
		{name: "everywhere", set: config.Distcc{Listen: []string{":3632"}}, refusal: "they prove nothing"},
		{name: "by name", set: config.Distcc{Listen: []string{"build1:3632"}}, refusal: "they prove nothing"},
		{name: "certificates", set: config.Distcc{Listen: []string{"127.0.0.1:3632"}}, mode: identity.TLS, refusal: "without-proof: true"},
		{name: "a key", set: config.Distcc{Listen: []string{"127.0.0.1:3632"}}, mode: identity.PSK, refusal: "without-proof: true"},
		{name: "said, but no networks", set: config.Distcc{Listen: []string{":3632"}, WithoutProof: true}, mode: identity.PSK, refusal: "--distcc-allow"},
		{name: "an adapter", set: config.Distcc{Listen: []string{"127.0.0.1:3632"}}, other: "ibverbs", refusal: "--provider soft only"},
	} {
		cfg := config.Default()
		cfg.Distcc = c.set
		if c.other != "" {
			cfg.Daemon.Provider = c.other
		}
		err := checkDistcc(cfg, c.mode)
		switch {
		case (err == nil) != (c.refusal == ""):
			t.Errorf("%s: %v", c.name, err)
		case err != nil && (!strings.Contains(err.Error(), c.refusal) || strings.Contains(err.Error(), "\n") || exitCode(err) != exitArguments):
			t.Errorf("%s: %v; want %q", c.name, err, c.refusal)
		}
	}
}

// TestDistccStarts: the daemon listens for clients of distcc, says what that means, and a taken address is an error that names it.
func TestDistccStarts(t *testing.T) {
	d := start(t, command(t, "--listen", "127.0.0.1:0", "--http", "", "--distcc", "127.0.0.1:0"))
	addr := d.find(`PROVE NOTHING.* addr=(\S+) allowed="this machine only"`)
	other := start(t, command(t, "--listen", "127.0.0.1:0", "--http", "", "--distcc", addr))
	other.find("serve clients of distcc on " + addr + ": address already in use; stop the distccd")
	other.stops(exitInUse)
	beyond := start(t, command(t, "--listen", "127.0.0.1:0", "--http", "", "--distcc", "0.0.0.0:0"))
	beyond.find("they prove nothing")
	beyond.stops(exitArguments)
}
