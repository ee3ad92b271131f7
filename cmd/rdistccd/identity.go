package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rdistcc/rdistcc/internal/config"
	"github.com/rdistcc/rdistcc/internal/identity"
	"github.com/rdistcc/rdistcc/pkg/worker"
)

// openIdentity reads the files of this daemon's identity. An error in them is an error in the
// settings.
func openIdentity(c *config.Config) (*identity.Identity, error) {
	a := c.Auth
	id, err := identity.New(identity.Daemon, identity.Settings{PSKFile: a.PSKFile, Cert: a.TLS.Cert, Key: a.TLS.Key, CA: a.TLS.CA})
	if err != nil {
		return nil, usageError{err}
	}
	if id.Mode() == identity.TLS && c.Daemon.Provider != "soft" {
		return nil, usageError{fmt.Errorf("provider %s does no TLS: what it sends does not go through this program; use a shared key (--psk-file) on a network that is protected otherwise (SECURITY.md, RDMA devices), or --provider soft", c.Daemon.Provider)}
	}
	return id, nil
}

// watchIdentity counts and logs failures to read the files again. If another user than root
// will have to read them, it warns now rather than when they change.
func (d *daemon) watchIdentity(m *worker.Metrics) {
	d.id.OnFailure(m.AuthFailed)
	m.AuthCauses(identity.Causes())
	d.id.SetLog(d.log.Logger)
}

// checkIdentity warns at the start of what will go wrong later.
func (d *daemon) checkIdentity() {
	if err := d.id.Reload(); err != nil {
		d.log.Warn("the files of this daemon's identity cannot be read again as this user: changes will need a restart", "err", err)
	}
	if to := d.id.Expires(); !to.IsZero() && time.Until(to) < soon {
		d.log.Warn("this daemon's certificate expires soon: no manager will connect after that", "expires", to)
	}
}

// soon is how long before its expiry a certificate causes a warning at the start.
const soon = 14 * 24 * time.Hour

// networks returns the networks that may send jobs. If the settings name none, these are all
// networks where peers prove their identity, else this machine alone.
func networks(c *config.Config, mode identity.Mode) []netip.Prefix {
	if len(c.Daemon.Allow) == 0 && mode != identity.Open {
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	return c.Networks()
}

// checkListen refuses to serve everyone who can reach this host. --allow alone does not
// justify it, as addresses are not proof of identity.
func checkListen(c *config.Config, mode identity.Mode) error {
	for _, addr := range c.Daemon.Listen {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return usageError{fmt.Errorf("listen on %s: %w", addr, err)}
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && mode == identity.Open {
			return usageError{exposed(addr)}
		}
	}
	return nil
}

// exposed explains why an address is refused, and the two ways to change that, each as a
// line to copy.
func exposed(addr string) error {
	return errors.New("listen on " + addr + ": anyone who can reach it could run compilers here, whatever --allow says; both sides have to prove their identity (or listen on 127.0.0.1). Do one of these, and take the files to the build hosts:\n" +
		"  rdistcc certs /etc/rdistcc && rdistccd --listen " + addr + " --tls-cert /etc/rdistcc/rdistccd.crt --tls-key /etc/rdistcc/rdistccd.key --tls-ca /etc/rdistcc/ca.crt\n" +
		"  (umask 077; mkdir -p /etc/rdistcc; openssl rand -hex 32 >/etc/rdistcc/key) && rdistccd --listen " + addr + " --psk-file /etc/rdistcc/key")
}

// wireRemedy returns what protects a connection that only a shared key has opened. The connections of a device do not pass
// through this program, so TLS is no remedy for them.
func wireRemedy(provider string) string {
	if provider == "soft" {
		return "use TLS on such networks"
	}
	return "provider " + provider + " has no TLS: keep to a network of your own, or use MACsec or IPsec (SECURITY.md, RDMA devices)"
}

// isLoopback reports whether an address can be reached from this machine only.
func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}
