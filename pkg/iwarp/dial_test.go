package iwarp_test

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestAddressOnce: what cannot be reached, or listened on, is named once in the message, and the cause is still to be found.
func TestAddressOnce(t *testing.T) {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	_, err = dev.Listen(t.Context(), addr, nil)
	if !errors.Is(err, syscall.EADDRINUSE) || strings.Count(err.Error(), addr) != 1 {
		t.Errorf("listen: %v", err)
	}
	_, err = dev.Listen(t.Context(), "192.0.2.1:7632", nil)
	if !errors.Is(err, syscall.EADDRNOTAVAIL) || strings.Count(err.Error(), "192.0.2.1") != 1 {
		t.Errorf("listen: %v", err)
	}
}
