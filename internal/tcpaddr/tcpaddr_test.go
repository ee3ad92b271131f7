package tcpaddr

import (
	"net"
	"net/netip"
	"testing"
)

// TestNetwork: 0.0.0.0 leaves the addresses of IPv6 to others, and [::] does not leave those of IPv4.
func TestNetwork(t *testing.T) {
	for addr, want := range map[string]string{"0.0.0.0:1": "tcp4", "127.0.0.1:0": "tcp4", "[::]:1": "tcp", ":1": "tcp", "localhost:1": "tcp", "[::ffff:1.2.3.4]:1": "tcp", "x": "tcp"} {
		if got := Network(addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Logf("no IPv6 here: %v", err)
		return
	} else {
		l.Close()
	}
	for addr, want := range map[string]bool{"0.0.0.0:0": false, "[::]:0": true} {
		l, err := net.Listen(Network(addr), addr)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String()) // that of a listener is valid
		for _, host := range []string{"127.0.0.1", "::1"} {
			c, err := net.Dial("tcp", net.JoinHostPort(host, port))
			if err == nil {
				c.Close()
			}
			if reached := err == nil; reached != (want || host == "127.0.0.1") {
				t.Errorf("%s: reached at %s: %v", addr, host, reached)
			}
		}
		l.Close()
	}
}

// TestControl: a connection on this machine is not paced, by whichever of the machine's addresses; others do not forget their
// window in a pause.
func TestControl(t *testing.T) {
	at := func(s string) *net.TCPAddr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	for _, c := range []struct {
		near, far net.Addr
		want      string
	}{
		{at("127.0.0.1:9"), at("127.0.0.1:1"), "reno"},
		{at("[::1]:9"), at("[::1]:1"), "reno"},
		{at("127.0.0.1:9"), at("127.8.0.1:1"), "reno"},
		{at("192.0.2.7:9"), at("192.0.2.7:1"), "reno"},
		{at("[::ffff:192.0.2.7]:9"), at("192.0.2.7:1"), "reno"},
		{at("192.0.2.7:9"), at("192.0.2.8:9"), "bbr"},
		{&net.UnixAddr{}, &net.UnixAddr{}, "bbr"},
	} {
		if got := Control(ends{near: c.near, far: c.far}); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.near, c.far, got, c.want)
		}
	}
}

// ends is a connection of which only the addresses count.
type ends struct {
	net.Conn
	near, far net.Addr
}

func (e ends) LocalAddr() net.Addr  { return e.near }
func (e ends) RemoteAddr() net.Addr { return e.far }
