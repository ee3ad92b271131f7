package main

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

// TestCapture: a manager's capture has what it says to its hosts.
func TestCapture(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := filepath.Join(t.TempDir(), "c.pcapng")
	p := start(t, t.TempDir(), "--hosts", l.Addr().String(), "--capture", path)
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatalf("the manager does not connect: %v", err)
	}
	if _, err := c.Read(make([]byte, 20)); err != nil {
		t.Error(err)
	}
	c.Close()
	p.signal(syscall.SIGTERM)
	p.wait()
	if got := iwarptest.Tshark(t, path); got.Requests == 0 || len(got.Malformed) > 0 {
		t.Errorf("%+v", got)
	}
}
