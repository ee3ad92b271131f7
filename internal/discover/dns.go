package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/hostlist"
)

// addresses returns all addresses of a name, sorted: a resolver returns them in another order each time.
func (f *Finder) addresses(ctx context.Context, name string) ([]hostlist.Host, error) {
	ips, err := f.o.Resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, dnsError(err)
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	ips = slices.Compact(ips)
	hosts := make([]hostlist.Host, 0, min(len(ips), hostlist.MaxHosts))
	for _, ip := range ips[:min(len(ips), hostlist.MaxHosts)] {
		hosts = append(hosts, hostlist.Host{Name: ip.String()})
	}
	return hosts, nil
}

// services returns what a service's SRV records name, lowest priority value first. Weights are ignored: the
// hosts themselves report better figures.
func (t *targets) services(ctx context.Context, name string) ([]hostlist.Host, error) {
	_, records, err := t.resolver.LookupSRV(ctx, "", "", name)
	if err != nil && len(records) == 0 {
		return nil, dnsError(err)
	}
	slices.SortFunc(records, func(a, b *net.SRV) int {
		if c := int(a.Priority) - int(b.Priority); c != 0 {
			return c
		}
		if c := strings.Compare(a.Target, b.Target); c != 0 {
			return c
		}
		return int(a.Port) - int(b.Port)
	})
	var hosts []hostlist.Host
	for _, r := range records {
		target := strings.TrimSuffix(r.Target, ".")
		if target == "" || r.Port == 0 || len(hosts) == hostlist.MaxHosts {
			continue // "." means that there is no such service (RFC 2782)
		}
		hosts = append(hosts, hostlist.Host{Name: target, Port: int(r.Port)})
	}
	if len(hosts) == 0 {
		return nil, errNone
	}
	return t.resolve(ctx, hosts), nil
}

// atOnce bounds how many targets of SRV records are looked up at a time.
const atOnce = 16

// targets holds the targets of a service, with their last known addresses.
type targets struct {
	resolver *net.Resolver
	known    map[string]netip.Addr
}

// resolve replaces names by addresses, so that a resolver which fails later cannot keep the manager from
// connecting. A name that has never had an address stays a name.
func (t *targets) resolve(ctx context.Context, hosts []hostlist.Host) []hostlist.Host {
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	found := make([][]netip.Addr, len(hosts))
	for i := range hosts {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			found[i], _ = t.resolver.LookupNetIP(ctx, "ip", hosts[i].Name) // on error: the previous one
		})
	}
	wg.Wait()
	known := make(map[string]netip.Addr, len(hosts))
	for i := range hosts {
		name := hosts[i].Name
		addr := t.known[name]
		for k := range found[i] {
			found[i][k] = found[i][k].Unmap()
		}
		// Keep one that is still valid; otherwise take the smallest, as their order means nothing.
		if len(found[i]) > 0 && !slices.Contains(found[i], addr) {
			addr = slices.MinFunc(found[i], netip.Addr.Compare)
		}
		if addr.IsValid() {
			known[name] = addr
			hosts[i].Name = addr.String()
		}
	}
	t.known = known
	return hosts
}

// dnsError returns a resolver's error in one line without its addresses.
func dnsError(err error) error {
	var d *net.DNSError
	if !errors.As(err, &d) {
		return err
	}
	switch {
	case d.IsNotFound:
		return fmt.Errorf("%w (%s)", errNone, d.Err)
	case d.IsTimeout:
		return errors.New("the name server does not answer in time")
	}
	return errors.New(d.Err)
}

// file returns a function that reads a host list when it has changed. A file that cannot be read or parsed
// is an error, and its previous content stands; a missing file has no hosts.
func (f *Finder) file() func(context.Context, string) ([]hostlist.Host, error) {
	var seen os.FileInfo
	var hosts []hostlist.Host
	return func(_ context.Context, path string) ([]hostlist.Host, error) {
		st, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			seen = nil
			return nil, fmt.Errorf("%w: there is no such file", errNone)
		}
		if err != nil {
			return nil, errors.Unwrap(err)
		}
		if seen != nil && os.SameFile(st, seen) && st.ModTime().Equal(seen.ModTime()) && st.Size() == seen.Size() {
			return hosts, nil
		}
		if !st.Mode().IsRegular() || st.Size() > hostlist.MaxText {
			return nil, fmt.Errorf("not a file of at most %d bytes", hostlist.MaxText)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, errors.Unwrap(err)
		}
		l, err := hostlist.Parse(string(b))
		if err != nil {
			return nil, err
		}
		if len(l.Sources) > 0 {
			return nil, errors.New("a file that is named in a host list may name hosts only, no " + l.Sources[0].Key())
		}
		var found []hostlist.Host
		for _, h := range l.Hosts {
			if !h.Down {
				found = append(found, h)
			}
		}
		// Counts as read only if it was so old that another change would show in its time.
		if hosts = found; time.Since(st.ModTime()) > 2*time.Second {
			seen = st
		}
		if len(hosts) == 0 {
			return nil, errNone
		}
		return hosts, nil
	}
}
