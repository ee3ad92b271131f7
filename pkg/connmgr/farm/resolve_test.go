package farm

import (
	"context"
	"errors"
	"net"
	"testing"
)

// While names cannot be resolved, a host is dialled where it was last reached.
func TestNamesThatCannotBeResolved(t *testing.T) {
	for _, c := range []struct {
		what, addr, want string
		remote           net.Addr
		resolver         error // what the resolver's own connection fails with; nil: it hangs
	}{
		{"a resolver that hangs", "build7.example.org:7632", "192.0.2.7:7632", &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}, nil},
		{"a resolver that is not there", "build7.example.org:7632", "[2001:db8::7]:7632", &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 1}, errors.New("refused")},
		{"a host never reached", "build7.example.org:7632", "build7.example.org:7632", nil, nil},
		{"an address", "192.0.2.8:7632", "192.0.2.8:7632", &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}, nil},
		{"a name that exists", "localhost:7632", "localhost:7632", &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}, nil},
	} {
		f := &Farm{o: Options{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if c.resolver != nil {
				return nil, c.resolver
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}}}
		h := &Host{f: f, Addr: c.addr}
		h.reachedAt(c.remote)
		if got := h.dialAddr(t.Context()); got != c.want {
			t.Errorf("%s: %s is dialled at %s, want %s", c.what, c.addr, got, c.want)
		}
	}
}
